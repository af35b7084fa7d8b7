/* SPDX-License-Identifier: Apache-2.0 */
#include "place/workload/workload.h"

#include <stdlib.h>
#include <string.h>

#include "model/dialect.h"

#define CORE_OF_MEMORY 25 /* percent: a share of memory only, of cards of unknown size */
#define CPU_MAX 100000000
#define NEWS 4       /* a quarter more than was known is news */
#define YOUNG 16     /* arrivals before anything is concluded */
#define STEADY 32768 /* arrivals between two passes over a full histogram */

void workload_init(struct workload *w) {
    memset(w, 0, sizeof(*w));
}

static uint64_t mix_hash(uint64_t h, uint64_t value) {
    h = (h ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}

static uint32_t slot_of(const struct place_shape *s) {
    uint64_t h = mix_hash(mix_hash(mix_hash(1, s->models), s->memory), s->cpu);
    return (uint32_t) (mix_hash(h, (uint64_t) s->cards << 8 | s->core) >> 32) % WORKLOAD_INDEX;
}

static bool same_shape(const struct place_shape *a, const struct place_shape *b) {
    return a->models == b->models && a->memory == b->memory && a->cpu == b->cpu &&
           a->cards == b->cards && a->core == b->core;
}

uint64_t workload_milli(const struct place_shape *s) {
    uint32_t core = s->core == 0 && s->memory > 0 ? CORE_OF_MEMORY : s->core;
    return (uint64_t) s->cards * core * 10;
}

/* The position of the shape in the index, or the empty one for it. */
static uint32_t find_index(const struct workload *w, const struct place_shape *shape) {
    uint32_t at = slot_of(shape);
    while (w->index[at] != 0 && !same_shape(&w->shapes[w->index[at] - 1].shape, shape))
        at = (at + 1) % WORKLOAD_INDEX;
    return at;
}

static void tally(struct workload *w, const struct place_shape *shape, uint32_t count) {
    w->total += count;
    w->milli += workload_milli(shape) * count;
    w->by_cards[shape->cards] += count;
}

static void add_count(struct workload *w, const struct place_shape *shape, uint32_t count) {
    uint32_t at = find_index(w, shape);
    if (w->index[at] == 0) {
        w->shapes[w->n] = (struct workload_count){*shape, 0};
        w->index[at] = (uint16_t) ++w->n;
    }
    w->shapes[w->index[at] - 1].count += count;
    tally(w, shape, count);
}

/* Halves all counts; shapes that were seen once are forgotten. */
static void halve_counts(struct workload *w) {
    uint32_t n = w->n, fresh = w->fresh;
    w->n = w->total = 0;
    w->milli = 0;
    memset(w->by_cards, 0, sizeof(w->by_cards));
    memset(w->index, 0, sizeof(w->index));
    for (uint32_t i = 0; i < n; i++) {
        struct workload_count c = w->shapes[i];
        if (c.count > 1)
            add_count(w, &c.shape, c.count / 2);
    }
    w->fresh = fresh;
}

static struct place_shape in_range(const struct place_shape *shape) {
    struct place_shape s = *shape;
    if (s.cards > WORKLOAD_CARDS_MAX)
        s.cards = WORKLOAD_CARDS_MAX;
    if (s.core > CORE_PER_CARD)
        s.core = CORE_PER_CARD;
    if (s.cpu > CPU_MAX)
        s.cpu = CPU_MAX;
    if (s.cards == 0)
        s = (struct place_shape){.models = WORKLOAD_ANY_MODEL, .cpu = s.cpu};
    return s;
}

void workload_add_count(struct workload *w, const struct place_shape *shape, uint32_t count) {
    struct place_shape s = in_range(shape);
    while (w->total >= WORKLOAD_FULL ||
           (w->n == WORKLOAD_SHAPES_MAX && w->index[find_index(w, &s)] == 0))
        halve_counts(w);
    add_count(w, &s, count);
    w->fresh += count;
}

void workload_add(struct workload *w, const struct place_shape *shape) {
    workload_add_count(w, shape, 1);
}

bool workload_is_news(const struct workload *w) {
    uint32_t known = w->total > w->fresh ? w->total - w->fresh : 0;
    if (w->fresh == 0 || w->total < YOUNG)
        return false;
    return known < YOUNG || (uint64_t) w->fresh * NEWS >= known || w->fresh >= STEADY;
}

void workload_settled(struct workload *w) {
    w->fresh = 0;
}

/* ---- the most frequent ---- */

struct ranked {
    uint32_t count;
    uint16_t at;
};

static int more_frequent(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    if (x->count != y->count)
        return x->count > y->count ? -1 : 1;
    return (int) x->at - (int) y->at;
}

static void rank(const struct workload *w, struct ranked ret[static WORKLOAD_SHAPES_MAX]) {
    for (uint32_t i = 0; i < w->n; i++)
        ret[i] = (struct ranked){w->shapes[i].count, (uint16_t) i};
    qsort(ret, w->n, sizeof(*ret), more_frequent);
}

uint32_t workload_typical(const struct workload *w, uint32_t percent, uint32_t max,
                          uint16_t ret[]) {
    struct ranked ranked[WORKLOAD_SHAPES_MAX];
    uint64_t sum = 0;
    uint32_t n = 0;
    rank(w, ranked);
    for (; n < w->n && n < max && sum * 100 < (uint64_t) w->total * percent; n++) {
        ret[n] = ranked[n].at;
        sum += ranked[n].count;
    }
    return n;
}
