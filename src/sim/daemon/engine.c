/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/daemon/engine.h"

#include <stdlib.h>
#include <string.h>

#include "sim/daemon/channel.h"
#include "sim/daemon/shared_event.h"
#include "sim/daemon/wake.h"

/* Readings of the rings before the sockets are served again: no client can occupy the daemon. */
#define ROUNDS_MAX 8

/* -- the GPU's round of channels ------------------------------------------------------------- */

static uint64_t slice_of(const struct sim_gpu *g) {
    return g->slice_ns ? g->slice_ns : ENGINE_SLICE_NS;
}

static void round_append(struct sim_gpu *g, struct sim_channel *c) {
    c->next = NULL;
    c->in_round = true;
    if (g->round)
        g->round_last->next = c;
    else {
        g->round = c;
        g->slice_left = slice_of(g);
    }
    g->round_last = c;
}

static void round_remove(struct sim_gpu *g, struct sim_channel *c) {
    struct sim_channel *previous = NULL;
    for (struct sim_channel *i = g->round; i; previous = i, i = i->next) {
        if (i != c)
            continue;
        if (previous)
            previous->next = c->next;
        else {
            g->round = c->next;
            g->slice_left = slice_of(g);
        }
        if (g->round_last == c)
            g->round_last = previous;
        c->next = NULL;
        c->in_round = false;
        return;
    }
}

static void round_rotate(struct sim_gpu *g) {
    struct sim_channel *c = g->round;
    if (c->next) {
        g->round = c->next;
        g->round_last->next = c;
        g->round_last = c;
        c->next = NULL;
    }
    g->slice_left = slice_of(g);
}

static void channel_add_ready(struct sim_channel *c, struct sim_queue *q) {
    q->next_ready = NULL;
    if (c->ready)
        c->ready_last->next_ready = q;
    else
        c->ready = q;
    c->ready_last = q;
    if (!c->in_round)
        round_append(c->gpu, c);
}

/* The channel stays in the round: what follows at once runs in the same slice. */
static void channel_pop_ready(struct sim_channel *c) {
    c->ready = c->ready->next_ready;
    if (!c->ready)
        c->ready_last = NULL;
}

/* -- queues ---------------------------------------------------------------------------------- */

static void set_blocked(struct sim_queue *q, bool blocked) {
    if (q->blocked == blocked)
        return;
    q->blocked = blocked;
    if (blocked)
        q->session->nblocked++;
    else
        q->session->nblocked--;
}

static void complete_head(struct sim_queue *q) {
    struct sim_session *s = q->session;
    struct sim_work_item *item = q->head;
    q->head = item->next;
    if (!q->head)
        q->tail = NULL;
    free(item);
    s->nitems--;
    s->progressed = true;
    q->done++;
    if (!s->ring)
        return;
    atomic_store(&s->ring->queue[q->id].done, q->done);
    if (atomic_exchange(&s->ring->queue[q->id].waiters, 0))
        sim_wake(&s->ring->queue[q->id].done);
}

static bool may_pass(const struct sim_queue *q) {
    const struct sim_work_item *item = q->head;
    if (item->kind == SIM_HOLD)
        return q->session->ring &&
               atomic_load(&q->session->ring->queue[q->id].released) != q->released;
    if (item->kind == SIM_AWAIT) {
        const struct sim_shared_event *e = q->session->event[item->slot];
        return !e || e->passed >= item->a;
    }
    const struct sim_queue *other = q->session->queue[item->slot];
    return other && other->done >= item->a;
}

/* Completes what takes no time; stops at a kernel (made ready) or where it has to wait. */
static void queue_step(struct sim_queue *q, uint64_t now) {
    struct sim_session *s = q->session;
    set_blocked(q, false);
    while (q->head) {
        struct sim_work_item *item = q->head;
        struct sim_channel *c = session_channel(s, item->minor);
        if (item->kind == SIM_KERNEL && c && !s->broken[item->minor]) {
            channel_add_ready(c, q);
            return;
        }
        if (item->kind == SIM_MARK && s->ring)
            atomic_store(&s->ring->marks[item->slot], now);
        if (item->kind == SIM_SIGNAL && s->event[item->slot])
            shared_event_pass(s->machine, s->event[item->slot], item->a);
        if (item->kind == SIM_WAIT || item->kind == SIM_HOLD || item->kind == SIM_AWAIT) {
            if (!may_pass(q)) {
                set_blocked(q, true);
                return;
            }
            if (item->kind == SIM_HOLD)
                q->released++;
        }
        complete_head(q);
    }
}

