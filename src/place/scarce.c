/* SPDX-License-Identifier: Apache-2.0 */
#include "place/scarce.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CARD 1000
#define LISTED 256 /* kinds of pods of which the most frequent are watched */
/* More slots than the mean are wanted, by so many times its root: arrivals are random, and of a
 * hundred times this is too few in two. */
#define LUCK 2

_Static_assert(SCARCE_SIZES *SCARCE_TIERS <= 64, "broken slots are a set of 64 bits");

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

/* Any card will do for the others: no slot is theirs. */
static bool is_choosy(const struct place_shape *shape) {
    return shape->cards > 1 || (shape->cards == 1 && shape->models != WORKLOAD_ANY_MODEL);
}

/* What the pod takes of a card of its own, in thousandths: see struct scarce_size. */
static uint32_t milli_of(const struct place_shape *shape) {
    return (uint32_t) (workload_milli(shape) / shape->cards);
}

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
        if (r->milli > 0 && r->cards == cards && r->models == models)
            return r;
    }
    return NULL;
}

static struct scarce_running *begin_running(struct scarce *s, const struct place_shape *shape) {
    struct scarce_running *r = running_of(s, shape->cards, shape->models);
    for (uint32_t i = 0; !r && i < SCARCE_RUNNING_MAX; i++)
        if (s->running[i].milli == 0)
            r = &s->running[i];
    if (r)
        *r = (struct scarce_running){shape->models, shape->cards, r->milli + milli_of(shape)};
    return r;
}

/* Which models a pod may have is read from its selection, and new models appear: a pod that began
 * as one kind may end as another. Then the largest kind of as many cards is one less. */
static struct scarce_running *end_running(struct scarce *s, const struct place_shape *shape) {
    struct scarce_running *r = running_of(s, shape->cards, shape->models);
    for (uint32_t i = 0; !(r && r->models == shape->models) && i < SCARCE_RUNNING_MAX; i++)
        if (s->running[i].cards == shape->cards && s->running[i].milli > (r ? r->milli : 0))
            r = &s->running[i];
    if (r)
        r->milli -= milli_of(shape) < r->milli ? milli_of(shape) : r->milli;
    return r;
}

void scarce_run(struct scarce *s, const struct place_shape *shape, int change) {
    if (!is_choosy(shape))
        return;
    struct scarce_running *r = change > 0 ? begin_running(s, shape) : end_running(s, shape);
    struct scarce_size *size = r ? size_of(s, r->cards, r->models) : NULL;
    if (size)
        size->running = (double) r->milli / CARD;
    s->priced = false;
}

void scarce_arrived(struct scarce *s, const struct place_shape *shape) {
    struct scarce_size *size = size_of(s, shape->cards, shape->models);
    if (size)
        size->arrived += (double) milli_of(shape) / CARD;
    s->asked += workload_milli(shape);
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

/* The tiers: the CPU that a quarter, half, nine tenths and all of the pods of as many cards ask at
 * most, whose models may be these, and how many need more than the tier below gives. The last is
 * for a pod larger than all so far: after n of them, one in n + 1 (Laplace's rule). */
static void measure(const struct scarce *s, struct scarce_size *size) {
    static const uint64_t percents[SCARCE_TIERS - 1] = {25, 50, 90, 100};
    const struct workload_count *like[WORKLOAD_SHAPES_MAX];
    const struct workload *w = s->workload;
    uint64_t all = 0, sum = 0, below = 0;
    uint32_t n = 0, t = 0;
    for (uint32_t i = 0; i < w->n; i++)
        if (w->shapes[i].shape.cards == size->cards && (w->shapes[i].shape.models & size->models)) {
            like[n++] = &w->shapes[i];
            all += w->shapes[i].count;
        }
    qsort(like, n, sizeof(like[0]), by_cpu);
    for (uint32_t i = 0; i < n; i++) {
        sum += like[i]->count;
        if (i + 1 < n && like[i + 1]->shape.cpu == like[i]->shape.cpu)
            continue;
        for (; t < SCARCE_TIERS - 1 && sum * 100 >= all * percents[t]; t++) {
            size->cpu[t] = like[i]->shape.cpu;
            size->share[t] = (double) (all - below) / (double) all;
            below = sum;
        }
    }
    size->cpu[t] = most_cpu(s, size);
    size->share[t] = 1.0 / ((double) all + 1.0);
}

/* By the cards that they ask together. */
static int by_weight(const void *a, const void *b) {
    const struct scarce_size *x = a, *y = b;
    double weight_x = x->arrived * x->cards, weight_y = y->arrived * y->cards;
    return (weight_x < weight_y) - (weight_x > weight_y);
}

/* All sizes with their arrivals, at most `max`: those that came first. */
static uint32_t list_sizes(const struct workload *w, uint32_t max, struct scarce_size ret[]) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        const struct place_shape *shape = &w->shapes[i].shape;
        uint32_t at = 0;
        if (!is_choosy(shape))
            continue;
        while (at < n && (ret[at].cards != shape->cards || ret[at].models != shape->models))
            at++;
        if (at == max)
            continue;
        if (at == n)
            ret[n++] = (struct scarce_size){.cards = shape->cards, .models = shape->models};
        ret[at].arrived += (double) milli_of(shape) * w->shapes[i].count / CARD;
    }
    return n;
}

void scarce_learn(struct scarce *s) {
    struct scarce_size sizes[LISTED];
    uint32_t n = list_sizes(s->workload, LISTED, sizes);
    qsort(sizes, n, sizeof(sizes[0]), by_weight);
    s->nsizes = n < SCARCE_SIZES ? n : SCARCE_SIZES;
    s->asked = s->workload->milli;
    s->priced = false;
    for (uint32_t i = 0; i < s->nsizes; i++) {
        const struct scarce_running *r = running_of(s, sizes[i].cards, sizes[i].models);
        sizes[i].running = r ? (double) r->milli / CARD : 0;
        measure(s, &sizes[i]);
        s->sizes[i] = sizes[i];
    }
    for (uint32_t id = 0; id < SCARCE_NODES_MAX; id++)
        if (s->nodes[id].cards > 0)
            count_slots(s, &s->nodes[id], true);
}

/* ---- prices ---- */

/* Whether such pods are among those that the tier's slots are for. */
static bool is_theirs(const struct scarce_size *size, uint32_t tier,
                      const struct place_shape *shape) {
    return shape->cards == size->cards && shape->models == size->models &&
           (tier == 0 || shape->cpu > size->cpu[tier - 1]);
}

uint64_t scarce_broken(const struct scarce *s, const struct scarce_node *before,
                       const struct scarce_node *after, const struct place_shape *shape) {
    uint64_t broken = 0;
    for (uint32_t i = 0; i < s->nsizes; i++) {
        const struct scarce_size *size = &s->sizes[i];
        if (shape->cards > size->cards)
            continue;
        for (uint32_t t = 0; t < SCARCE_TIERS; t++)
            if (!is_theirs(size, t, shape) && slots_of(after, size, t) < slots_of(before, size, t))
                broken |= UINT64_C(1) << (i * SCARCE_TIERS + t);
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
    if (s->asked == 0)
        return 0;
    double each = size->arrived / (double) s->asked;
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

int64_t scarce_slots_price(struct scarce *s, uint64_t broken) {
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
