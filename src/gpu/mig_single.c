/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/mig_single.h"

#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "gpu/device.h"

static bool has_part(const struct gpu_snapshot *s, const struct gpu_device *card) {
    for (uint32_t i = 0; i < s->ndevices; i++)
        if (strcmp(s->devices[i].parent, card->uuid) == 0)
            return true;
    return false;
}

static int check_card(const struct gpu_snapshot *s, const struct gpu_device *card,
                      struct err *why) {
    if (!card->divided)
        return err_set(why, EINVAL, "GPU %u (%s) is not in MIG mode, others of the node are",
                       card->index, card->uuid);
    return has_part(s, card) ? 0
                             : err_set(why, EINVAL, "GPU %u (%s) is in MIG mode without instances",
                                       card->index, card->uuid);
}

static int check_instance(const struct gpu_device *first, const struct gpu_device *d,
                          struct err *why) {
    return !first || strcmp(first->mig.profile, d->mig.profile) == 0
               ? 0
               : err_set(why, EINVAL, "the node has MIG instances of profile %s and of profile %s",
                         first->mig.profile, d->mig.profile);
}

int gpu_mig_check_single(const struct gpu_snapshot *s, struct err *why) {
    const struct gpu_device *first = NULL;
    bool divided = false;
    int r = 0;

    for (uint32_t i = 0; i < s->ndevices; i++)
        divided = divided || s->devices[i].divided;
    for (uint32_t i = 0; i < s->ndevices && divided && r == 0; i++) {
        const struct gpu_device *d = &s->devices[i];

        if (d->kind == GPU_CARD)
            r = check_card(s, d, why);
        if (d->kind != GPU_MIG_INSTANCE)
            continue;
        r = check_instance(first, d, why);
        first = d;
    }
    return r;
}
