/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The cost of launches in ns of the card's time, learned from batches of launches between two
 * events on a stream. Only arithmetic, as account.h. The time between the events is not the cost of
 * the batch: the card may have run other containers (time slices), or been idle before the next
 * launch. The first is known from the time that the arbiter saw the others take, and bounded: with
 * n neighbours, a batch gets at least 1/(n+1) of the time. The second is bounded by the time of the
 * launch calls. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One kind of launch: a function with its grid, or a graph. */
struct cost {
    uint64_t key; /* 0: free */
    uint64_t ns;
    uint32_t samples;
    uint32_t measuring; /* batches with it that are under way */
    uint32_t doubted;   /* the next sample counts alone */
};

/* A power of two. What comes when the table is full shares one entry. */
#define COSTS_MAX 8192

struct cost_table {
    uint64_t used;
    struct cost rest;
    struct cost cost[COSTS_MAX];
};

/* What a launch is charged before anything is known about it. */
#define COST_UNKNOWN_NS 50000u

/* How many measurements a kind of launch needs before it counts as known. */
#define COST_SAMPLES 3u

/* Until a kind has this many samples, its estimate follows a lower one at once: the first ones may
 * be far too high, because neighbours ran meanwhile. */
#define COST_SAMPLES_SETTLED 64u

/* The key of a launch: never 0. */
static inline uint64_t cost_key(uint64_t handle, uint64_t grid, uint64_t block) {
    uint64_t key = handle * 0x9e3779b97f4a7c15ull;

    key = (key ^ grid) * 0xff51afd7ed558ccdull;
    key = (key ^ (key >> 32) ^ block) * 0xc4ceb9fe1a85ec53ull;
    return key | 1;
}

/* Adds the kind, or finds it. */
struct cost *cost_add(struct cost_table *table, uint64_t key);

static inline struct cost *cost_find(struct cost_table *table, uint64_t key) {
    struct cost *cost = &table->cost[(key >> 32) & (COSTS_MAX - 1)];

    if (__builtin_expect(__atomic_load_n(&cost->key, __ATOMIC_ACQUIRE) == key, 1))
        return cost;
    return cost_add(table, key);
}

/* The charge of a launch of this kind now. */
static inline uint64_t cost_ns(const struct cost *cost) {
    return __atomic_load_n(&cost->ns, __ATOMIC_RELAXED);
}

/* A graph was changed: its estimate is only a first guess now. */
void cost_doubt(struct cost *cost);

#define BATCH_MAX 64

/* Launches that are measured together. */
struct batch {
    uint64_t charged; /* ns */
    uint32_t n;
    bool mixed; /* launches went to other streams meanwhile */
    struct cost *cost[BATCH_MAX];
    uint64_t part[BATCH_MAX];
};

void batch_add(struct batch *batch, struct cost *cost, uint64_t ns);

/* A measurement of a batch. */
struct sample {
    uint64_t elapsed;    /* ns between its events */
    uint64_t others;     /* ns that other containers took meanwhile */
    uint32_t neighbours; /* how many of them wanted the card */
    uint64_t launching;  /* ns from the first launch to the last */
};

/* Learns from a batch; returns by how much it was charged too little (negative: too much). */
int64_t cost_learn(struct batch *batch, const struct sample *sample);
