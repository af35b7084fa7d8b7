/* SPDX-License-Identifier: Apache-2.0 */
#include "model/mig_strategy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char *const names[MIG_STRATEGIES] = {
    [MIG_STRATEGY_NONE] = "none",
    [MIG_STRATEGY_SINGLE] = "single",
    [MIG_STRATEGY_MIXED] = "mixed",
};

const char *mig_strategy_name(enum mig_strategy strategy) {
    return names[strategy];
}

int mig_strategy_parse(const char *name, enum mig_strategy *ret) {
    for (unsigned i = 0; i < MIG_STRATEGIES; i++) {
        if (strcmp(names[i], name) != 0)
            continue;
        *ret = (enum mig_strategy) i;
        return 0;
    }
    return -EINVAL;
}

void mig_resource_name(const char *profile, char *ret, size_t size) {
    (void) snprintf(ret, size, MIG_RESOURCE_PREFIX "%s", profile);
    for (char *c = ret; (c = strchr(c, '+'));)
        *c = '.';
}
