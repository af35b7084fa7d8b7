/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The clocks of the machine as one number. */

#include <stdint.h>
#include <time.h>

/* Nanoseconds since the zero of `clock`: boot for CLOCK_MONOTONIC, 1970 for CLOCK_REALTIME,
 * the start of the thread for CLOCK_THREAD_CPUTIME_ID, which counts its CPU time. */
static inline uint64_t clock_ns(clockid_t clock) {
    struct timespec t = {0};
    (void) clock_gettime(clock, &t);
    return (uint64_t) t.tv_sec * 1000000000 + (uint64_t) t.tv_nsec;
}

static inline uint64_t clock_us(clockid_t clock) {
    return clock_ns(clock) / 1000;
}

static inline uint64_t clock_ms(clockid_t clock) {
    return clock_ns(clock) / 1000000;
}
