/* SPDX-License-Identifier: Apache-2.0 */
#include "place/workload/scarce.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CARD 1000
/* Margin above the mean, in square roots of it: arrivals are Poisson, and this suffices in 98 of
 * 100 cases. */
#define LUCK 2
/* As many pods of a size as are assumed to choose their models as pods of all sizes do. */
#define PRIOR 8
#define BALANCE_STEPS 8 /* more change no price by a tenth */
/* Added to the slots of each model: demand has a place also where no model that it accepts has any.
 */
#define SLOTS_OF_NONE 0.01

/* Broken slots in 64 bits: the set of tiers of each size, the model, the size of the pod and how
 * many tiers are for pods like it. */
#define BROKEN_BITS (SCARCE_SIZES * SCARCE_TIERS)
#define MODEL_BITS 6
#define TIERS_BITS 4
_Static_assert(WORKLOAD_MODELS_MAX <= 1 << MODEL_BITS && SCARCE_TIERS < 1 << TIERS_BITS &&
                   BROKEN_BITS + MODEL_BITS + TIERS_BITS <= 60 && SCARCE_SIZES < 16,
               "broken slots fit into 64 bits");

void scarce_init(struct scarce *s, const struct workload *workload) {
    s->workload = workload;
}

/* ---- slots ---- */

static uint32_t slots_of(const struct scarce_node *node, const struct scarce_size *size,
                         uint32_t tier) {
    uint32_t slots = node->idle / size->cards, cpu = size->on[node->model].cpu[tier];
    if (node->cpu != UINT32_MAX && cpu > 0 && node->cpu / cpu < slots)
        slots = node->cpu / cpu;
    return slots;
}

static void count_slots(struct scarce *s, const struct scarce_node *node, bool adds) {
    for (uint32_t i = 0; i < s->nsizes; i++)
        for (uint32_t t = 0; t < SCARCE_TIERS; t++) {
            uint32_t slots = slots_of(node, &s->sizes[i], t);
            s->sizes[i].on[node->model].slots[t] += adds ? slots : -slots;
        }
}

static void count_node(struct scarce *s, const struct scarce_node *node, bool adds) {
    uint64_t cards = node->cards, free = node->free;
    s->cards += adds ? cards : -cards;
    s->free += adds ? free : -free;
    s->by_model[node->model] += adds ? cards : -cards;
    count_slots(s, node, adds);
}

/* ---- pods ---- */

/* What the pod takes of a card of its own, in thousandths: see struct scarce_choice. */
static uint32_t milli_of(const struct place_shape *shape) {
    return (uint32_t) (workload_milli(shape) / shape->cards);
}

static struct scarce_choice *choice_of(struct scarce *s, uint64_t models) {
    for (uint32_t i = 0; i < s->nchoices; i++)
        if (s->choices[i].models == models)
            return &s->choices[i];
    return NULL;
}

/* The index of the size; SCARCE_SIZES: it is not watched. */
static uint32_t size_of(const struct scarce *s, uint32_t cards) {
    uint32_t i = 0;
    while (i < s->nsizes && s->sizes[i].cards != cards)
        i++;
    return i < s->nsizes ? i : SCARCE_SIZES;
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
    if (shape->cards == 0)
        return;
    struct scarce_running *r = change > 0 ? begin_running(s, shape) : end_running(s, shape);
    struct scarce_choice *choice = r ? choice_of(s, r->models) : NULL;
    uint32_t size = r ? size_of(s, r->cards) : SCARCE_SIZES;
    if (choice && size < SCARCE_SIZES)
        choice->running[size] = (double) r->milli / CARD;
    s->priced = false;
}

void scarce_arrived(struct scarce *s, const struct place_shape *shape) {
    struct scarce_choice *choice = shape->cards > 0 ? choice_of(s, shape->models) : NULL;
    uint32_t size = size_of(s, shape->cards);
    if (choice && size < SCARCE_SIZES)
        choice->arrived[size] += (double) milli_of(shape) / CARD;
    s->asked += workload_milli(shape);
    s->priced = false;
}

