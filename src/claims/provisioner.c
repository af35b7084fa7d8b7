/* SPDX-License-Identifier: Apache-2.0 */
#include "claims/provisioner.h"

#include <string.h>

static const struct provisioner *const provisioners[] = {
    &provisioner_share,
    &provisioner_whole,
    &provisioner_mig,
    &provisioner_mps,
};

const struct provisioner *provisioner_find(const char *name) {
    for (size_t i = 0; i < sizeof(provisioners) / sizeof(provisioners[0]); i++)
        for (const char *const *known = provisioners[i]->names; *known; known++)
            if (strcmp(*known, name) == 0)
                return provisioners[i];
    return NULL;
}
