/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/backends/partition.h"

#include <assert.h>
#include <stdlib.h>

#include "base/cleanup.h"

#define UNKNOWN UINT32_MAX

struct search {
    const struct partition_case *c;
    uint32_t *best; /* by the bits of the devices: sum of the best partition of them */
};

static uint32_t count_of(uint32_t set) {
    return (uint32_t) __builtin_popcount(set);
}

static uint32_t score_of(const struct partition_case *c, uint32_t set) {
    uint32_t sum = 0;

    for (uint32_t a = set; a; a &= a - 1)
        for (uint32_t b = a & (a - 1); b; b &= b - 1)
            sum += c->score[__builtin_ctz(a)][__builtin_ctz(b)];
    return sum;
}

/* The next larger number with as many bits. */
static uint32_t next_set(uint32_t set) {
    assert(set > 0);
    uint32_t low = set & -set, ripple = set + low;

    return ripple | (((set ^ ripple) >> 2) / low);
}

/* The bits of `set` for which `of` has the places. */
static uint32_t spread(uint32_t set, uint32_t of) {
    uint32_t ret = 0;

    for (; set; set >>= 1, of &= of - 1)
        if (set & 1)
            ret |= of & -of;
    return ret;
}

static uint32_t best_of(struct search *s, uint32_t rest);

/* The best partition of `rest` in which a set of n devices has the first one of them. */
static uint32_t best_with(struct search *s, uint32_t rest, uint32_t n) {
    uint32_t first = rest & -rest, others = rest & ~first, best = 0;

    if (n == 1)
        return best_of(s, others);
    for (uint32_t k = (1U << (n - 1)) - 1; k < 1U << count_of(others); k = next_set(k)) {
        uint32_t set = first | spread(k, others);
        uint32_t sum = score_of(s->c, set) + best_of(s, rest & ~set);

        best = sum > best ? sum : best;
    }
    return best;
}

/* One set is smaller where the devices do not divide evenly. */
static uint32_t best_of(struct search *s, uint32_t rest) {
    uint32_t size = s->c->size, left = count_of(rest) % size;
    uint32_t best = 0, sum;

    if (!rest)
        return 0;
    if (s->best[rest] != UNKNOWN)
        return s->best[rest];
    if (left > 0)
        best = best_with(s, rest, left);
    if (count_of(rest) >= size) {
        sum = best_with(s, rest, size);
        best = sum > best ? sum : best;
    }
    s->best[rest] = best;
    return best;
}

uint32_t partition_choose(const struct partition_case *c) {
    uint32_t all = (1U << c->n) - 1, found = 0;
    uint64_t most = 0;
    _cleanup_free_ uint32_t *best = malloc(((size_t) all + 1) * sizeof(*best));
    struct search s = {.c = c, .best = best};

    if (!best || count_of(c->must) > c->size)
        return 0;
    for (uint32_t i = 0; i <= all; i++)
        best[i] = UNKNOWN;
    for (uint32_t set = (1U << c->size) - 1; set <= all; set = next_set(set)) {
        uint64_t value;

        if ((set & c->must) != c->must)
            continue;
        /* Of equal partitions the better set; of equal sets the first one. */
        value = (uint64_t) (score_of(c, set) + best_of(&s, all & ~set)) << 32 | score_of(c, set);
        if (found && value <= most)
            continue;
        found = set;
        most = value;
    }
    return found;
}