/* ---- what there is ---- */

static int by_cpu(const void *a, const void *b) {
    const struct workload_count *x = *(const struct workload_count *const *) a;
    const struct workload_count *y = *(const struct workload_count *const *) b;
    return (x->shape.cpu > y->shape.cpu) - (x->shape.cpu < y->shape.cpu);
}

/* The tiers: the CPU that a quarter, half, nine tenths and all of the pods of as many cards that
 * accept the model ask at most, and how many need more than the tier below gives. The last is for a
 * pod larger than all so far, which may ask all of the largest node: after n of them, one in n + 1
 * (Laplace's rule). */
static void measure(const struct workload *w, uint32_t cards, uint32_t model,
                    struct scarce_slots *ret) {
    static const uint64_t percents[SCARCE_TIERS - 1] = {25, 50, 90, 100};
    const struct workload_count *like[WORKLOAD_SHAPES_MAX];
    uint64_t all = 0, sum = 0, below = 0;
    uint32_t n = 0, t = 0;
    for (uint32_t i = 0; i < w->n; i++)
        if (w->shapes[i].shape.cards == cards && (w->shapes[i].shape.models >> model & 1)) {
            like[n++] = &w->shapes[i];
            all += w->shapes[i].count;
        }
    qsort(like, n, sizeof(like[0]), by_cpu);
    for (uint32_t i = 0; i < n; i++) {
        sum += like[i]->count;
        if (i + 1 < n && like[i + 1]->shape.cpu == like[i]->shape.cpu)
            continue;
        for (; t < SCARCE_TIERS - 1 && sum * 100 >= all * percents[t]; t++) {
            ret->cpu[t] = like[i]->shape.cpu;
            ret->share[t] = (double) (all - below) / (double) all;
            below = sum;
        }
    }
    ret->share[SCARCE_TIERS - 1] = 1.0 / ((double) all + 1.0);
}

static void measure_model(struct scarce *s, uint32_t model) {
    for (uint32_t i = 0; i < s->nsizes; i++)
        measure(s->workload, s->sizes[i].cards, model, &s->sizes[i].on[model]);
    s->measured |= UINT64_C(1) << model;
}

/* The last tier: all CPU of the largest node of the model with as many cards. */
static void measure_nodes(struct scarce *s) {
    for (uint32_t id = 0; id < SCARCE_NODES_MAX; id++) {
        const struct scarce_node *node = &s->nodes[id];
        for (uint32_t i = 0; i < s->nsizes; i++) {
            uint32_t *most = &s->sizes[i].on[node->model].cpu[SCARCE_TIERS - 1];
            if (node->cards >= s->sizes[i].cards && node->most > *most)
                *most = node->most;
        }
    }
}

/* The numbers of cards with the largest total requests, at most SCARCE_SIZES. */
static void list_sizes(struct scarce *s) {
    const struct workload *w = s->workload;
    uint64_t asked[WORKLOAD_CARDS_MAX + 1] = {0};
    for (uint32_t i = 0; i < w->n; i++)
        asked[w->shapes[i].shape.cards] += workload_milli(&w->shapes[i].shape) * w->shapes[i].count;
    for (s->nsizes = 0; s->nsizes < SCARCE_SIZES; s->nsizes++) {
        uint32_t most = 0;
        for (uint32_t cards = 1; cards <= WORKLOAD_CARDS_MAX; cards++)
            if (asked[cards] > asked[most])
                most = cards;
        if (most == 0)
            break;
        asked[most] = 0;
        s->sizes[s->nsizes] = (struct scarce_size){.cards = most};
    }
}

/* A set of accepted models, and what its pods ask together in thousandths of cards. */
struct asked {
    uint64_t models, milli;
};

static int by_models(const void *a, const void *b) {
    const struct asked *x = a, *y = b;
    return (x->models > y->models) - (x->models < y->models);
}

