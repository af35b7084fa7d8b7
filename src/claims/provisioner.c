/* SPDX-License-Identifier: Apache-2.0 */
#include "claims/provisioner.h"

#include <string.h>

#define PROVISIONERS(row) row(share) row(whole) row(mig) row(mps)

#define DECLARE(name) extern const struct provisioner provisioner_##name;
PROVISIONERS(DECLARE)

#define ADDRESS(name) &provisioner_##name,
static const struct provisioner *const provisioners[] = {PROVISIONERS(ADDRESS)};

const struct provisioner *provisioner_find(const char *name) {
    for (size_t i = 0; i < sizeof(provisioners) / sizeof(provisioners[0]); i++)
        for (const char *const *known = provisioners[i]->names; *known; known++)
            if (strcmp(*known, name) == 0)
                return provisioners[i];
    return NULL;
}
