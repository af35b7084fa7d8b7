/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Sixteen bytes that change as one. Inline, because the compiler's own 128-bit atomics are calls
 * into libatomic, which a library that depends on libc only cannot have. */

#include <stdbool.h>
#include <stdint.h>

#include "share/ledger_core.h"

/* Replaces *word by `desired` if it equals *expected; otherwise stores what it found in *expected.
 * A full barrier either way. The page must be writable even where nothing changes. */
static inline bool word_swap(struct ledger_word *word, struct ledger_word *expected,
                             struct ledger_word desired) {
#if defined(__x86_64__)
    bool swapped;

    __asm__ __volatile__("lock cmpxchg16b %1"
                         : "=@ccz"(swapped), "+m"(*word), "+a"(expected->lo), "+d"(expected->hi)
                         : "b"(desired.lo), "c"(desired.hi)
                         : "memory");
    return swapped;
#elif defined(__aarch64__)
    /* CASP of Armv8.1 takes pairs of registers, the first of which has an even number. */
    const struct ledger_word wanted = *expected;
    register uint64_t found_lo __asm__("x0") = wanted.lo;
    register uint64_t found_hi __asm__("x1") = wanted.hi;
    register uint64_t lo __asm__("x2") = desired.lo;
    register uint64_t hi __asm__("x3") = desired.hi;

    __asm__ __volatile__(".arch_extension lse\n\t"
                         "caspal %0, %1, %3, %4, %2"
                         : "+r"(found_lo), "+r"(found_hi), "+Q"(*word)
                         : "r"(lo), "r"(hi)
                         : "memory");
    if (found_lo == wanted.lo && found_hi == wanted.hi)
        return true;
    __atomic_thread_fence(
        __ATOMIC_SEQ_CST); /* one that fails stores nothing, and releases nothing */
    *expected = (struct ledger_word){.lo = found_lo, .hi = found_hi};
    return false;
#else
#error "src/share/cas128.h needs a 16-byte compare-and-swap for this processor"
#endif
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
