/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/daemon/instance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "sim/daemon/ipc_memory.h"
#include "sim/daemon/session.h"

/* By a process, or by memory that may be on its way to one as a descriptor. */
static bool in_use(const struct sim_machine *m, uint32_t minor) {
    for (const struct sim_share *i = m->shares; i; i = i->next)
        if (i->minor == minor)
            return true;
    for (const struct sim_session *s = m->sessions; s; s = s->next)
        if (s->channel[minor] && s->channel[minor]->contexts > 0)
            return true;
    return false;
}

struct sim_gpu_instance *instance_at(struct sim_machine *m, uint32_t minor, uint32_t gi) {
    struct sim_division *d = minor < m->ngpus ? m->gpu[minor].division : NULL;
    return d && gi < SIM_GPU_INSTANCES_MAX && d->gi[gi].profile ? &d->gi[gi] : NULL;
}

/* -- mode ------------------------------------------------------------------------------------ */

int instance_set_mode(struct sim_machine *m, uint32_t minor, bool on) {
    struct sim_gpu *g = &m->gpu[minor];
    size_t n;
    if (!g->model || !mig_profiles(g->model, &n) || m->host->vgpu)
        return -EOPNOTSUPP;
    if (on == (g->division != NULL))
        return 0;
    if (in_use(m, minor))
        return -EBUSY;
    if (on) {
        g->division = calloc(1, sizeof(*g->division));
        if (!g->division)
            return -ENOMEM;
    } else {
        for (uint32_t i = 0; i < SIM_GPU_INSTANCES_MAX; i++)
            if (g->division->gi[i].profile)
                return -EBUSY;
        free(g->division);
        g->division = NULL;
    }
    atomic_store(&g->page->mig, on);
    atomic_store(&g->page->mig_pending, on);
    return 0;
}

/* -- GPU instances --------------------------------------------------------------------------- */

static uint8_t taken(const struct sim_division *d) {
    uint8_t bits = 0;
    for (uint32_t i = 0; i < SIM_GPU_INSTANCES_MAX; i++)
        if (d->gi[i].profile)
            bits |= mig_bits(d->gi[i].profile, d->gi[i].start);
    return bits;
}

static const struct mig_profile *profile_by_id(const struct sim_model *model, uint32_t id) {
    size_t n;
    const struct mig_profile *rows = mig_profiles(model, &n);
    for (size_t i = 0; i < n; i++)
        if (rows[i].id == id)
            return &rows[i];
    return NULL;
}

static bool may_start(const struct mig_profile *p, int start, uint8_t bits) {
    return start >= 0 && start < 8 && p->starts >> start & 1 && !(bits & mig_bits(p, start));
}

/* The whole card has number 0, parts count from 1. */
int instance_create(struct sim_machine *m, uint32_t minor, uint32_t profile, int start) {
    struct sim_gpu *g = &m->gpu[minor];
    struct sim_division *d = minor < m->ngpus ? g->division : NULL;
    if (!d)
        return -ENODEV;
    const struct mig_profile *p = profile_by_id(g->model, profile);
    if (!p || (start >= 0 && (start >= 8 || !(p->starts >> start & 1))))
        return -EINVAL;
    uint8_t bits = taken(d);
    uint32_t same = 0;
    for (uint32_t i = 0; i < SIM_GPU_INSTANCES_MAX; i++)
        same += d->gi[i].profile == p;
    if (start < 0)
        start = mig_place(g->model, p, bits);
    if (same >= p->most || !may_start(p, start, bits))
        return -ENOSPC;
    uint32_t id = p->slices == 7 ? 0 : 1;
    while (id < SIM_GPU_INSTANCES_MAX && d->gi[id].profile)
        id++;
    if (id == SIM_GPU_INSTANCES_MAX)
        return -ENOSPC;
    d->gi[id] = (struct sim_gpu_instance){
        .profile = p, .start = start, .bank = {.total = p->memory_mib * MIB}};
    return (int) id;
}

int instance_destroy(struct sim_machine *m, uint32_t minor, uint32_t gi) {
    struct sim_gpu_instance *i = instance_at(m, minor, gi);
    if (!i)
        return -ENOENT;
    for (uint32_t k = 0; k < COMPUTE_INSTANCES_MAX; k++)
        if (i->ci[k].unit)
            return -EBUSY;
    memset(i, 0, sizeof(*i));
    return 0;
}

/* -- compute instances ----------------------------------------------------------------------- */

int instance_free_unit(const struct sim_machine *m) {
    for (uint32_t i = SIM_MAX_GPUS; i < SIM_MAX_UNITS; i++)
        if (!m->gpu[i].page)
            return (int) i;
    return -ENOSPC;
}

