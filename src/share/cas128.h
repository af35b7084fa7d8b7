/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Sixteen bytes that change as one. Inline, because the compiler's own 128-bit atomics are calls
 * into libatomic, which a library that depends on libc only cannot have. */

#include <stdbool.h>
#include <stdint.h>

#include "share/ledger_core.h"

#if !defined(__x86_64__)
#error "src/share/cas128.h needs a 16-byte compare-and-swap for this processor (arm64: CASP)"
#endif

/* Replaces *word by `desired` if it equals *expected; otherwise stores what it found in *expected.
 * A full barrier either way. The page must be writable even where nothing changes. */
static inline bool word_swap(struct ledger_word *word, struct ledger_word *expected,
                             struct ledger_word desired) {
    bool swapped;

    __asm__ __volatile__("lock cmpxchg16b %1"
                         : "=@ccz"(swapped), "+m"(*word), "+a"(expected->lo), "+d"(expected->hi)
                         : "b"(desired.lo), "c"(desired.hi)
                         : "memory");
    return swapped;
}

/* Reads the word with the ordering of an acquire, and as a rule without a locked instruction. Every
 * change gives a word a `hi` that it never had before: between two equal reads of `hi` it has not
 * changed. In a file that a tenant scribbles on the result is some value. */
static inline struct ledger_word word_load(struct ledger_word *word) {
    struct ledger_word found;

    found.hi = __atomic_load_n(&word->hi, __ATOMIC_ACQUIRE);
    found.lo = __atomic_load_n(&word->lo, __ATOMIC_ACQUIRE);
    if (__builtin_expect(__atomic_load_n(&word->hi, __ATOMIC_ACQUIRE) != found.hi, 0))
        (void) word_swap(word, &found, found);
    return found;
}
