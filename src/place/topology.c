/* SPDX-License-Identifier: Apache-2.0 */
#include "place/topology.h"

#include <string.h>

size_t topology_size(uint32_t ncards) {
    return sizeof(struct place_topology) + (size_t) ncards * ncards;
}

uint8_t topology_weakest(const struct place_topology *t, uint64_t cards) {
    uint8_t weakest = UINT8_MAX;
    for (uint32_t a = 0; a < t->ncards; a++)
        for (uint32_t b = a + 1; b < t->ncards; b++)
            if ((cards >> a & 1) && (cards >> b & 1) && topology_link(t, a, b) < weakest)
                weakest = topology_link(t, a, b);
    return weakest == UINT8_MAX ? LINK_UNKNOWN : weakest;
}

/* ---- the search ---- */

/* How good a set is. */
struct merit {
    uint32_t weakest, sum, far;
    uint64_t cost;
    uint32_t cut;
};

struct walk {
    const struct place_topology *t;
    struct topology_search *search;
    uint32_t ncards;
    uint8_t cards[PLACE_CARDS_MAX]; /* the candidates */
    uint8_t strongest;              /* link between any of them */
    uint8_t chosen[PLACE_CARDS_MAX];
    struct merit best;
    uint64_t found;
};

static uint32_t cut_of(const struct walk *w, uint64_t set) {
    uint32_t cut = 0;
    for (uint64_t in = set; in; in &= in - 1)
        for (uint64_t out = w->search->idle & ~set; out; out &= out - 1)
            cut += topology_link(w->t, (uint32_t) __builtin_ctzll(in),
                                 (uint32_t) __builtin_ctzll(out));
    return cut;
}

static bool better(const struct merit *a, const struct merit *b) {
    if (a->weakest != b->weakest)
        return a->weakest > b->weakest;
    if (a->sum != b->sum)
        return a->sum > b->sum;
    if (a->far != b->far)
        return a->far < b->far;
    return a->cost != b->cost ? a->cost < b->cost : a->cut < b->cut;
}

static void consider(struct walk *w, const struct merit *merit) {
    uint64_t set = 0;
    struct merit m = *merit;
    for (uint32_t i = 0; i < w->search->n; i++)
        set |= UINT64_C(1) << w->chosen[i];
    m.cut = w->best.cut;
    if (w->found && better(&w->best, &m))
        return; /* before the cut is counted */
    m.cut = cut_of(w, set);
    if (!w->found || better(&m, &w->best)) {
        w->best = m;
        w->found = set;
    }
}

/* Whether nothing that begins with `at` can be better than what was found. */
static bool is_hopeless(const struct walk *w, uint32_t depth, const struct merit *at) {
    uint32_t n = w->search->n, pairs = (n * (n - 1) - depth * (depth - 1)) / 2;
    if (!w->found || at->weakest > w->best.weakest)
        return false;
    return at->weakest < w->best.weakest || at->sum + pairs * w->strongest < w->best.sum;
}

/* Adds card c to the first `depth` chosen ones; false: it may not be added. */
static bool add(const struct walk *w, uint32_t depth, uint32_t c, struct merit *m) {
    if (depth > 0 && w->search->numa_bind && w->t->numa[w->chosen[0]] != w->t->numa[c])
        return false;
    for (uint32_t i = 0; i < depth; i++) {
        uint8_t link = topology_link(w->t, w->chosen[i], c);
        if (link < w->search->weakest)
            return false;
        if (link < m->weakest)
            m->weakest = link;
        m->sum += link;
    }
    m->far += (uint32_t) (w->search->far >> c & 1);
    m->cost += w->search->costs ? w->search->costs[c] : 0;
    return true;
}

/* Tries all sets that go on with one of the candidates from `from`. */
static void walk_sets(struct walk *w, uint32_t depth, uint32_t from, const struct merit *at) {
    uint32_t n = w->search->n;
    if (depth == n) {
        consider(w, at);
        return;
    }
    for (uint32_t i = from; i + (n - depth) <= w->ncards; i++) {
        struct merit m = *at;
        if (w->ncards > TOPOLOGY_EXACT && w->search->steps >= TOPOLOGY_STEPS)
            return;
        w->search->steps++;
        if (!add(w, depth, w->cards[i], &m) || is_hopeless(w, depth + 1, &m))
            continue;
        w->chosen[depth] = w->cards[i];
        walk_sets(w, depth + 1, i + 1, &m);
    }
}

/* The set that grows from card `seed` by the best next one: what many candidates begin with. */
static void grow(struct walk *w, uint32_t seed) {
    struct merit at = {.weakest = UINT8_MAX};
    uint64_t left = w->search->candidates & ~(UINT64_C(1) << seed);
    if (!add(w, 0, seed, &at))
        return;
    w->chosen[0] = (uint8_t) seed;
    for (uint32_t depth = 1; depth < w->search->n; depth++) {
        struct merit best = {0};
        uint32_t next = UINT32_MAX;
        for (uint64_t rest = left; rest; rest &= rest - 1) {
            uint32_t c = (uint32_t) __builtin_ctzll(rest);
            struct merit m = at;
            if (add(w, depth, c, &m) && (next == UINT32_MAX || better(&m, &best))) {
                best = m;
                next = c;
            }
        }
        if (next == UINT32_MAX)
            return;
        w->chosen[depth] = (uint8_t) next;
        left &= ~(UINT64_C(1) << next);
        at = best;
    }
    consider(w, &at);
}

uint64_t topology_pick(const struct place_topology *t, struct topology_search *search) {
    struct walk w = {.t = t, .search = search};
    const struct merit none = {.weakest = UINT8_MAX};
    search->steps = 0;
    for (uint32_t c = 0; c < t->ncards; c++)
        if (search->candidates >> c & 1)
            w.cards[w.ncards++] = (uint8_t) c;
    if (search->n == 0 || w.ncards < search->n)
        return 0;
    uint8_t weakest = UINT8_MAX;
    for (uint32_t i = 0; i < w.ncards; i++)
        for (uint32_t j = i + 1; j < w.ncards; j++) {
            uint8_t link = topology_link(t, w.cards[i], w.cards[j]);
            w.strongest = link > w.strongest ? link : w.strongest;
            weakest = link < weakest ? link : weakest;
        }
    for (uint32_t i = 0; i < w.ncards; i++)
        grow(&w, w.cards[i]);
    /* Where all links are equal, the cheapest cards are the result. */
    if (search->n > 1 && (weakest < w.strongest || search->numa_bind))
        walk_sets(&w, 0, 0, &none);
    return w.found;
}

void topology_finish(struct place_topology *t) {
    uint64_t all = t->ncards < 64 ? (UINT64_C(1) << t->ncards) - 1 : UINT64_MAX;
    memset(t->best, 0, sizeof(t->best));
    for (uint32_t n = 2; n <= t->ncards; n++) {
        struct topology_search search = {.candidates = all, .n = n};
        t->best[n] = topology_weakest(t, topology_pick(t, &search));
    }
}