/* Where `slices` of the instance's compute slices lie beside each other and free, or -ENOSPC. */
static int find_compute_start(const struct sim_gpu_instance *i, uint32_t slices) {
    uint32_t bits = 0;
    for (uint32_t k = 0; k < COMPUTE_INSTANCES_MAX; k++)
        if (i->ci[k].unit)
            bits |= ((1u << i->ci[k].slices) - 1) << i->ci[k].start;
    for (uint32_t start = 0; start + slices <= i->profile->slices; start++)
        if (!(bits & ((1u << slices) - 1) << start))
            return (int) start;
    return -ENOSPC;
}

/* "3g.40gb" for all of an instance, "1c.3g.40gb" for a part. The UUID follows from the place. */
static void describe_instance(struct sim_page *p, const struct sim_page *card,
                              const struct sim_gpu_instance *i,
                              const struct sim_compute_instance *c) {
    const struct mig_profile *profile = i->profile;
    char part[8] = "";
    if (c->slices < profile->slices)
        (void) snprintf(part, sizeof(part), "%uc.", c->slices);
    *p = *card;
    p->minor = c->unit;
    (void) snprintf(p->name, sizeof(p->name), "%.60s MIG %s%s", card->name, part, profile->name);
    p->uuid_bytes[14] ^= (uint8_t) (0x80 | i->start << 3 | c->start);
    p->uuid_bytes[15] ^= (uint8_t) (profile->id << 3 | c->slices);
    uint8_t *u = p->uuid_bytes;
    (void) snprintf(p->uuid, sizeof(p->uuid),
                    "MIG-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
                    u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12],
                    u[13], u[14], u[15]);
    p->memory_total = i->bank.total;
    p->memory_reserved = 0;
    p->context_bytes = card->context_bytes / 8 * profile->memory_slices;
    p->sm_count = (uint32_t) profile->sms * c->slices / profile->slices;
    p->cores = card->cores / card->sm_count * p->sm_count;
    p->memory_mbps = card->memory_mbps / 8 * profile->memory_slices;
    p->compute_slices = c->slices;
    p->mig = 0;
    p->gpu_slices = profile->slices;
    memset(p->engines, 0, sizeof(p->engines));
    const uint8_t engines[] = {profile->copy, profile->decode, profile->encode, profile->jpeg,
                               profile->ofa};
    memcpy(p->engines, engines, sizeof(engines));
    p->nvlinks = p->nvlink_max = 0;
    p->memory_used = i->bank.used;
    p->busy_ns = 0;
    p->clients = 0;
}

int instance_add_compute(struct sim_machine *m, uint32_t minor, uint32_t gi, uint32_t slices,
                         uint32_t unit, struct sim_page *page) {
    struct sim_gpu_instance *i = instance_at(m, minor, gi);
    if (!i)
        return -ENOENT;
    if (slices == 0 || slices > i->profile->slices || slices == 5 || slices == 6)
        return -EINVAL;
    int start = find_compute_start(i, slices);
    uint32_t id = 0;
    while (id < COMPUTE_INSTANCES_MAX && i->ci[id].unit)
        id++;
    if (start < 0 || id == COMPUTE_INSTANCES_MAX)
        return -ENOSPC;
    struct sim_gpu *card = &m->gpu[minor], *g = &m->gpu[unit];
    i->ci[id] = (struct sim_compute_instance){unit, (uint8_t) slices, (uint8_t) start};
    describe_instance(page, card->page, i, &i->ci[id]);
    page->gpu_instance = gi;
    page->compute_instance = id;
    *g = (struct sim_gpu){.page = page,
                          .bank = &i->bank,
                          .machine = m,
                          .now = card->now,
                          .slice_ns = card->slice_ns,
                          .switch_ns = card->switch_ns,
                          .meter.period_ns = card->meter.period_ns};
    if (m->nunits <= unit)
        m->nunits = unit + 1;
    return (int) id;
}

int instance_end_compute(struct sim_machine *m, uint32_t minor, uint32_t gi, uint32_t ci) {
    struct sim_gpu_instance *i = instance_at(m, minor, gi);
    if (!i || ci >= COMPUTE_INSTANCES_MAX || !i->ci[ci].unit)
        return -ENOENT;
    uint32_t unit = i->ci[ci].unit;
    if (in_use(m, unit))
        return -EBUSY;
    for (struct sim_session *s = m->sessions; s; s = s->next)
        session_detach(s, unit);
    atomic_store(&m->gpu[unit].page->state, SIM_LOST);
    i->ci[ci].unit = 0;
    return (int) unit;
}
