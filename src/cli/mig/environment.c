/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/mig/environment.h"

#include <stdlib.h>
#include <string.h>

const char *env_text(const char *name) {
    const char *value = secure_getenv(name);

    return value && value[0] ? value : NULL;
}

/* As Go's strconv.ParseBool. */
bool env_flag(const char *name) {
    static const char *const yes[] = {"1", "t", "T", "true", "True", "TRUE"};
    const char *value = env_text(name);

    for (size_t i = 0; value && i < sizeof(yes) / sizeof(yes[0]); i++)
        if (strcmp(value, yes[i]) == 0)
            return true;
    return false;
}
