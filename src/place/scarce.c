/* SPDX-License-Identifier: Apache-2.0 */
#include "place/scarce.h"

#include <stdlib.h>
#include <string.h>

#define CARD 1000
/* Of a card of a model on which no more insist than it has cards, relative to all. */
#define MODEL_PRICE 700

void scarce_init(struct scarce *s, const struct workload *workload) {
    s->workload = workload;
}

/* ---- slots ---- */

static uint32_t slots_of(const struct scarce_node *node, const struct scarce_size *size,
                         uint32_t tier) {
    uint32_t slots = node->idle / size->cards;
    if (node->cpu != UINT32_MAX && size->cpu[tier] > 0 && node->cpu / size->cpu[tier] < slots)
        slots = node->cpu / size->cpu[tier];
    return slots;
}

static void count_slots(struct scarce *s, const struct scarce_node *node, bool adds) {
    for (uint32_t i = 0; i < s->nsizes; i++)
        for (uint32_t t = 0; t < SCARCE_TIERS; t++) {
            uint32_t slots = slots_of(node, &s->sizes[i], t);
            s->sizes[i].slots[t] += adds ? slots : -slots;
        }
}

static void count_node(struct scarce *s, const struct scarce_node *node, bool adds) {
    uint64_t cards = node->cards;
    s->cards += adds ? cards : -cards;
    s->by_model[node->model] += adds ? cards : -cards;
    count_slots(s, node, adds);
}

void scarce_set(struct scarce *s, uint32_t id, const struct scarce_node *node) {
    if (id >= SCARCE_NODES_MAX)
        return;
    count_node(s, &s->nodes[id], false);
    s->nodes[id] = *node;
    count_node(s, node, true);
    s->priced = false;
}

void scarce_run(struct scarce *s, uint32_t cards, int change) {
    if (cards > WORKLOAD_CARDS_MAX)
        cards = WORKLOAD_CARDS_MAX;
    if (change > 0)
        s->running[cards]++;
    else if (s->running[cards] > 0)
        s->running[cards]--;
    s->priced = false;
}

void scarce_arrived(struct scarce *s) {
    s->priced = false;
}

/* ---- what there is ---- */

static int by_cpu(const void *a, const void *b) {
    const struct workload_count *x = *(struct workload_count *const *) a;
    const struct workload_count *y = *(struct workload_count *const *) b;
    return (x->shape.cpu > y->shape.cpu) - (x->shape.cpu < y->shape.cpu);
}

/* The CPU that half, nine of ten and all pods of the size ask at most, and how many need more than
 * the tier below gives. */
static void measure(const struct workload *w, uint32_t cards, struct scarce_size *ret) {
    static const uint64_t tenths[SCARCE_TIERS] = {5, 9, 10};
    const struct workload_count *of_size[WORKLOAD_SHAPES_MAX];
    uint64_t total = 0, sum = 0, below = 0;
    uint32_t n = 0, t = 0;
    for (uint32_t i = 0; i < w->n; i++)
        if (w->shapes[i].shape.cards == cards) {
            of_size[n++] = &w->shapes[i];
            total += w->shapes[i].count;
        }
    qsort(of_size, n, sizeof(of_size[0]), by_cpu);
    *ret = (struct scarce_size){.cards = cards};
    for (uint32_t i = 0; i < n; i++) {
        sum += of_size[i]->count;
        for (; t < SCARCE_TIERS && sum * 10 >= total * tenths[t]; t++) {
            ret->cpu[t] = of_size[i]->shape.cpu;
            ret->share[t] = (double) (total - below) / (double) total;
            below = sum;
        }
    }
}

/* Whether pods of `a` cards matter more than those of `b`: by the cards that they ask together. */
static bool matters_more(const struct workload *w, uint32_t a, uint32_t b) {
    return (uint64_t) w->by_cards[a] * a > (uint64_t) w->by_cards[b] * b;
}

