/* SPDX-License-Identifier: Apache-2.0 */
#include "model/dra.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/text.h"

#define CARD_PREFIX "gpu-"
#define CARD_UUID_LENGTH (sizeof("GPU-00000000-0000-0000-0000-000000000000") - 1)

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

void dra_device_uuid(const char *device, char ret[static GPU_UUID_MAX]) {
    text_copy(ret, GPU_UUID_MAX, device);
    if (strncmp(device, CARD_PREFIX, strlen(CARD_PREFIX)) == 0 && strlen(ret) > CARD_UUID_LENGTH)
        ret[CARD_UUID_LENGTH] = '\0';
    for (char *c = ret; *c && *c != '-'; c++)
        *c = (char) toupper((unsigned char) *c);
}