static int by_milli(const void *a, const void *b) {
    const struct asked *x = a, *y = b;
    return x->milli != y->milli ? (x->milli < y->milli) - (x->milli > y->milli) : by_models(a, b);
}

static bool is_counted(const struct scarce *s, const struct place_shape *shape) {
    return shape->cards > 0 && size_of(s, shape->cards) < SCARCE_SIZES;
}

/* The sets with the largest total requests; returns their number, at most SCARCE_CHOICES. */
static uint32_t most_asked(const struct scarce *s, struct asked ret[static WORKLOAD_SHAPES_MAX]) {
    const struct workload *w = s->workload;
    uint32_t n = 0, sets = 0;
    for (uint32_t i = 0; i < w->n; i++)
        if (is_counted(s, &w->shapes[i].shape))
            ret[n++] = (struct asked){w->shapes[i].shape.models,
                                      workload_milli(&w->shapes[i].shape) * w->shapes[i].count};
    qsort(ret, n, sizeof(ret[0]), by_models);
    for (uint32_t i = 0; i < n; i++)
        if (sets > 0 && ret[sets - 1].models == ret[i].models)
            ret[sets - 1].milli += ret[i].milli;
        else
            ret[sets++] = ret[i];
    qsort(ret, sets, sizeof(ret[0]), by_milli);
    return sets < SCARCE_CHOICES ? sets : SCARCE_CHOICES;
}

static void add_choice(struct scarce *s, uint64_t models, const struct asked most[], uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (most[i].models == models)
            s->choices[s->nchoices++] = (struct scarce_choice){.models = models};
}

/* The sets of accepted models that are watched, with their arrivals, in the order in which they
 * came. */
static void list_choices(struct scarce *s) {
    const struct workload *w = s->workload;
    struct asked most[WORKLOAD_SHAPES_MAX];
    uint32_t n = most_asked(s, most);
    s->nchoices = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        const struct place_shape *shape = &w->shapes[i].shape;
        if (!is_counted(s, shape))
            continue;
        if (!choice_of(s, shape->models))
            add_choice(s, shape->models, most, n);
        struct scarce_choice *choice = choice_of(s, shape->models);
        if (choice)
            choice->arrived[size_of(s, shape->cards)] +=
                (double) milli_of(shape) * w->shapes[i].count / CARD;
    }
    for (uint32_t i = 0; i < s->nchoices; i++)
        for (uint32_t j = 0; j < s->nsizes; j++) {
            const struct scarce_running *r = running_of(s, s->sizes[j].cards, s->choices[i].models);
            s->choices[i].running[j] = r ? (double) r->milli / CARD : 0;
        }
}

void scarce_learn(struct scarce *s) {
    s->asked = s->workload->milli;
    s->priced = false;
    list_sizes(s);
    list_choices(s);
    measure_nodes(s);
    s->measured = 0;
    for (uint32_t model = 0; model < WORKLOAD_MODELS_MAX; model++)
        if (s->by_model[model] > 0)
            measure_model(s, model);
    for (uint32_t id = 0; id < SCARCE_NODES_MAX; id++)
        if (s->nodes[id].cards > 0)
            count_slots(s, &s->nodes[id], true);
}

void scarce_set(struct scarce *s, uint32_t id, const struct scarce_node *node) {
    if (id >= SCARCE_NODES_MAX)
        return;
    count_node(s, &s->nodes[id], false);
    s->nodes[id] = *node;
    if (node->cards > 0 && !(s->measured >> node->model & 1))
        measure_model(s, node->model);
    count_node(s, node, true);
    s->priced = false;
}

/* ---- broken slots ---- */

/* The tiers, from the first on, that are for pods that ask as much CPU. */
static uint32_t own_tiers(const struct scarce_slots *on, uint32_t cpu) {
    uint32_t n = 1;
    while (n < SCARCE_TIERS && cpu > on->cpu[n - 1])
        n++;
    return n;
}