/* A completion may let other queues of the session go on, and those again others. */
static void complete_entries(struct sim_session *s, uint64_t now) {
    bool moved = s->nblocked > 0;
    while (moved) {
        moved = false;
        for (uint32_t i = 0; i < SIM_QUEUES && s->nblocked > 0; i++) {
            struct sim_queue *q = s->queue[i];
            if (!q || !q->blocked || !may_pass(q))
                continue;
            queue_step(q, now);
            moved = true;
        }
    }
}

/* -- the GPU --------------------------------------------------------------------------------- */

/* `c`: the client that used the time; NULL: the card itself. */
static void count_busy_time(struct sim_gpu *g, struct sim_channel *c, uint64_t ns) {
    meter_add(&g->meter, g->now, g->now + ns);
    if (c)
        meter_add(&c->meter, g->now, g->now + ns);
    g->now += ns;
    atomic_store_explicit(&g->page->busy_ns, g->meter.total, memory_order_relaxed);
}

/* Loads the context of the round's first channel; true when that took the time up to `until`. */
static bool gpu_switch(struct sim_gpu *g, uint64_t until) {
    if (g->last != g->round) {
        g->switch_left = g->last ? g->switch_ns : 0;
        g->last = g->round;
    }
    if (g->switch_left == 0)
        return false;
    uint64_t run = until - g->now < g->switch_left ? until - g->now : g->switch_left;
    count_busy_time(g, NULL, run);
    g->switch_left -= run;
    g->switching += run;
    return g->now == until;
}

/* Runs the GPU's first kernel until it ends, its slice ends, or `until` is reached. */
static void gpu_step(struct sim_gpu *g, uint64_t until) {
    if (gpu_switch(g, until))
        return;
    struct sim_channel *c = g->round;
    struct sim_queue *q = c->ready;
    bool contended = c->next;
    uint64_t run = until - g->now;
    if (run > q->head->a)
        run = q->head->a;
    if (contended && run > g->slice_left)
        run = g->slice_left;
    count_busy_time(g, c, run);
    q->head->a -= run;
    if (contended)
        g->slice_left -= run;
    if (q->head->a == 0) {
        channel_pop_ready(c);
        complete_head(q);
        queue_step(q, g->now);
        complete_entries(q->session, g->now);
    }
    if (!c->ready)
        round_remove(g, c);
    else if (contended && g->slice_left == 0)
        round_rotate(g);
}

static void gpu_advance(struct sim_gpu *g, uint64_t until) {
    while (g->round && g->now < until)
        gpu_step(g, until);
    if (g->now < until)
        g->now = until;
    atomic_store_explicit(&g->page->clock_ns, g->now, memory_order_relaxed);
}

static uint64_t gpu_next(const struct sim_gpu *g) {
    const struct sim_channel *c = g->round;
    if (!c)
        return ENGINE_NEVER;
    uint64_t left = c->ready->head->a;
    if (c->next && g->slice_left < left)
        left = g->slice_left;
    left += c != g->last && g->last ? g->switch_ns : g->switch_left;
    return g->now > ENGINE_NEVER - left ? ENGINE_NEVER : g->now + left;
}

/* -- rings ----------------------------------------------------------------------------------- */

static struct sim_queue *session_queue(struct sim_session *s, uint16_t id) {
    if (!s->queue[id]) {
        struct sim_queue *q = calloc(1, sizeof(*q));
        if (!q)
            return NULL;
        q->session = s;
        q->id = id;
        s->queue[id] = q;
    }
    return s->queue[id];
}

static bool entry_valid(const struct sim_session *s, const struct sim_entry *e) {
    if (e->queue >= SIM_QUEUES || e->minor >= s->machine->nunits || !session_attached(s, e->minor))
        return false;
    switch (e->kind) {
    case SIM_KERNEL:
        return !s->machine->gpu[e->minor].division;
    case SIM_HOLD:
        return true;
    case SIM_MARK:
        return e->slot < SIM_MARKS;
    case SIM_WAIT:
        return e->slot < SIM_QUEUES;
    case SIM_SIGNAL:
    case SIM_AWAIT:
        return e->slot < SIM_SHARED_EVENTS;
    default:
        return false;
    }
}

