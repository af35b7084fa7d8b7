/* SPDX-License-Identifier: Apache-2.0 */
#include "place/scarce.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CARD 1000
/* Of a card of a model on which no more insist than it has cards, relative to all. */
#define MODEL_PRICE 700
/* More slots than the mean are wanted, by so many times its root: arrivals are random. */
#define LUCK 1

_Static_assert(SCARCE_SIZES *SCARCE_TIERS <= 32, "broken slots are a set of 32 bits");

void scarce_init(struct scarce *s, const struct workload *workload) {
    s->workload = workload;
}

/* ---- slots ---- */

static uint32_t slots_of(const struct scarce_node *node, const struct scarce_size *size,
                         uint32_t tier) {
    uint32_t slots = node->idle / size->cards;
    if (!(size->models >> node->model & 1))
        return 0;
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
    uint64_t cards = node->cards, free = node->free;
    s->cards += adds ? cards : -cards;
    s->free += adds ? free : -free;
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

/* ---- pods ---- */

static struct scarce_size *size_of(struct scarce *s, uint32_t cards, uint64_t models) {
    for (uint32_t i = 0; i < s->nsizes; i++)
        if (s->sizes[i].cards == cards && s->sizes[i].models == models)
            return &s->sizes[i];
    return NULL;
}

/* The entry of that kind of pod, or NULL. */
static struct scarce_running *running_of(struct scarce *s, uint32_t cards, uint64_t models) {
    for (uint32_t i = 0; i < SCARCE_RUNNING_MAX; i++) {
        struct scarce_running *r = &s->running[i];
        if (r->pods > 0 && r->cards == cards && r->models == models)
            return r;
    }
    return NULL;
}

static struct scarce_running *begin_running(struct scarce *s, const struct place_shape *shape) {
    struct scarce_running *r = running_of(s, shape->cards, shape->models);
    for (uint32_t i = 0; !r && i < SCARCE_RUNNING_MAX; i++)
        if (s->running[i].pods == 0)
            r = &s->running[i];
    if (r)
        *r = (struct scarce_running){shape->models, shape->cards, r->pods + 1};
    return r;
}

/* Which models a pod may have is read from its selection, and new models appear: a pod that began
 * as one kind may end as another. Then the largest kind of as many cards is one less. */
static struct scarce_running *end_running(struct scarce *s, const struct place_shape *shape) {
    struct scarce_running *r = running_of(s, shape->cards, shape->models);
    for (uint32_t i = 0; !(r && r->models == shape->models) && i < SCARCE_RUNNING_MAX; i++)
        if (s->running[i].cards == shape->cards && s->running[i].pods > (r ? r->pods : 0))
            r = &s->running[i];
    if (r)
        r->pods--;
    return r;
}

void scarce_run(struct scarce *s, const struct place_shape *shape, int change) {
    if (shape->cards < 2)
        return;
    struct scarce_running *r = change > 0 ? begin_running(s, shape) : end_running(s, shape);
    struct scarce_size *size = r ? size_of(s, r->cards, r->models) : NULL;
    if (size)
        size->running = r->pods;
    s->priced = false;
}

void scarce_arrived(struct scarce *s, const struct place_shape *shape) {
    struct scarce_size *size = size_of(s, shape->cards, shape->models);
    if (size)
        size->arrived++;
    s->priced = false;
}

/* ---- what there is ---- */

static int by_cpu(const void *a, const void *b) {
    const struct workload_count *x = *(const struct workload_count *const *) a;
    const struct workload_count *y = *(const struct workload_count *const *) b;
    return (x->shape.cpu > y->shape.cpu) - (x->shape.cpu < y->shape.cpu);
}

/* The most CPU that a pod of the size could ask: all of the largest node that could take it. */
static uint32_t most_cpu(const struct scarce *s, const struct scarce_size *size) {
    uint32_t most = 0;
    for (uint32_t id = 0; id < SCARCE_NODES_MAX; id++) {
        const struct scarce_node *node = &s->nodes[id];
        if (node->cards >= size->cards && (size->models >> node->model & 1) && node->most > most)
            most = node->most;
    }
    return most;
}

/* The tiers: the CPU that a quarter, half, nine tenths and all of the pods of the size ask at most,
 * and how many need more than the tier below gives. The last is for a pod larger than all so far:
 * after n of them, one in n + 1 (Laplace's rule). */
static void measure(const struct scarce *s, struct scarce_size *size) {
    static const uint64_t percents[SCARCE_TIERS - 1] = {25, 50, 90, 100};
    const struct workload_count *of_size[WORKLOAD_SHAPES_MAX];
    const struct workload *w = s->workload;
    uint64_t sum = 0, below = 0;
    uint32_t n = 0, t = 0;
    for (uint32_t i = 0; i < w->n; i++)
        if (w->shapes[i].shape.cards == size->cards && w->shapes[i].shape.models == size->models)
            of_size[n++] = &w->shapes[i];
    qsort(of_size, n, sizeof(of_size[0]), by_cpu);
    for (uint32_t i = 0; i < n; i++) {
        sum += of_size[i]->count;
        for (; t < SCARCE_TIERS - 1 && sum * 100 >= size->arrived * percents[t]; t++) {
            size->cpu[t] = of_size[i]->shape.cpu;
            size->share[t] = (double) (size->arrived - below) / size->arrived;
            below = sum;
        }
    }
    size->cpu[t] = most_cpu(s, size);
    size->share[t] = 1.0 / (size->arrived + 1.0);
}

/* By the cards that they ask together. */
static int by_weight(const void *a, const void *b) {
    const struct scarce_size *x = a, *y = b;
    uint64_t weight_x = (uint64_t) x->arrived * x->cards,
             weight_y = (uint64_t) y->arrived * y->cards;
    return (weight_x < weight_y) - (weight_x > weight_y);
}

/* All sizes with their arrivals, at most `max`: those that came first. */
static uint32_t list_sizes(const struct workload *w, uint32_t max, struct scarce_size ret[]) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        const struct place_shape *shape = &w->shapes[i].shape;
        uint32_t at = 0;
        if (shape->cards < 2)
            continue;
        while (at < n && (ret[at].cards != shape->cards || ret[at].models != shape->models))
            at++;
        if (at == max)
            continue;
        if (at == n)
            ret[n++] = (struct scarce_size){.cards = shape->cards, .models = shape->models};
        ret[at].arrived += w->shapes[i].count;
    }
    return n;
}

