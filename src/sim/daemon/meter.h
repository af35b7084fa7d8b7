/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Busy time by periods, as the real driver samples it: a reader sees the last complete period until
 * the next one is complete. Needs no timer: each addition and each reading advances it. Times are
 * nanoseconds of one clock. */

#include <stdint.h>

#define METER_PERIOD_NS 166666667ull /* where none is set: a sixth of a second */
#define METER_PERIODS 32u

struct meter {
    uint64_t period_ns; /* 0: METER_PERIOD_NS; set before first use */
    uint64_t at;        /* number of the newest period */
    uint64_t busy[METER_PERIODS];
    uint64_t total;
};

/* The time from `from` to `to` was busy. Calls must not go backwards by more than a period. */
void meter_add(struct meter *m, uint64_t from, uint64_t to);

/* The end of the last complete period at `now`. */
uint64_t meter_edge(const struct meter *m, uint64_t now);

/* Percent busy, rounded, of the period that ended at `edge`; 0 for periods too long past. */
uint32_t meter_percent(struct meter *m, uint64_t now, uint64_t edge);
