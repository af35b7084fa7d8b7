/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a container should ask of each of its cards, from what it was seen to use. No I/O. */

#include <stdbool.h>
#include <stdint.h>

#define ADVICE_UNKNOWN UINT64_MAX

struct advice_figures {
    uint64_t asks_core, asks_memory; /* percent of a card, 0: no guarantee; bytes */
    uint64_t memory;                 /* the most bytes that were seen, or ADVICE_UNKNOWN */
    double core;      /* the most percent of a card that a step took; below 0: not known */
    double throttled; /* part of the time that it waited for GPU time, 0 to 1; below 0: not known */
    bool refused;     /* memory was refused to it */
};

struct advice {
    uint64_t core, memory; /* percent, bytes; ADVICE_UNKNOWN: nothing can be said */
};

/* `headroom`: 0.2 for a fifth more than was seen. Never less than what was seen, rounded up: memory
 * to 256 MiB, from 4 GiB on to 1 GiB; compute to 5 percent, above it to tens, 100 at most. More
 * memory than it asks only where some was refused. Throttled for 5 % of the time and more, it gets
 * at least that part more compute than it asks. */
struct advice advice_make(const struct advice_figures *figures, double headroom);

/* What all holders free together that ask so much and would ask so little. */
static inline uint64_t advice_freed(uint64_t asks, uint64_t advised) {
    return advised != ADVICE_UNKNOWN && advised < asks ? asks - advised : 0;
}
