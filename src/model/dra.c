/* SPDX-License-Identifier: Apache-2.0 */
#include "model/dra.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

const char *const dra_allocator_names[DRA_ALLOCATORS + 1] = {
    [DRA_NONE] = "none",
    [DRA_ALIQUOT] = DRA_BY_ALIQUOT,
    [DRA_KUBE_SCHEDULER] = DRA_BY_KUBE_SCHEDULER,
};

const char *dra_allocator_name(enum dra_allocator allocator) {
    assert(allocator < DRA_ALLOCATORS);
    return dra_allocator_names[allocator];
}

int dra_allocator_parse(const char *name, enum dra_allocator *ret) {
    for (int i = 0; i < DRA_ALLOCATORS; i++) {
        if (strcmp(name, dra_allocator_names[i]) != 0)
            continue;
        *ret = (enum dra_allocator) i;
        return 0;
    }
    return -EINVAL;
}