static void learn_sizes(struct scarce *s) {
    struct scarce_size sizes[SCARCE_RUNNING_MAX];
    uint32_t n = list_sizes(s->workload, SCARCE_RUNNING_MAX, sizes);
    qsort(sizes, n, sizeof(sizes[0]), by_weight);
    s->nsizes = n < SCARCE_SIZES ? n : SCARCE_SIZES;
    for (uint32_t i = 0; i < s->nsizes; i++) {
        const struct scarce_running *r = running_of(s, sizes[i].cards, sizes[i].models);
        sizes[i].running = r ? r->pods : 0;
        measure(s, &sizes[i]);
        s->sizes[i] = sizes[i];
    }
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

/* x to the 8th: next to nothing while slots abound, all of it when there are just enough. */
static double steep(double x) {
    x *= x;
    x *= x;
    return x * x;
}

/* How many pods of the size are still to be expected until the cluster is full of what arrives: as
 * many as bring the mean about but do not run yet, or as many as come by chance onto what is free,
 * whichever is more. */
static double due(const struct scarce *s, const struct scarce_size *size) {
    if (s->workload->milli == 0)
        return 0;
    double each = (double) size->arrived / (double) s->workload->milli;
    double mean = (double) s->cards * CARD * each - size->running;
    double chance = (double) s->free * each;
    return mean > chance ? mean : chance;
}

static void set_prices(struct scarce *s) {
    for (uint32_t i = 0; i < s->nsizes; i++) {
        struct scarce_size *size = &s->sizes[i];
        double most = due(s, size);
        for (uint32_t t = 0; t < SCARCE_TIERS; t++) {
            double wanted = most * size->share[t];
            wanted += LUCK * sqrt(wanted);
            double ratio = wanted < size->slots[t] ? wanted / size->slots[t] : 1;
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
