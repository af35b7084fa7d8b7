/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Wakes all threads of any process that wait on this futex word in shared memory (the low half of a
 * 64-bit counter). */
static inline void sim_wake(const volatile void *word) {
    (void) syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}
