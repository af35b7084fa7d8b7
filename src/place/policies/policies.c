/* SPDX-License-Identifier: Apache-2.0 */
#include "place/policies/policies.h"

#include <string.h>

#include "model/placement_policies.h"

static const struct place_policy *const policies[] = {
#define ROW(id, word) &place_##id,
    PLACEMENT_POLICIES(ROW, ROW, ROW) NULL,
#undef ROW
};

const struct place_policy *place_policy_at(size_t i) {
    return i < sizeof(policies) / sizeof(policies[0]) ? policies[i] : NULL;
}

const struct place_policy *place_policy_find(const char *name) {
    for (size_t i = 0; policies[i]; i++)
        if (strcmp(policies[i]->name, name) == 0)
            return policies[i];
    return NULL;
}
