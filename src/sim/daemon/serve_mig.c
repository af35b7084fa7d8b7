/* SPDX-License-Identifier: Apache-2.0 */

/* Requests about multi-instance GPUs, and the pages that units need. */

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "abi/cuda.h"
#include "base/cleanup.h"
#include "sim/daemon/daemon_internal.h"
#include "sim/daemon/fault.h"
#include "sim/daemon/instance.h"

#define HOPPER 9u /* compute capability */

static int create_compute(struct daemon *d, uint32_t minor, uint32_t gi, uint32_t slices) {
    int unit = instance_free_unit(&d->machine);
    if (unit < 0)
        return unit;
    void *map = NULL;
    _cleanup_close_ int fd = daemon_memory("aliquot-sim-page", 4096, &map);
    if (fd < 0)
        return fd;
    int r = instance_add_compute(&d->machine, minor, gi, slices, (uint32_t) unit, map);
    if (r >= 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) < 0)
        (void) instance_end_compute(&d->machine, minor, gi, (uint32_t) r), r = -EIO;
    if (r < 0) {
        (void) munmap(map, 4096);
        return r;
    }
    d->page_fd[unit] = take_fd(&fd);
    return r;
}

static int destroy_compute(struct daemon *d, uint32_t minor, uint32_t gi, uint32_t ci) {
    int unit = instance_end_compute(&d->machine, minor, gi, ci);
    if (unit < 0)
        return unit;
    (void) munmap(d->machine.gpu[unit].page, 4096);
    memset(&d->machine.gpu[unit], 0, sizeof(d->machine.gpu[unit]));
    cleanup_closep(&d->page_fd[unit]);
    return 0;
}

static int change_mode(struct daemon *d, uint32_t minor, bool on) {
    struct sim_division *division = d->machine.gpu[minor].division;
    for (uint32_t i = 0; division && !on && i < SIM_GPU_INSTANCES_MAX; i++) {
        if (!division->gi[i].profile)
            continue;
        for (uint32_t k = 0; k < COMPUTE_INSTANCES_MAX; k++)
            if (division->gi[i].ci[k].unit) {
                int r = destroy_compute(d, minor, i, k);
                if (r < 0)
                    return r;
            }
        (void) instance_destroy(&d->machine, minor, i);
    }
    return instance_set_mode(&d->machine, minor, on);
}

/* The mode is pending where it cannot change at once: -EBUSY while another client has the card
 * open, -ERESTART where only a reset changes it. */
static int set_mode(struct daemon *d, const struct sim_session *s, uint32_t minor, bool on) {
    const struct sim_gpu *g = &d->machine.gpu[minor];
    size_t n;
    if (!g->model || !mig_profiles(g->model, &n) || d->machine.host->vgpu)
        return -EOPNOTSUPP;
    atomic_store(&g->page->mig_pending, on);
    if (on == (g->division != NULL))
        return 0;
    if (fault_opener(&d->machine, minor, s->pid))
        return -EBUSY;
    return d->mig_needs_reset ? -ERESTART : change_mode(d, minor, on);
}

/* The contexts on it die, as those of a lost card. */
static int end_compute(struct daemon *d, uint32_t minor, uint32_t gi, uint32_t ci) {
    uint32_t unit = instance_at(&d->machine, minor, gi)->ci[ci].unit;
    for (struct sim_session *s = d->machine.sessions; s; s = s->next)
        session_break(s, unit, CUDA_ERROR_DEVICE_UNAVAILABLE, true);
    return destroy_compute(d, minor, gi, ci);
}

int daemon_end_instance(struct daemon *d, uint32_t minor, uint32_t gi) {
    const struct sim_gpu_instance *i = instance_at(&d->machine, minor, gi);
    int r = i ? 0 : -ENOENT;
    for (uint32_t k = 0; r == 0 && k < COMPUTE_INSTANCES_MAX; k++)
        if (i->ci[k].unit)
            r = end_compute(d, minor, gi, k);
    if (r == 0)
        r = instance_destroy(&d->machine, minor, gi);
    int updated = capability_update(d, minor, NULL);
    return r < 0 ? r : updated;
}

void daemon_forget_instances(struct daemon *d, uint32_t minor) {
    const struct sim_gpu *g = &d->machine.gpu[minor];
    bool on = g->division != NULL, pending = atomic_load(&g->page->mig_pending);
    for (uint32_t gi = 0; on && gi < SIM_GPU_INSTANCES_MAX; gi++)
        (void) daemon_end_instance(d, minor, gi);
    if (on != pending || g->page->cc_major >= HOPPER)
        (void) instance_set_mode(&d->machine, minor, on != pending && pending);
}

