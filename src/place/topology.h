/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Links between the cards of a node, and the best connected set of some of them: pure. */

#include <stdbool.h>
#include <stdint.h>

#include "model/gpu_link.h"
#include "place/place.h"

/* Up to this number of candidates all sets are searched; beyond it, a bounded number of steps.
 */
#define TOPOLOGY_EXACT 16
#define TOPOLOGY_STEPS 60000

struct place_topology {
    uint32_t ncards;
    int8_t numa[PLACE_CARDS_MAX]; /* NUMA node of each card; -1: not known */
    /* By size of a set: the weakest link of the best set when all cards are free. */
    uint8_t best[PLACE_CARDS_MAX + 1];
    uint8_t links[]; /* enum gpu_link of cards a and b at [a * ncards + b], the same both ways */
};

/* The size in bytes of a topology of `n` cards. */
size_t topology_size(uint32_t ncards);

/* Fills `best`; the rest is the caller's. */
void topology_finish(struct place_topology *t);

static inline uint8_t topology_link(const struct place_topology *t, uint32_t a, uint32_t b) {
    return t->links[a * t->ncards + b];
}

/* Weakest link between any two of the cards; LINK_UNKNOWN for fewer than two. */
uint8_t topology_weakest(const struct place_topology *t, uint64_t cards);

/* The sets that are acceptable. */
struct topology_search {
    uint64_t candidates;   /* at least `n` of them */
    uint32_t n;            /* cards wanted, at least 1 */
    uint8_t weakest;       /* no link below that */
    bool numa_bind;        /* all on one NUMA node */
    uint64_t far;          /* cards to avoid */
    const uint64_t *costs; /* by card; NULL: all equal */
    uint64_t idle;         /* cards whose links among themselves are worth keeping */
    uint32_t steps;        /* set: number of search steps */
};

/* The best set: strongest weakest link, then most links in sum, then fewest cards to avoid, then
 * least cost, then fewest links cut to the idle cards that are left; 0 if there is none. */
uint64_t topology_pick(const struct place_topology *t, struct topology_search *search);
