/* SPDX-License-Identifier: Apache-2.0 */

/* The clock, and waiting for a word of memory to change. */

#include <time.h>

#include "intercept/compute/throttle_state.h"

uint64_t throttle_clock(void) {
    struct timespec t = {0, 0};

    (void) clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t) t.tv_sec * 1000000000u + (uint64_t) t.tv_nsec;
}

void throttle_sleep(const uint32_t *word, uint32_t value, uint64_t ns, bool shared) {
    struct timespec t = {.tv_sec = (time_t) (ns / 1000000000u),
                         .tv_nsec = (long) (ns % 1000000000u)};

    (void) syscall(SYS_futex, word, shared ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE, value,
                   ns == UINT64_MAX ? NULL : &t, NULL, 0);
}

void throttle_wake(uint32_t *word, bool shared) {
    (void) syscall(SYS_futex, word, shared ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL,
                   0);
}