/* One entry a GPU instance, and one for each of its compute instances. */
static void list_instances(struct daemon *d, uint32_t minor, struct answer *a) {
    struct sim_mig_entry *out = d->list.mig;
    for (uint32_t i = 0; i < SIM_GPU_INSTANCES_MAX; i++) {
        const struct sim_gpu_instance *gi = instance_at(&d->machine, minor, i);
        if (!gi)
            continue;
        struct sim_mig_entry e = {.gi = i,
                                  .profile = gi->profile->id,
                                  .start = (uint32_t) gi->start,
                                  .size = gi->profile->memory_slices,
                                  .ci = UINT32_MAX};
        out[a->reply.count++] = e;
        for (uint32_t k = 0; k < COMPUTE_INSTANCES_MAX; k++)
            if (gi->ci[k].unit) {
                e.ci = k;
                e.unit = gi->ci[k].unit;
                e.start = gi->ci[k].start;
                e.size = gi->ci[k].slices;
                out[a->reply.count++] = e;
            }
    }
    a->list = out;
    a->list_bytes = a->reply.count * sizeof(*out);
}

/* A part of a card that the process may use: it has the capabilities of both instances, or, to read
 * only, that of a monitor. */
static int attach_instance(struct daemon *d, struct sim_session *s, const struct sim_request *q,
                           struct answer *a) {
    uint32_t unit = (uint32_t) q->token[0], minor = q->minor;
    if (unit < SIM_MAX_GPUS || unit >= SIM_MAX_UNITS || !d->machine.gpu[unit].page ||
        d->machine.gpu[unit].page->parent != minor)
        return -ENODEV;
    const struct sim_page *page = d->machine.gpu[unit].page;
    uint32_t card = atomic_load(&d->machine.gpu[minor].page->number);
    bool monitor = q->token[1] == SIM_CAP_MONITOR;
    int r = capability_check(
        d, s, monitor ? SIM_CAP_MONITOR : sim_cap_number(card, page->gpu_instance, UINT32_MAX), a);
    if (r == 0 && !monitor)
        r = capability_check(d, s, sim_cap_number(card, page->gpu_instance, page->compute_instance),
                             a);
    if (r < 0)
        return r;
    if (monitor)
        session_monitor(s, unit);
    else
        session_attach(s, unit);
    a->fds[0] = d->page_fd[unit];
    a->nfds = 1;
    return 0;
}

static int change(struct daemon *d, const struct sim_session *s, const struct sim_request *q) {
    uint32_t x = (uint32_t) q->token[0], y = (uint32_t) q->token[1];
    switch (q->a) {
    case SIM_MIG_MODE:
        return set_mode(d, s, q->minor, x != 0);
    case SIM_MIG_CREATE:
        return instance_create(&d->machine, q->minor, x, (int) y);
    case SIM_MIG_DESTROY:
        return instance_destroy(&d->machine, q->minor, x);
    case SIM_MIG_CREATE_COMPUTE:
        return create_compute(d, q->minor, x, y);
    case SIM_MIG_DESTROY_COMPUTE:
        return destroy_compute(d, q->minor, x, y);
    default:
        return -EINVAL;
    }
}

int serve_mig(struct daemon *d, struct sim_session *s, const struct sim_request *q,
              struct answer *a) {
    uint32_t needed = SIM_CAP_CONFIG;
    if (q->minor >= d->machine.ngpus)
        return -ENODEV;
    if (q->a == SIM_MIG_ATTACH)
        return attach_instance(d, s, q, a);
    if (q->a == SIM_MIG_LIST)
        needed = (uint32_t) q->token[0];
    else if (q->a == SIM_MIG_MODE && !s->administrator)
        return -EPERM;
    int r = needed ? capability_check(d, s, needed, a) : 0;
    if (r < 0)
        return r;
    if (q->a == SIM_MIG_LIST) {
        list_instances(d, q->minor, a);
        return 0;
    }
    r = change(d, s, q);
    int updated = capability_update(d, q->minor, NULL);
    return r >= 0 && updated < 0 ? updated : r;
}

int daemon_divide(struct daemon *d, uint32_t minor, const char *how, struct err *err) {
    int r = instance_set_mode(&d->machine, minor, true);
    while (r >= 0 && *how && *how != '-') {
        size_t n = strcspn(how, ",");
        const struct mig_profile *p = mig_find(d->machine.gpu[minor].model, how, n);
        r = p ? instance_create(&d->machine, minor, p->id, -1) : -EINVAL;
        if (r >= 0)
            r = create_compute(d, minor, (uint32_t) r, p->slices);
        how += n + (how[n] == ',');
    }
    return r < 0 ? err_set(err, -r, "cannot divide GPU %u", minor) : 0;
}
