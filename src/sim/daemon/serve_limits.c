/* SPDX-License-Identifier: Apache-2.0 */

/* Memory limits of control groups: the charge for what a process takes, and requests about limits.
 */

#include <errno.h>

#include "sim/daemon/daemon_internal.h"

/* Forgets removed groups; called before each use of the groups. */
static void forget_gone(struct daemon *d) {
    uint64_t id;
    while ((id = group_dirs_gone(&d->groups)) != 0)
        for (uint32_t i = 0; i < d->machine.ngpus; i++)
            memlimit_group_gone(&d->machine.gpu[i], id);
}

/* The process that has made the connection is charged, while it lives. A process that uses its
 * descriptors after its end is not. */
static int charge_group(struct daemon *d, struct sim_channel *c, uint64_t bytes) {
    struct sim_groups groups;
    if (c->gpu->accounting == SIM_MEMORY_OFF)
        return 0;
    forget_gone(d);
    group_of_process(c->session->proc, &groups);
    return memlimit_charge(c, &groups, bytes);
}

/* Managed memory is only the kernel's business, as memory of the system. */
int serve_take(struct daemon *d, struct sim_channel *c, const struct sim_request *q) {
    bool managed = q->token[0] == SIM_MANAGED;
    int r = channel_take(c, q->a);
    if (r == 0 && managed)
        c->managed += q->a;
    if (r < 0 || managed)
        return r;
    r = charge_group(d, c, q->a);
    if (r < 0)
        channel_give(c, q->a);
    return r;
}

void serve_give(struct sim_channel *c, const struct sim_request *q) {
    uint64_t own = c->used - c->shared;
    uint64_t bytes = q->a < own ? q->a : own;
    if (q->token[0] != SIM_MANAGED)
        memlimit_release(c, bytes, NULL);
    else
        c->managed -= bytes < c->managed ? bytes : c->managed;
    channel_give(c, bytes);
}

int serve_context(struct daemon *d, struct sim_channel *c, uint64_t *ret_bytes) {
    int r = channel_context_create(c, ret_bytes);
    if (r < 0)
        return r;
    r = charge_group(d, c, *ret_bytes);
    if (r == 0)
        return 0;
    struct sim_charge *kept = c->charges; /* the context was not charged */
    c->charges = NULL;
    (void) channel_context_destroy(c);
    c->charges = kept;
    return r;
}

int serve_resume(struct daemon *d, struct sim_channel *c) {
    int r = channel_resume(c);
    if (r < 0)
        return r;
    r = charge_group(d, c, c->used - c->shared - c->managed);
    if (r < 0)
        (void) channel_suspend(c);
    return r;
}

static int find_groups(const struct sim_session *s, const struct sim_request *q, int fd,
                       struct sim_groups *ret) {
    if (q->a != SIM_LIMITS_MINE)
        return group_of_directory(fd, ret);
    group_of_process(s->proc, ret);
    return 0;
}

int serve_limits(struct daemon *d, struct watch *w, const struct sim_request *q, int fd,
                 struct answer *a) {
    struct sim_channel *c = session_channel(w->session, q->minor);
    struct sim_memory_limits limits;
    struct sim_groups groups;
    if (!c)
        return -ENODEV;
    /* Cards that are divided, and their parts, have none. */
    if (c->gpu->division || q->minor >= SIM_MAX_GPUS)
        return -EOPNOTSUPP;
    /* In this order a group that is found has the entry that it had: its removal is not noted. */
    forget_gone(d);
    int r = find_groups(w->session, q, fd, &groups);
    if (r < 0)
        return r;
    if (q->a == SIM_LIMITS_SET) {
        if (!w->session->administrator)
            return -EPERM;
        r = memlimit_set(c->gpu, &groups, q->token[0], q->token[1]);
        return r < 0 || c->gpu->accounting != SIM_MEMORY_MISC
                   ? r
                   : group_dirs_add(&d->groups, groups.id[0], fd);
    }
    r = memlimit_get(c->gpu, &groups, &limits);
    a->reply.a = limits.hard;
    a->reply.b = limits.soft;
    a->reply.token[0] = limits.used;
    return r;
}
