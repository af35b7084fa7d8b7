/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/daemon/ipc_memory.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "sim/daemon/channel.h"
#include "sim/daemon/memlimit.h"
#include "sim/list.h"

#define SHARES_MAX 4096u /* of one process: each costs the daemon a descriptor */

struct sim_share *ipc_memory_find(struct sim_machine *m, const uint64_t id[2]) {
    for (struct sim_share *i = m->shares; i; i = i->next)
        if (i->id[0] == id[0] && i->id[1] == id[1])
            return i;
    return NULL;
}

static struct sim_share_holder **find_holder(struct sim_share *share, const struct sim_session *s) {
    struct sim_share_holder **p = &share->holders;
    while (*p && (*p)->session != s)
        p = &(*p)->next;
    return p;
}

static void destroy_share(struct sim_machine *m, struct sim_share *share) {
    struct sim_share **p = &m->shares;
    while (*p != share)
        p = &(*p)->next;
    *p = share->next;
    (void) close(share->fd);
    free(share);
}

/* Counts it as the use of another process, or of none. */
static void charge_holder(struct sim_share *share, struct sim_session *to) {
    struct sim_channel *from = share->charged ? share->charged->channel[share->minor] : NULL;
    struct sim_channel *c = to ? session_channel(to, share->minor) : NULL;
    if (from) {
        from->used -= share->bytes;
        from->shared -= share->bytes;
    }
    if (c) {
        c->used += share->bytes;
        c->shared += share->bytes;
    }
    share->charged = c ? to : NULL;
}

static void recharge_or_free(struct sim_machine *m, struct sim_share *share) {
    if (share->charged && *find_holder(share, share->charged))
        return;
    charge_holder(share, share->holders ? share->holders->session : NULL);
    if (share->holders || share->exports > 0)
        return;
    gpu_give(share->gpu, share->bytes);
    memlimit_release_all(&share->charges);
    destroy_share(m, share);
}

int ipc_memory_new(struct sim_channel *c, uint64_t bytes, int fd, const uint64_t id[2]) {
    if (bytes > c->used - c->shared)
        return -EINVAL;
    if (c->session->nshares >= SHARES_MAX)
        return -EMFILE;
    struct sim_share *share = calloc(1, sizeof(*share));
    if (!share)
        return -ENOMEM;
    *share = (struct sim_share){.id = {id[0], id[1]},
                                .gpu = c->gpu,
                                .minor = c->gpu->page->minor,
                                .bytes = bytes,
                                .charged = c->session};
    int r = ipc_memory_hold(share, c->session);
    if (r < 0) {
        free(share);
        return r;
    }
    c->shared += bytes;
    memlimit_release(c, bytes, &share->charges);
    share->fd = fd;
    LIST_PUSH(c->session->machine->shares, share, next);
    return 0;
}

int ipc_memory_hold(struct sim_share *share, struct sim_session *s) {
    if (!session_channel(s, share->minor))
        return -ENODEV;
    struct sim_share_holder **p = find_holder(share, s);
    if (!*p) {
        if (s->nshares >= SHARES_MAX)
            return -EMFILE;
        *p = calloc(1, sizeof(**p));
        if (!*p)
            return -ENOMEM;
        (*p)->session = s;
        s->nshares++;
    }
    (*p)->count++;
    return 0;
}

static void remove_holder(struct sim_share_holder **p) {
    struct sim_share_holder *h = *p;
    *p = h->next;
    h->session->nshares--;
    free(h);
}

int ipc_memory_release(struct sim_share *share, struct sim_session *s) {
    struct sim_share_holder **p = find_holder(share, s);
    if (!*p)
        return -EINVAL;
    if (--(*p)->count == 0)
        remove_holder(p);
    recharge_or_free(s->machine, share);
    return 0;
}

void ipc_memory_export(struct sim_share *share) {
    share->exports++;
}

void ipc_memory_unexport(struct sim_machine *m, struct sim_share *share) {
    share->exports--;
    recharge_or_free(m, share);
}

void ipc_memory_release_all(struct sim_session *s, uint32_t minor) {
    struct sim_share *next;
    for (struct sim_share *i = s->machine->shares; i; i = next) {
        next = i->next;
        struct sim_share_holder **p = find_holder(i, s);
        if (i->minor != minor || !*p)
            continue;
        remove_holder(p);
        recharge_or_free(s->machine, i);
    }
}
