/* SPDX-License-Identifier: Apache-2.0 */
#include "intercept/compute/cost.h"

/* Containers get the card in slices; the driver's are between these. */
#define SLICE_MIN_NS 1000000u
#define SLICE_NS 2500000u

/* A batch of at least this length spans slices, and what others took is known well enough; of
 * shorter ones the lowest sample is the better estimate. */
#define LONG_NS 2000000u

/* A batch that took a hundred hours was not measured. */
#define ELAPSED_MAX_NS 360000000000000ull

static struct cost *rest_of(struct cost_table *table) {
    table->rest.key = 1;
    if (table->rest.ns == 0)
        table->rest.ns = COST_UNKNOWN_NS;
    return &table->rest;
}

struct cost *cost_add(struct cost_table *table, uint64_t key) {
    size_t at = (key >> 32) & (COSTS_MAX - 1);

    for (size_t i = 0; i < COSTS_MAX; i++, at = (at + 1) & (COSTS_MAX - 1)) {
        struct cost *cost = &table->cost[at];
        uint64_t found = __atomic_load_n(&cost->key, __ATOMIC_ACQUIRE);

        /* A quarter stays free, so that searches stay short. */
        if (found == 0 &&
            __atomic_load_n(&table->used, __ATOMIC_RELAXED) >= (size_t) COSTS_MAX / 4 * 3)
            return rest_of(table);
        if (found == 0) {
            /* Two threads at the same time write the same value. */
            __atomic_store_n(&cost->ns, COST_UNKNOWN_NS, __ATOMIC_RELAXED);
            if (__atomic_compare_exchange_n(&cost->key, &found, key, false, __ATOMIC_ACQ_REL,
                                            __ATOMIC_ACQUIRE)) {
                __atomic_fetch_add(&table->used, 1, __ATOMIC_RELAXED);
                return cost;
            }
        }
        if (found == key)
            return cost;
    }
    return rest_of(table);
}

void cost_doubt(struct cost *cost) {
    uint32_t samples = __atomic_load_n(&cost->samples, __ATOMIC_RELAXED);

    /* Never back to zero: a program that changes its graph often must not wait for a sample each
     * time. */
    if (samples >= COST_SAMPLES)
        __atomic_store_n(&cost->samples, COST_SAMPLES - 1, __ATOMIC_RELAXED);
    __atomic_store_n(&cost->doubted, 1, __ATOMIC_RELAXED);
}

void batch_add(struct batch *batch, struct cost *cost, uint64_t ns) {
    batch->charged += ns;
    if (batch->n == BATCH_MAX)
        return;
    batch->cost[batch->n] = cost;
    batch->part[batch->n++] = ns;
}

static uint64_t between(uint64_t low, uint64_t value, uint64_t high) {
    if (value < low)
        return low;
    return value > high ? high : value;
}

/* Whether any launch of the batch is of a kind that was measured less often. */
static bool any_below(const struct batch *batch, uint32_t samples) {
    for (uint32_t i = 0; i < batch->n; i++)
        if (__atomic_load_n(&batch->cost[i]->samples, __ATOMIC_RELAXED) < samples)
            return true;
    return false;
}

/* Whether any is of a kind that is not known yet. */
static bool any_unknown(const struct batch *batch) {
    return any_below(batch, COST_SAMPLES);
}

/* What the batch cost, by this sample alone. */
static uint64_t cost_by_sample(const struct batch *batch, const struct sample *sample) {
    /* The first slice and the last belong to this container. */
    uint64_t turns = sample->neighbours + 1ull;
    uint64_t least = (sample->elapsed + (uint64_t) sample->neighbours * SLICE_MIN_NS) / turns;
    uint64_t own = sample->others < sample->elapsed ? sample->elapsed - sample->others : 0;
    uint64_t idle = sample->launching;

    own = between(least < sample->elapsed ? least : sample->elapsed, own, sample->elapsed);
    /* The stream may have been idle between the launches: the charge is taken as right if it fits.
     */
    if (idle > own / 8 && !any_unknown(batch))
        own = between(own > idle ? own - idle : 0, batch->charged, own);
    return own;
}

/* How far the estimate moves towards the sample, in 32nds. `*own` becomes what is to be charged. */
static uint32_t weight(const struct batch *batch, const struct sample *sample, uint64_t *own) {
    uint64_t thought = batch->charged;

    if (any_unknown(batch))
        return 32;
    if (sample->neighbours == 0)
        return 8;
    if (thought >= LONG_NS)
        return 8;
    if (sample->elapsed <= thought) {
        *own = sample->elapsed;
        return any_below(batch, COST_SAMPLES_SETTLED) ? 32 : 8;
    }
    /* The neighbours explain the difference; the estimate still moves, in small steps. */
    if (sample->elapsed <= (thought + SLICE_NS) * (sample->neighbours + 1ull)) {
        *own = between(thought, *own, thought + thought / 2048);
        return 32;
    }
    return 8;
}

static void update_estimate(struct cost *cost, uint64_t part, uint64_t own, uint64_t charged,
                            uint32_t w) {
    uint64_t old = cost_ns(cost);
    double seen = (double) part * (double) own / (double) (charged ? charged : 1);
    double next = (double) old + (seen - (double) old) * w / 32;
    uint32_t samples = __atomic_load_n(&cost->samples, __ATOMIC_RELAXED);
    bool doubted = __atomic_exchange_n(&cost->doubted, 0, __ATOMIC_RELAXED);

    /* The lowest of the first few counts: neighbours and a cold start only add. */
    if (samples > 0 && samples < COST_SAMPLES && next > (double) old && !doubted)
        next = (double) old;
    __atomic_store_n(&cost->ns, next < 100 ? 100 : (uint64_t) next, __ATOMIC_RELAXED);
    if (samples < COST_SAMPLES_SETTLED)
        __atomic_store_n(&cost->samples, samples + 1, __ATOMIC_RELAXED);
}

static bool is_repeated(const struct batch *batch, uint32_t at) {
    for (uint32_t i = 0; i < at; i++)
        if (batch->cost[i] == batch->cost[at])
            return true;
    return false;
}

int64_t cost_learn(struct batch *batch, const struct sample *sample) {
    uint64_t own, charged = batch->charged;
    uint32_t w;

    if (sample->elapsed > ELAPSED_MAX_NS || batch->n == 0)
        return 0;
    own = cost_by_sample(batch, sample);
    /* Work of several streams: how much of it was between the events of one is not known, so only a
     * large deviation counts. */
    if (batch->mixed)
        own = between(own / 4, charged, own * 4);
    w = batch->mixed ? 4 : weight(batch, sample, &own);
    for (uint32_t i = 0; i < batch->n; i++)
        if (!is_repeated(batch, i))
            update_estimate(batch->cost[i], batch->part[i], own, charged, w);
    return (int64_t) (own - charged);
}
