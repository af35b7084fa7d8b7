/* SPDX-License-Identifier: Apache-2.0 */
#include "card-world.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define NEVER UINT64_MAX

/* A thread that sleeps is woken so much late. */
#define LATE_NS (80 * US)

#define END_EVENT MEASURES_MAX

struct world *world_new(void) {
    struct world *world = calloc(1, sizeof(*world));

    assert(world);
    world->now = SEC;
    world->slice_ns = 2 * MS;
    world->idle = true;
    world->random = 88172645463325252ull;
    return world;
}

void world_free(struct world *world) {
    for (int i = 0; i < world->processes; i++) {
        free(world->process[i]->costs);
        free(world->process[i]);
    }
    free(world);
}

int world_tenant(struct world *world, enum share_policy policy, uint32_t share, uint32_t weight) {
    struct arbitration_tenant *tenant = &world->tenant[world->tenants];

    assert(world->tenants < PROGRAMS_MAX);
    tenant->policy = policy;
    tenant->share_percent = share;
    tenant->weight = weight;
    return world->tenants++;
}

struct process *world_process(struct world *world, int tenant, const struct program *program) {
    struct process *p = calloc(1, sizeof(*p));

    assert(p && world->processes < PROGRAMS_MAX);
    p->program = *program;
    p->program.container = tenant;
    p->costs = calloc(1, sizeof(*p->costs));
    p->meter.costs = p->costs;
    p->meter.account.shared = &world->account[tenant];
    p->meter.account.grants = &world->own_grants[tenant];
    p->meter.account.grant = &world->own_grants[tenant].device[0];
    p->meter.own_rate = world->tenant[tenant].share_percent * 10000;
    p->wake_ns = world->now + program->start_ns;
    world->process[world->processes++] = p;
    return p;
}

static uint64_t draw(struct world *world) {
    world->random ^= world->random << 13;
    world->random ^= world->random >> 7;
    world->random ^= world->random << 17;
    return world->random;
}

static void push(struct process *p, bool event, uint64_t ns) {
    assert(p->tail - p->head < ITEMS_MAX);
    p->items[p->tail++ % ITEMS_MAX] = (struct item){event, ns};
}

static void wake_results(struct process *p, uint64_t now) {
    if (!p->waits_result)
        return;
    p->waits_result = false;
    p->wake_ns = now + LATE_NS;
}

/* Passes the events at the head of the queue. */
static void pass_events(struct world *world, struct process *p) {
    while (p->head < p->tail && p->items[p->head % ITEMS_MAX].event) {
        uint64_t which = p->items[p->head++ % ITEMS_MAX].ns;

        if (which < END_EVENT) {
            p->begin[which] = world->now;
        } else {
            int at = (int) (which - END_EVENT);

            p->end[at] = world->now;
            meter_done(&p->meter, at, p->end[at] - p->begin[at], world->now);
            wake_results(p, world->now);
        }
    }
}

static bool has_work(const struct process *p) {
    return p->head < p->tail;
}

/* Gives the card to the next process with work for it, or to none. */
static void choose(struct world *world) {
    int n = world->processes, last = world->on_card;

    for (int i = 1; i <= n; i++) {
        int next = (last + i + n) % n;
        struct process *p = world->process[next];

        pass_events(world, p);
        if (!has_work(p))
            continue;
        world->card_free = world->now + (next != last ? world->switch_ns : 0);
        world->slice_end = world->card_free + world->slice_ns;
        world->on_card = next;
        world->idle = false;
        return;
    }
    world->idle = true;
}

/* When the card does something next by itself. */
static uint64_t card_next(const struct world *world) {
    const struct process *p = world->process[world->on_card];
    uint64_t end;

    if (world->idle)
        return NEVER;
    end = world->card_free + p->items[p->head % ITEMS_MAX].ns;
    return end < world->slice_end ? end : world->slice_end;
}

static void launch_ended(struct world *world, struct process *p) {
    p->in_flight--;
    if (p->phase == BLOCKED &&
        (p->program.depth > 1 && !p->program.pause_ns ? p->in_flight < p->program.depth
                                                      : p->in_flight == 0)) {
        p->phase = NEXT;
        p->wake_ns = world->now + 20 * US + (p->kind ? 0 : p->program.pause_ns);
    }
}

/* Lets the card run to `now`; the head's work is shortened by what ran. */
static void run_card(struct world *world, uint64_t now) {
    struct process *p = world->process[world->on_card];

    world->now = now;
    if (world->idle)
        return;
    if (now > world->card_free) {
        struct item *item = &p->items[p->head % ITEMS_MAX];
        uint64_t ran = now - world->card_free;

        assert(!item->event && ran <= item->ns);
        item->ns -= ran;
        p->ran += ran;
        world->card_free = now;
        if (item->ns == 0) {
            p->head++;
            pass_events(world, p);
            launch_ended(world, p);
        }
    }
    if (!has_work(p) || now >= world->slice_end)
        choose(world);
}

static void submit(struct world *world, struct process *p) {
    int at = -1;

    if (p->phase == ENTER) {
        at = meter_opens(&p->meter, &p->launch, false);
        if (at >= 0) {
            push(p, true, (uint64_t) at);
            meter_opened(&p->meter, at, &p->launch, world->now);
        }
    }
    push(p, false, p->work_ns);
    p->in_flight++;
    p->launched++;
    if (p->phase == ENTER) {
        at = meter_launched(&p->meter, &p->launch, world->now);
        if (at >= 0) {
            push(p, true, END_EVENT + (uint64_t) at);
            meter_closed(&p->meter, at);
        }
    }
    p->kind = p->kind + 1 < KINDS_MAX && p->program.kind_ns[p->kind + 1] ? p->kind + 1 : 0;
}

