/* SPDX-License-Identifier: Apache-2.0 */
#include "place/workload/stranded.h"

#include <stdlib.h>
#include <string.h>

#define TYPICAL_MAX 256    /* shapes; they are drawn as bytes */
#define TYPICAL_PERCENT 95 /* of arrivals */
#define ROUNDS STRANDED_SCALE
#define ROUNDS_SHORT 4
#define DRAWS 512 /* pods in a round; a round that needs more ends */
#define MISSES 12 /* in a row: the node is as good as full */
#define CACHE_SETS 65536
#define CACHE_WAYS 4
#define WHOLE 100

_Static_assert(ROUNDS % ROUNDS_SHORT == 0, "a short estimate is scaled up");

/* What a typical pod takes of cards of one kind. */
struct need {
    uint32_t cpu;
    uint8_t cards;
    uint8_t core, memory;
    bool served; /* cards of the kind are of a model that it may have, and large enough */
};

struct kind {
    uint32_t model;
    uint64_t card_memory;
    struct need needs[TYPICAL_MAX];
};

/* What is left over of a state in all rounds together, and in the first few of them. */
struct entry {
    uint64_t key; /* 0: empty */
    int32_t full; /* UNKNOWN: no full estimate yet */
    int32_t brief;
};
#define UNKNOWN (-1)

struct stranded {
    uint32_t n; /* typical shapes */
    uint32_t nkinds;
    uint32_t allowed;
    uint64_t short_estimates;
    struct place_shape shapes[TYPICAL_MAX];
    double share[TYPICAL_MAX]; /* of the typical arrivals; in sum 1 */
    uint8_t draws[ROUNDS][DRAWS];
    struct kind kinds[STRANDED_KINDS_MAX];
    struct entry cache[CACHE_SETS][CACHE_WAYS];
};

struct stranded *stranded_new(void) {
    struct stranded *s = calloc(1, sizeof(*s));
    if (s)
        s->allowed = UINT32_MAX;
    return s;
}

void stranded_free(struct stranded *s) {
    free(s);
}

bool stranded_knows(const struct stranded *s) {
    return s->n > 0;
}

void stranded_allow(struct stranded *s, uint32_t states) {
    s->allowed = states;
}

/* ---- typical pods ---- */

static uint32_t percent_up(uint64_t part, uint64_t whole) {
    if (whole == 0 || part > whole)
        return WHOLE + 1;
    uint64_t unit = whole / WHOLE;
    return unit == 0 ? WHOLE : (uint32_t) ((part + unit - 1) / unit);
}

static struct need need_of(const struct place_shape *shape, const struct kind *kind) {
    uint32_t model = kind->model < WORKLOAD_MODELS_MAX ? kind->model : WORKLOAD_MODELS_MAX - 1;
    uint32_t memory = shape->core;
    struct need need = {.cpu = shape->cpu, .cards = (uint8_t) shape->cards};
    need.served = shape->cards == 0 || (shape->models >> model & 1);
    if (shape->core < WHOLE && shape->memory > 0)
        memory = percent_up(shape->memory, kind->card_memory);
    if (memory > WHOLE && shape->cards > 0) {
        /* Rounding up must not turn a share of nearly all into one that never fits. */
        need.served &= shape->memory <= kind->card_memory;
        memory = WHOLE;
    }
    need.core = (uint8_t) shape->core;
    need.memory = (uint8_t) memory;
    return need;
}

static void fit_kind(const struct stranded *s, struct kind *kind) {
    for (uint32_t i = 0; i < s->n; i++)
        kind->needs[i] = need_of(&s->shapes[i], kind);
}

uint32_t stranded_kind(struct stranded *s, uint32_t model, uint64_t card_memory) {
    for (uint32_t k = 0; k < s->nkinds; k++)
        if (s->kinds[k].model == model && s->kinds[k].card_memory == card_memory)
            return k;
    if (s->nkinds == STRANDED_KINDS_MAX)
        return STRANDED_KINDS_MAX - 1;
    struct kind *kind = &s->kinds[s->nkinds];
    kind->model = model;
    kind->card_memory = card_memory;
    fit_kind(s, kind);
    return s->nkinds++;
}

static uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static uint8_t sample(const uint64_t *below, uint32_t n, uint64_t number) {
    uint32_t low = 0, high = n - 1;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (number < below[middle])
            high = middle;
        else
            low = middle + 1;
    }
    return (uint8_t) low;
}

/* The same draws for every state: what two states differ in is then not the luck of the draw. */
static void make_draws(struct stranded *s, const uint64_t below[static TYPICAL_MAX]) {
    uint64_t state = 1;
    for (uint32_t r = 0; r < ROUNDS; r++)
        for (uint32_t i = 0; i < DRAWS; i++)
            s->draws[r][i] = sample(below, s->n, next_random(&state) % below[s->n - 1]);
}

void stranded_learn(struct stranded *s, const struct workload *w) {
    uint16_t order[TYPICAL_MAX];
    uint64_t below[TYPICAL_MAX], sum = 0;
    s->n = workload_typical(w, TYPICAL_PERCENT, TYPICAL_MAX, order);
    for (uint32_t i = 0; i < s->n; i++) {
        s->shapes[i] = w->shapes[order[i]].shape;
        sum += w->shapes[order[i]].count;
        below[i] = sum;
    }
    for (uint32_t i = 0; i < s->n; i++)
        s->share[i] = (double) w->shapes[order[i]].count / (double) sum;
    if (s->n > 0)
        make_draws(s, below);
    s->nkinds = 0; /* those of nodes that are still there come back */
    memset(s->cache, 0, sizeof(s->cache));
}

/* ---- to the end ---- */

static uint32_t core_of(uint16_t card) {
    return card >> 8;
}

static uint32_t memory_of(uint16_t card) {
    return card & 0xff;
}

static bool card_fits(uint16_t card, const struct need *need) {
    return core_of(card) >= need->core && memory_of(card) >= need->memory;
}

/* The fullest card that still takes it, or ncards. */
static uint32_t tightest(const struct stranded_node *node, const struct need *need) {
    uint32_t best = node->ncards, least = UINT32_MAX;
    for (uint32_t c = 0; c < node->ncards; c++) {
        uint32_t sum = core_of(node->cards[c]) + memory_of(node->cards[c]);
        if (card_fits(node->cards[c], need) && sum < least) {
            least = sum;
            best = c;
        }
    }
    return best;
}

static void subtract_need(uint16_t *card, const struct need *need) {
    *card = (uint16_t) (*card - stranded_card(need->core, need->memory));
}

static bool put_many(struct stranded_node *node, const struct need *need) {
    uint32_t fit = 0;
    for (uint32_t c = 0; c < node->ncards; c++)
        fit += card_fits(node->cards[c], need);
    if (fit < need->cards)
        return false;
    for (uint32_t c = 0, left = need->cards; left > 0; c++) {
        if (!card_fits(node->cards[c], need))
            continue;
        subtract_need(&node->cards[c], need);
        left--;
    }
    return true;
}

static bool put_need(struct stranded_node *node, const struct need *need) {
    if (!need->served || node->cpu < need->cpu)
        return false;
    if (need->cards == 1) {
        uint32_t c = tightest(node, need);
        if (c == node->ncards)
            return false;
        subtract_need(&node->cards[c], need);
    } else if (need->cards > 1 && !put_many(node, need)) {
        return false;
    }
    if (node->cpu != STRANDED_CPU_UNKNOWN)
        node->cpu -= need->cpu;
    return true;
}

static int32_t idle(const struct stranded_node *node) {
    uint32_t sum = 0;
    for (uint32_t c = 0; c < node->ncards; c++)
        sum += core_of(node->cards[c]) + memory_of(node->cards[c]);
    return (int32_t) (sum * 5);
}

static int32_t run_round(const struct stranded *s, struct stranded_node node, uint32_t round) {
    const struct need *needs = s->kinds[node.kind].needs;
    uint32_t misses = 0;
    for (uint32_t i = 0; i < DRAWS && misses < MISSES; i++)
        misses = put_need(&node, &needs[s->draws[round][i]]) ? 0 : misses + 1;
    return idle(&node);
}

