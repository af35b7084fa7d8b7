/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/backends/whole_names.h"

#include <string.h>

#include "agent/config/card_config.h"
#include "base/text.h"
#include "gpu/mig_single.h"

#define SINGLE_NAME "nvidia.com/gpu"

/* ---- names ---- */

static bool is_elsewhere(const struct whole_rows *m, const char *name) {
    const char *list = m->elsewhere, *item;
    size_t len;

    while (text_item(&list, &item, &len))
        if (strlen(name) == len && strncmp(item, name, len) == 0)
            return true;
    return false;
}

void whole_instance_resource(const struct whole_rows *m, const struct gpu_device *d,
                             char ret[static WHOLE_NAME_MAX]) {
    const char *named;

    ret[0] = 0;
    if (d->kind != GPU_MIG_INSTANCE || !d->mig.profile[0] || m->strategy == MIG_STRATEGY_NONE)
        return;
    named = m->named ? m->named(d->mig.profile, m->userdata) : NULL;
    if (named)
        text_copy(ret, WHOLE_NAME_MAX, named);
    else if (d->mig.gi_slices == d->mig.ci_slices && m->strategy == MIG_STRATEGY_MIXED)
        mig_resource_name(d->mig.profile, ret, WHOLE_NAME_MAX);
    else if (d->mig.gi_slices == d->mig.ci_slices)
        text_copy(ret, WHOLE_NAME_MAX, SINGLE_NAME);
    /* With `single` the name of all cards is left out of the shares, and is the agent's here. */
    if ((m->strategy != MIG_STRATEGY_SINGLE || strcmp(ret, SINGLE_NAME) != 0) &&
        is_elsewhere(m, ret))
        ret[0] = 0;
}

/* ---- the configuration ---- */

bool whole_offer_of(const struct whole_rows *m, const struct gpu_snapshot *s,
                    const struct gpu_device *d, struct config_offer *ret) {
    char name[WHOLE_NAME_MAX];

    if (!gpu_is_given_whole(d))
        return false;
    if (d->kind == GPU_CARD)
        return m->config && config_card_offer(m->config, s, d, ret);
    whole_instance_resource(m, d, name);
    if (!name[0] || (m->strategy == MIG_STRATEGY_SINGLE && gpu_mig_check_single(s, NULL) < 0))
        return false;
    if (m->config) {
        config_replicas_of(m->config, s, d, name, ret);
    } else {
        *ret = (struct config_offer){.replicas = 1};
        text_copy(ret->resource, sizeof(ret->resource), name);
    }
    return true;
}
