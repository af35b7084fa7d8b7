/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A mutex of one word, all zero when free. It lives in memory that a forked child finds zeroed, so
 * a child never inherits a lock that a thread of its parent held. */

#include <linux/futex.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

struct lock {
    uint32_t word; /* 0 free, 1 held, 2 held and waited for */
};

static inline void lock_take(struct lock *lock) {
    uint32_t seen = 0;

    if (__builtin_expect(__atomic_compare_exchange_n(&lock->word, &seen, 1, false, __ATOMIC_ACQUIRE,
                                                     __ATOMIC_RELAXED),
                         1))
        return;
    while (__atomic_exchange_n(&lock->word, 2, __ATOMIC_ACQUIRE) != 0)
        (void) syscall(SYS_futex, &lock->word, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
}

static inline void lock_drop(struct lock *lock) {
    if (__atomic_exchange_n(&lock->word, 0, __ATOMIC_RELEASE) == 2)
        (void) syscall(SYS_futex, &lock->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