static int32_t run_rounds(const struct stranded *s, const struct stranded_node *node, uint32_t from,
                          uint32_t to) {
    int32_t sum = 0;
    for (uint32_t r = from; r < to; r++)
        sum += run_round(s, *node, r);
    return sum;
}

/* A state is a set of cards: their order must not make two of one. */
static void sort_cards(struct stranded_node *node) {
    for (uint32_t i = 1; i < node->ncards; i++) {
        uint16_t card = node->cards[i];
        uint32_t at = i;
        for (; at > 0 && card < node->cards[at - 1]; at--)
            node->cards[at] = node->cards[at - 1];
        node->cards[at] = card;
    }
}

static uint64_t key_of(const struct stranded_node *node) {
    uint64_t h = ((uint64_t) node->kind << 32 | node->cpu) * UINT64_C(0x9e3779b97f4a7c15);
    h = (h ^ h >> 32) + node->ncards;
    for (uint32_t c = 0; c < node->ncards; c++) {
        h = (h ^ node->cards[c]) * UINT64_C(0xff51afd7ed558ccd);
        h ^= h >> 32;
    }
    return h ? h : 1;
}

/* The entry of the state; a new one takes the place of another if need be. */
static struct entry *entry_of(struct stranded *s, uint64_t key) {
    struct entry *set = s->cache[key % CACHE_SETS];
    for (uint32_t i = 0; i < CACHE_WAYS; i++)
        if (set[i].key == key || set[i].key == 0)
            return &set[i];
    return &set[(key >> 32) % CACHE_WAYS];
}

/* The estimates for the state; a full one while the budget allows it. */
static struct entry growths_of(struct stranded *s, struct stranded_node *node) {
    sort_cards(node);
    uint64_t key = key_of(node);
    struct entry *entry = entry_of(s, key);
    if (entry->key != key)
        *entry = (struct entry){key, UNKNOWN, run_rounds(s, node, 0, ROUNDS_SHORT)};
    if (entry->full == UNKNOWN && s->allowed > 0) {
        s->allowed -= s->allowed < UINT32_MAX;
        entry->full = entry->brief + run_rounds(s, node, ROUNDS_SHORT, ROUNDS);
    }
    s->short_estimates += entry->full == UNKNOWN;
    return *entry;
}

uint64_t stranded_short_estimates(const struct stranded *s) {
    return s->short_estimates;
}

bool stranded_has_time(const struct stranded *s) {
    return s->allowed > 0;
}

int64_t stranded_expect(struct stranded *s, struct stranded_node *node) {
    struct entry at = growths_of(s, node);
    return at.full != UNKNOWN ? at.full : (int64_t) at.brief * (ROUNDS / ROUNDS_SHORT);
}

int64_t stranded_growth(struct stranded *s, struct stranded_node *before,
                        struct stranded_node *after) {
    struct entry from = growths_of(s, before), to = growths_of(s, after);
    if (from.full != UNKNOWN && to.full != UNKNOWN)
        return (int64_t) to.full - from.full;
    return ((int64_t) to.brief - from.brief) * (ROUNDS / ROUNDS_SHORT);
}

/* ---- one step ---- */

static uint32_t milli_of(uint16_t card) {
    return (core_of(card) + memory_of(card)) * 5;
}

/* What a pod with that need cannot use: all that is idle if it cannot run here at all. */
static uint32_t unusable(const struct stranded_node *node, const struct need *need) {
    uint32_t all = 0, small = 0, fit = 0;
    for (uint32_t c = 0; c < node->ncards; c++) {
        uint32_t milli = milli_of(node->cards[c]);
        bool fits = card_fits(node->cards[c], need);
        all += milli;
        small += fits ? 0 : milli;
        fit += fits;
    }
    bool runs = need->cards > 0 && need->served && node->cpu >= need->cpu && fit >= need->cards;
    return runs ? small : all;
}

double stranded_next(const struct stranded *s, const struct stranded_node *node) {
    const struct need *needs = s->kinds[node->kind].needs;
    double sum = 0;
    for (uint32_t i = 0; i < s->n; i++)
        sum += s->share[i] * unusable(node, &needs[i]);
    return sum;
}
