/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Wakes all, in any process, who sleep on this word of shared memory (the low half of a counter of
 * 64 bits). */
static inline void sim_wake(const volatile void *word) {
    (void) syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}