/* Who waits ends the batch first. */
static void end_batch(struct process *p) {
    int at = meter_ends(&p->meter, p->launch.stream);

    if (at >= 0) {
        push(p, true, END_EVENT + (uint64_t) at);
        meter_closed(&p->meter, at);
    }
}

static void block(struct process *p) {
    end_batch(p);
    p->phase = BLOCKED;
    p->wake_ns = NEVER;
}

static void after_launch(struct world *world, struct process *p) {
    bool round_ends = p->program.pause_ns && p->kind == 0;

    if (p->wait_since && world->now - p->wait_since > p->longest_wait)
        p->longest_wait = world->now - p->wait_since;
    p->wait_since = 0;
    p->phase = NEXT;
    p->wake_ns = world->now + p->program.host_ns;
    if (p->in_flight >= p->program.depth || round_ends)
        block(p);
}

/* A tenant that knows when it is measured: a known kind, no batch open and none due. */
static bool unseen(const struct process *p, uint64_t key) {
    const struct cost *cost = cost_find(p->costs, key);

    return cost->samples >= COST_SAMPLES && !p->meter.open &&
           p->meter.charged + 2 * cost_ns(cost) < p->meter.due;
}

static void step_thread(struct world *world, struct process *p) {
    uint64_t stop = p->program.stop_ns ? SEC + p->program.stop_ns : NEVER;

    p->waits_time = p->waits_result = false;
    if (p->phase == NEXT) {
        uint64_t ns = p->program.kind_ns[p->kind], spread = ns * p->program.jitter_percent / 100;
        uint64_t key = cost_key(4096u + (uint64_t) p->kind * 64, 1, 1);
        int streams = p->program.streams ? p->program.streams : 1;

        if (world->now >= stop) {
            p->phase = ENDED;
            p->wake_ns = NEVER;
            return;
        }
        if (p->program.lie_ns && unseen(p, key))
            ns = p->program.lie_ns;
        p->work_ns = spread ? ns - spread + draw(world) % (2 * spread) : ns;
        p->launch.stream = 1 + p->launched % (uint64_t) streams;
        p->wait_since = world->now;
        if (meter_charge(&p->meter, cost_find(p->costs, key), &p->launch)) {
            submit(world, p);
            after_launch(world, p);
            return;
        }
        p->phase = ENTER;
    }
    if (p->phase == ENTER) {
        uint64_t wait;
        bool ring;
        enum meter_verdict verdict = meter_enter(&p->meter, &p->launch, world->now, &wait, &ring);

        if (ring)
            world->step_ns = world->now;
        if (verdict != METER_GO)
            end_batch(p);
        p->waits_time = verdict == METER_WAIT_TIME;
        p->waits_result = verdict == METER_WAIT_RESULT;
        p->wake_ns = world->now + wait + LATE_NS;
        if (verdict == METER_GO) {
            submit(world, p);
            after_launch(world, p);
        }
    }
}

static void step_arbiter(struct world *world) {
    if (world->driver_figures && world->now >= world->driver_ns) {
        world->driver_ns = world->now + SEC;
        for (int i = 0; i < world->tenants; i++)
            world->tenant[i].driver_ns = 1 + world_ran(world, i);
    }
    for (int i = 0; i < world->tenants; i++) {
        struct compute_device *account = &world->account[i];

        world->tenant[i].usage = (struct compute_usage){.charged = account->charged,
                                                        .held = account->held,
                                                        .waits = account->waits,
                                                        .running = account->running,
                                                        .longest = account->longest};
    }
    world->step_ns =
        world->now + arbitration_step(world->tenant, (size_t) world->tenants, world->now);
    for (int i = 0; i < world->tenants; i++) {
        const struct compute_grant *grant = &world->tenant[i].grant;
        struct grant_device *line = &world->own_grants[i].device[0];
        bool moved = line->rate != grant->rate || line->depth != grant->depth;

        world->account[i].charged += world->tenant[i].unpaid_ns;
        world->own_grants[i].beat++;
        line->rate = grant->rate;
        line->depth = grant->depth;
        line->window = grant->window;
        line->others = grant->others;
        line->others_at = grant->others_at;
        line->others_rate = grant->others_rate;
        line->neighbours = grant->neighbours;
        for (int k = 0; moved && k < world->processes; k++)
            if (world->process[k]->program.container == i && world->process[k]->waits_time)
                world->process[k]->wake_ns = world->now + LATE_NS;
    }
}

/* The helper thread's beat, while work is on the card. */
static void beat_running(struct world *world) {
    for (int i = 0; i < world->processes; i++)
        if (meter_oldest(&world->process[i]->meter) >= 0)
            world->account[world->process[i]->program.container].running++;
}

void world_run(struct world *world, uint64_t until_ns) {
    uint64_t until = SEC + until_ns;

    while (world->now < until) {
        uint64_t next = card_next(world);

        if (!world->no_arbiter && world->step_ns < next)
            next = world->step_ns;
        for (int i = 0; i < world->processes; i++)
            if (world->process[i]->wake_ns < next)
                next = world->process[i]->wake_ns;
        if (next > until)
            next = until;
        if (next < world->now)
            next = world->now;
        run_card(world, next);
        for (int i = 0; i < world->processes; i++)
            if (world->process[i]->wake_ns <= world->now)
                step_thread(world, world->process[i]);
        if (!world->no_arbiter && world->step_ns <= world->now) {
            beat_running(world);
            step_arbiter(world);
        }
        if (world->idle)
            choose(world);
    }
}

uint64_t world_ran(const struct world *world, int tenant) {
    uint64_t ran = 0;

    for (int i = 0; i < world->processes; i++)
        if (world->process[i]->program.container == tenant)
            ran += world->process[i]->ran;
    return ran;
}
