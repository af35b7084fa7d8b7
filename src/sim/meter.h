/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Busy time over the last second, in sixths, which is how often the real driver samples. Needs no
 * timer: it is brought forward when somebody adds or asks. Times are nanoseconds of one clock. */

#include <stdint.h>

#define METER_BUCKET_NS 166666667ull
#define METER_BUCKETS 8u

struct meter {
    uint64_t at; /* number of the newest bucket */
    uint64_t busy[METER_BUCKETS];
    uint64_t total;
};

/* The time from `from` to `to` was busy. Calls must not go backwards by more than a bucket. */
void meter_add(struct meter *m, uint64_t from, uint64_t to);

/* Busy nanoseconds of the second before `now`, at most 1e9. */
uint64_t meter_last_second(struct meter *m, uint64_t now);