static void learn_sizes(struct scarce *s) {
    const struct workload *w = s->workload;
    uint32_t sizes[SCARCE_SIZES + 1], n = 0;
    for (uint32_t k = 2; k <= WORKLOAD_CARDS_MAX; k++) {
        if (w->by_cards[k] == 0)
            continue;
        uint32_t at = n;
        for (; at > 0 && matters_more(w, k, sizes[at - 1]); at--)
            sizes[at] = sizes[at - 1];
        sizes[at] = k;
        n = n < SCARCE_SIZES ? n + 1 : n;
    }
    s->nsizes = n;
    for (uint32_t i = 0; i < n; i++)
        measure(w, sizes[i], &s->sizes[i]);
    for (uint32_t id = 0; id < SCARCE_NODES_MAX; id++)
        if (s->nodes[id].cards > 0)
            count_slots(s, &s->nodes[id], true);
}

static void learn_models(struct scarce *s) {
    const struct workload *w = s->workload;
    memset(s->insisting, 0, sizeof(s->insisting));
    s->arrived = w->milli;
    for (uint32_t i = 0; i < w->n; i++) {
        const struct workload_count *c = &w->shapes[i];
        if (c->shape.models == WORKLOAD_ANY_MODEL)
            continue;
        for (uint32_t m = 0; m < WORKLOAD_MODELS_MAX; m++)
            if (c->shape.models >> m & 1)
                s->insisting[m] += workload_milli(&c->shape) * c->count;
    }
}

void scarce_learn(struct scarce *s) {
    learn_sizes(s);
    learn_models(s);
    s->priced = false;
}

/* ---- prices ---- */

uint32_t scarce_broken(const struct scarce *s, const struct scarce_node *before,
                       const struct scarce_node *after, uint32_t cards) {
    uint32_t broken = 0;
    for (uint32_t i = 0; i < s->nsizes; i++) {
        if (cards >= s->sizes[i].cards)
            continue;
        for (uint32_t t = 0; t < SCARCE_TIERS; t++)
            if (slots_of(after, &s->sizes[i], t) < slots_of(before, &s->sizes[i], t))
                broken |= UINT32_C(1) << (i * SCARCE_TIERS + t);
    }
    return broken;
}

/* x to the 16th: next to nothing while slots abound, all of it when there are just enough. */
static double steep(double x) {
    x *= x;
    x *= x;
    x *= x;
    return x * x;
}

/* How many pods of the size run at once when the cluster is full of what has arrived. */
static double expected(const struct scarce *s, uint32_t cards) {
    const struct workload *w = s->workload;
    if (w->milli == 0)
        return 0;
    return (double) s->cards * CARD / (double) w->milli * w->by_cards[cards];
}

static void set_prices(struct scarce *s) {
    for (uint32_t i = 0; i < s->nsizes; i++) {
        struct scarce_size *size = &s->sizes[i];
        double due = expected(s, size->cards) - s->running[size->cards];
        for (uint32_t t = 0; t < SCARCE_TIERS; t++) {
            double wanted = due > 0 ? due * size->share[t] : 0;
            double ratio = wanted < size->slots[t] ? wanted / size->slots[t] : wanted > 0;
            size->price[t] = (int64_t) (CARD * size->cards * steep(ratio));
        }
    }
    s->priced = true;
}

int64_t scarce_slots_price(struct scarce *s, uint32_t broken) {
    int64_t sum = 0;
    if (broken == 0)
        return 0;
    if (!s->priced)
        set_prices(s);
    for (uint32_t i = 0; i < s->nsizes; i++) {
        int64_t most = 0;
        for (uint32_t t = 0; t < SCARCE_TIERS; t++)
            if ((broken >> (i * SCARCE_TIERS + t) & 1) && s->sizes[i].price[t] > most)
                most = s->sizes[i].price[t];
        sum += most;
    }
    return sum;
}

int64_t scarce_model_price(const struct scarce *s, uint32_t model) {
    uint32_t m = model < WORKLOAD_MODELS_MAX ? model : WORKLOAD_MODELS_MAX - 1;
    if (s->by_model[m] == 0 || s->arrived == 0)
        return 0;
    double demand = (double) s->insisting[m] / (double) s->arrived;
    double supply = (double) s->by_model[m] / (double) s->cards;
    return (int64_t) (MODEL_PRICE * demand / supply);
}