uint64_t scarce_broken(const struct scarce *s, const struct scarce_node *before,
                       const struct scarce_node *after, const struct place_shape *shape) {
    uint64_t broken = 0, own = size_of(s, shape->cards), tiers = 0;
    for (uint32_t i = 0; i < s->nsizes; i++) {
        const struct scarce_size *size = &s->sizes[i];
        if (shape->cards > size->cards)
            continue;
        for (uint32_t t = 0; t < SCARCE_TIERS; t++)
            if (slots_of(after, size, t) < slots_of(before, size, t))
                broken |= UINT64_C(1) << (i * SCARCE_TIERS + t);
    }
    if (broken == 0)
        return 0;
    if (own < SCARCE_SIZES)
        tiers = own_tiers(&s->sizes[own].on[before->model], shape->cpu);
    return broken | (uint64_t) before->model << BROKEN_BITS | tiers << (BROKEN_BITS + MODEL_BITS) |
           own << (BROKEN_BITS + MODEL_BITS + TIERS_BITS);
}

/* ---- demand ---- */

/* Pods of one size that are still to be expected, by model. */
struct demand {
    double pods[WORKLOAD_MODELS_MAX];
    double named[WORKLOAD_MODELS_MAX]; /* of these, the pods that do not accept every model */
};

/* What all prices of one moment are made of. */
struct arrivals {
    double all;
    double of_size[SCARCE_SIZES];
    double of_choice[SCARCE_CHOICES];
};

static struct arrivals arrivals_of(const struct scarce *s) {
    struct arrivals ret = {0};
    for (uint32_t i = 0; i < s->nchoices; i++)
        for (uint32_t j = 0; j < s->nsizes; j++) {
            ret.all += s->choices[i].arrived[j];
            ret.of_size[j] += s->choices[i].arrived[j];
            ret.of_choice[i] += s->choices[i].arrived[j];
        }
    return ret;
}

/* How many pods of the size and choice are still to be expected until the cluster is full of what
 * arrives: as many as bring the mean about but do not run yet, or as many as come by chance onto
 * what is free, whichever is more. While few pods of the size have arrived, they are expected to
 * choose as pods of all sizes do. */
static double due(const struct scarce *s, const struct arrivals *a, uint32_t choice,
                  uint32_t size) {
    if (s->asked == 0 || a->all <= 0)
        return 0;
    double prior = PRIOR * a->of_choice[choice] / a->all;
    double part = (s->choices[choice].arrived[size] + prior) / (a->of_size[size] + PRIOR);
    double each = part * a->of_size[size] / (double) s->asked;
    double mean = (double) s->cards * CARD * each - s->choices[choice].running[size];
    double chance = (double) s->free * each;
    return mean > chance ? mean : chance;
}

/* Adds the pods to the models, in proportion to their weights. */
static void divide(double pods, uint64_t models, const double weight[], double ret[]) {
    double sum = 0;
    for (uint64_t left = models; left; left &= left - 1)
        sum += weight[__builtin_ctzll(left)];
    for (uint64_t left = models; left; left &= left - 1)
        ret[__builtin_ctzll(left)] += pods * weight[__builtin_ctzll(left)] / sum;
}

static double slots_on(const struct scarce_size *size, uint32_t model) {
    return size->on[model].slots[0] + SLOTS_OF_NONE;
}

/* The demand for one size, divided among the models such that none is in more demand for its slots
 * than it must be: each step moves demand from models where it is high to others. */