static void take_entry(struct sim_session *s, const struct sim_entry *e, uint64_t now) {
    if (!entry_valid(s, e))
        return;
    struct sim_gpu *g = &s->machine->gpu[e->minor];
    gpu_advance(g, e->time < now ? e->time : now);
    struct sim_queue *q = session_queue(s, e->queue);
    struct sim_work_item *item = q ? calloc(1, sizeof(*item)) : NULL;
    if (!item)
        return;
    item->kind = e->kind;
    item->minor = e->minor;
    item->slot = e->slot;
    item->a = e->a;
    s->nitems++;
    bool idle = !q->head;
    if (idle)
        q->head = item;
    else
        q->tail->next = item;
    q->tail = item;
    if (!idle)
        return;
    uint64_t before = q->done;
    queue_step(q, g->now);
    if (q->done != before)
        complete_entries(s, g->now);
}

static void take_entries(struct sim_session *s, uint64_t now) {
    struct sim_ring *ring = s->ring;
    s->progressed = false;
    complete_entries(s, now); /* a host function may have returned */
    uint32_t tail = atomic_load(&ring->tail);
    uint32_t start = s->head;
    if (tail - s->head > SIM_RING_SIZE)
        s->head = tail - SIM_RING_SIZE; /* a client that writes nonsense loses entries */
    while (s->head != tail && s->nitems < SIM_RING_SIZE) {
        struct sim_entry e = ring->entries[s->head % SIM_RING_SIZE];
        s->head++;
        take_entry(s, &e, now);
    }
    if (s->head == start)
        return;
    atomic_store(&ring->head, s->head);
    if (atomic_exchange(&ring->room_wanted, 0))
        sim_wake(&ring->head);
}

static bool session_pending(const struct sim_session *s) {
    if (!s->ring || atomic_load(&s->ring->tail) == s->head)
        return false;
    return s->nitems < SIM_RING_SIZE || s->progressed;
}

/* What one process has passed may let others go on; true when it has. */
static bool settle_all(struct sim_machine *m, uint64_t now) {
    if (!m->event_passed)
        return false;
    m->event_passed = false;
    for (struct sim_session *s = m->sessions; s; s = s->next)
        complete_entries(s, now);
    return true;
}

uint64_t engine_run(struct sim_machine *m, uint64_t now) {
    int rounds = 0;
    do {
        for (struct sim_session *s = m->sessions; s; s = s->next)
            if (s->ring)
                take_entries(s, now);
        for (uint32_t i = 0; i < m->nunits; i++)
            if (m->gpu[i].page)
                gpu_advance(&m->gpu[i], now);
    } while ((settle_all(m, now) || engine_pending(m)) && ++rounds < ROUNDS_MAX);
    if (rounds == ROUNDS_MAX)
        return now;
    uint64_t next = ENGINE_NEVER;
    for (uint32_t i = 0; i < m->nunits; i++) {
        uint64_t t = gpu_next(&m->gpu[i]);
        if (t < next)
            next = t;
    }
    return next;
}

void engine_set_bells(struct sim_machine *m, bool need) {
    for (struct sim_session *s = m->sessions; s; s = s->next)
        if (s->ring)
            atomic_store(&s->ring->need_bell, need);
}

bool engine_pending(const struct sim_machine *m) {
    for (const struct sim_session *s = m->sessions; s; s = s->next)
        if (session_pending(s))
            return true;
    return false;
}

/* -- ends ------------------------------------------------------------------------------------ */

void engine_stop_channel(struct sim_channel *c) {
    if (c->in_round)
        round_remove(c->gpu, c);
    if (c->gpu->last == c)
        c->gpu->last = NULL;
    /* Kernels for a device that is gone complete at once, so that no waiter hangs. */
    struct sim_queue *q = c->ready;
    c->ready = c->ready_last = NULL;
    while (q) {
        struct sim_queue *next = q->next_ready;
        complete_head(q);
        queue_step(q, c->gpu->now);
        q = next;
    }
    complete_entries(c->session, c->gpu->now);
}

void engine_drop_channel(struct sim_channel *c) {
    c->session->channel[c->gpu - c->session->machine->gpu] = NULL;
    engine_stop_channel(c);
}

void engine_drop_session(struct sim_session *s) {
    for (uint32_t i = 0; i < SIM_QUEUES; i++) {
        struct sim_queue *q = s->queue[i];
        if (!q)
            continue;
        while (q->head) {
            struct sim_work_item *next = q->head->next;
            /* The record never comes: waiters in other processes go on. */
            if (q->head->kind == SIM_SIGNAL && s->event[q->head->slot])
                shared_event_pass(s->machine, s->event[q->head->slot], q->head->a);
            free(q->head);
            q->head = next;
        }
        free(q);
        s->queue[i] = NULL;
    }
}
