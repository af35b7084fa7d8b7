/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/daemon/channel.h"

#include <errno.h>
#include <stdlib.h>

#include "sim/daemon/memlimit.h"

struct sim_channel *session_channel(struct sim_session *s, uint32_t minor) {
    if (minor >= s->machine->nunits || !s->machine->gpu[minor].page || !session_attached(s, minor))
        return NULL;
    if (!s->channel[minor]) {
        struct sim_channel *c = calloc(1, sizeof(*c));
        if (!c)
            return NULL;
        c->session = s;
        c->gpu = &s->machine->gpu[minor];
        c->meter.period_ns = c->gpu->meter.period_ns;
        s->channel[minor] = c;
    }
    return s->channel[minor];
}

/* The use of an instance is also in the figures of the card and of the other instances. */
static void set_used(struct sim_gpu *g, uint64_t used) {
    struct sim_machine *m = g->machine;
    uint64_t before = g->used;
    g->used = used;
    if (!g->bank) {
        atomic_store(&g->page->memory_used, used);
        return;
    }
    g->bank->used += used - before;
    for (uint32_t i = SIM_MAX_GPUS; i < m->nunits; i++)
        if (m->gpu[i].page && m->gpu[i].bank == g->bank)
            atomic_store(&m->gpu[i].page->memory_used, g->bank->used);
    struct sim_gpu *card = &m->gpu[g->page->parent];
    set_used(card, card->used + used - before);
}

static uint64_t free_bytes(const struct sim_gpu *g) {
    return g->bank ? g->bank->total - g->bank->used
                   : g->page->memory_total - g->page->memory_reserved - g->used;
}

int channel_take(struct sim_channel *c, uint64_t bytes) {
    struct sim_gpu *g = c->gpu;
    if (bytes > free_bytes(g))
        return -ENOMEM;
    set_used(g, g->used + bytes);
    c->used += bytes;
    if (c->used > c->peak)
        c->peak = c->used;
    return 0;
}

void gpu_give(struct sim_gpu *g, uint64_t bytes) {
    set_used(g, g->used - bytes);
}

void channel_give(struct sim_channel *c, uint64_t bytes) {
    if (bytes > c->used - c->shared)
        bytes = c->used - c->shared;
    c->used -= bytes;
    gpu_give(c->gpu, bytes);
    if (c->managed > c->used - c->shared)
        c->managed = c->used - c->shared;
}

int channel_context_create(struct sim_channel *c, uint64_t *ret_bytes) {
    uint64_t bytes = c->gpu->page->context_bytes;
    int r = channel_take(c, bytes);
    if (r < 0)
        return r;
    if (c->contexts++ == 0)
        atomic_fetch_add(&c->gpu->page->clients, 1);
    *ret_bytes = bytes;
    return 0;
}

int channel_context_destroy(struct sim_channel *c) {
    if (c->contexts == 0)
        return -EINVAL;
    if (--c->contexts == 0)
        atomic_fetch_sub(&c->gpu->page->clients, 1);
    memlimit_release(c, c->gpu->page->context_bytes, NULL);
    channel_give(c, c->gpu->page->context_bytes);
    return 0;
}

int channel_suspend(struct sim_channel *c) {
    if (c->suspended)
        return -EALREADY;
    if (c->shared > 0)
        return -EBUSY;
    c->suspended = true;
    c->away = c->used;
    c->contexts_away = c->contexts;
    channel_give(c, c->used);
    if (c->contexts > 0)
        atomic_fetch_sub(&c->gpu->page->clients, 1);
    c->contexts = 0;
    memlimit_release_all(&c->charges);
    return 0;
}

int channel_resume(struct sim_channel *c) {
    if (!c->suspended)
        return -EALREADY;
    int r = channel_take(c, c->away);
    if (r < 0)
        return r;
    if (c->contexts_away > 0 && c->contexts == 0)
        atomic_fetch_add(&c->gpu->page->clients, 1);
    c->contexts += c->contexts_away;
    c->suspended = false;
    c->away = c->contexts_away = 0;
    return 0;
}