static struct demand demand_for(const struct scarce *s, const struct arrivals *a, uint32_t index) {
    const struct scarce_size *size = &s->sizes[index];
    double pods[SCARCE_CHOICES], weight[WORKLOAD_MODELS_MAX] = {0};
    uint64_t models = 0;
    for (uint32_t m = 0; m < WORKLOAD_MODELS_MAX; m++)
        if (s->by_model[m] > 0) {
            models |= UINT64_C(1) << m;
            weight[m] = slots_on(size, m);
        }
    /* One card of any model is no slot. */
    for (uint32_t i = 0; i < s->nchoices; i++) {
        bool any = size->cards == 1 && s->choices[i].models == WORKLOAD_ANY_MODEL;
        pods[i] = any ? 0 : due(s, a, i, index);
    }
    for (uint32_t step = 1; step < BALANCE_STEPS; step++) {
        double sum[WORKLOAD_MODELS_MAX] = {0};
        for (uint32_t i = 0; i < s->nchoices; i++)
            divide(pods[i], s->choices[i].models & models, weight, sum);
        for (uint64_t left = models; left; left &= left - 1) {
            uint32_t m = (uint32_t) __builtin_ctzll(left);
            weight[m] /= 0.1 + sum[m] / slots_on(size, m);
        }
    }
    struct demand ret = {0};
    for (uint32_t i = 0; i < s->nchoices; i++) {
        divide(pods[i], s->choices[i].models & models, weight, ret.pods);
        if (s->choices[i].models != WORKLOAD_ANY_MODEL)
            divide(pods[i], s->choices[i].models & models, weight, ret.named);
    }
    return ret;
}

/* ---- prices ---- */

/* Next to nothing while slots abound, all of it when there are just enough. */
static double steep(double x) {
    x *= x;
    return x * x;
}

/* Pods of more cards that name models take cards of that model, too: `more` pods of this size. */
static void set_price(struct scarce_slots *on, uint32_t cards, double pods, double more) {
    for (uint32_t t = 0; t < SCARCE_TIERS; t++) {
        double wanted = pods * on->share[t];
        wanted += LUCK * sqrt(wanted) + more * on->share[t];
        double ratio = wanted < on->slots[t] ? wanted / on->slots[t] : 1;
        on->price[t] = (int64_t) (CARD * cards * steep(ratio));
    }
}

static void set_prices(struct scarce *s) {
    struct demand demand[SCARCE_SIZES];
    struct arrivals arrivals = arrivals_of(s);
    for (uint32_t i = 0; i < s->nsizes; i++)
        demand[i] = demand_for(s, &arrivals, i);
    for (uint32_t i = 0; i < s->nsizes; i++)
        for (uint32_t m = 0; m < WORKLOAD_MODELS_MAX; m++) {
            uint32_t cards = s->sizes[i].cards;
            double more = 0;
            for (uint32_t j = 0; j < s->nsizes; j++)
                if (s->sizes[j].cards > cards)
                    more += demand[j].named[m] * s->sizes[j].cards / cards;
            if (s->by_model[m] > 0)
                set_price(&s->sizes[i].on[m], cards, demand[i].pods[m], more);
        }
    s->priced = true;
}

/* The dearest of the broken slots of one size. */
static int64_t price_of(const struct scarce_slots *on, uint32_t tiers) {
    int64_t most = 0;
    for (uint32_t t = 0; t < SCARCE_TIERS; t++)
        if ((tiers >> t & 1) && on->price[t] > most)
            most = on->price[t];
    return most;
}

int64_t scarce_slots_price(struct scarce *s, uint64_t broken) {
    int64_t sum = 0;
    if (broken == 0)
        return 0;
    if (!s->priced)
        set_prices(s);
    uint32_t model = (uint32_t) (broken >> BROKEN_BITS) % WORKLOAD_MODELS_MAX;
    uint32_t tiers = (uint32_t) (broken >> (BROKEN_BITS + MODEL_BITS)) % (1 << TIERS_BITS);
    uint64_t own = broken >> (BROKEN_BITS + MODEL_BITS + TIERS_BITS);
    for (uint32_t i = 0; i < s->nsizes; i++) {
        uint32_t set = (uint32_t) (broken >> (i * SCARCE_TIERS)) % (1 << SCARCE_TIERS);
        uint32_t needed = i == own ? (1U << tiers) - 1 : 0;
        const struct scarce_slots *on = &s->sizes[i].on[model];
        /* Of its own size a pod pays for the slot that it needs, as on every node of the model, and
         * beside that for CPU that it does not need. */
        sum += price_of(on, set & needed) + price_of(on, set & ~needed);
    }
    return sum;
}
