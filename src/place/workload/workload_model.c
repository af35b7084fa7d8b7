/* SPDX-License-Identifier: Apache-2.0 */
#include "place/workload/workload_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "place/workload/scarce.h"
#include "place/workload/stranded.h"

#define CARD 1000
/* Of the forty rounds: finer differences are the luck of their draws. */
#define RESOLUTION_MIN 50

struct place_model {
    struct workload workload;
    struct stranded *stranded;
    struct scarce scarce;
    uint32_t tflops[WORKLOAD_MODELS_MAX]; /* of a card; 0: not known */
    int64_t resolution;
    uint32_t epoch;
};

struct place_model *place_model_new(void) {
    struct place_model *m = calloc(1, sizeof(*m));
    if (!m)
        return NULL;
    m->stranded = stranded_new();
    if (!m->stranded) {
        free(m);
        return NULL;
    }
    workload_init(&m->workload);
    scarce_init(&m->scarce, &m->workload);
    return m;
}

void place_model_free(struct place_model *m) {
    if (!m)
        return;
    stranded_free(m->stranded);
    free(m);
}

/* ---- learning ---- */

static uint32_t model_of(const struct place_node *node) {
    return node->model < WORKLOAD_MODELS_MAX ? node->model : WORKLOAD_MODELS_MAX - 1;
}

/* The TFLOPS as a percentage of a card, averaged over all allowed cards that have as many; 0: not
 * known. */
static uint32_t core_of_tflops(const struct place_plan *plan, uint32_t tflops) {
    const struct place_model *m = plan->model;
    uint64_t cards = 0, sum = 0;
    for (uint32_t i = 0; m && i < WORKLOAD_MODELS_MAX; i++) {
        if (!(plan->models >> i & 1) || m->tflops[i] < tflops)
            continue;
        cards += m->scarce.by_model[i];
        sum += m->scarce.by_model[i] * tflops * CORE_PER_CARD / m->tflops[i];
    }
    return cards ? (uint32_t) (sum / cards) : 0;
}

/* Memory asked in percent is as much of the histogram as compute is: what is larger counts. */
static void add_container(struct place_shape *shape, const struct place_plan *plan,
                          const struct container_request *req) {
    uint32_t core = req->whole ? CORE_PER_CARD : req->core;
    if (!req->whole && req->tflops > 0)
        core = core_of_tflops(plan, req->tflops);
    if (!req->whole && req->memory == 0 && req->memory_percent > core)
        core = req->memory_percent;
    if (req->replicas > 0) /* how many parts a card has differs from node to node */
        core = req->replicas < REPLICAS_PER_CARD ? req->replicas * CORE_PER_CARD / REPLICAS_PER_CARD
                                                 : CORE_PER_CARD;
    if (req->cards > 1 || core == CORE_PER_CARD || shape->core + core > CORE_PER_CARD) {
        shape->cards += req->cards;
        shape->core = core > shape->core ? core : shape->core;
    } else {
        shape->cards = shape->cards ? shape->cards : 1;
        shape->core += core;
        shape->memory += req->memory;
    }
    if (req->cards > 1 && !req->whole && req->memory > shape->memory)
        shape->memory = req->memory;
}

struct place_shape place_shape_of(const struct place_plan *plan) {
    struct place_shape shape = {.models = plan->models};
    shape.cpu = plan->cpu < UINT32_MAX ? (uint32_t) plan->cpu : UINT32_MAX;
    for (uint32_t i = 0; i < plan->request->n; i++)
        if (plan->request->containers[i].phase != CONTAINER_INIT)
            add_container(&shape, plan, &plan->request->containers[i]);
    for (uint32_t i = 0; shape.cards == 0 && i < plan->request->n; i++)
        add_container(&shape, plan, &plan->request->containers[i]); /* only init containers ask */
    return shape;
}

void place_model_learn(struct place_model *m) {
    stranded_learn(m->stranded, &m->workload);
    scarce_learn(&m->scarce);
    workload_settled(&m->workload);
    /* A mean of n arrivals, each of which may change it by a card. */
    m->resolution = m->workload.total ? (int64_t) (CARD / sqrt(m->workload.total)) : CARD;
    if (m->resolution < RESOLUTION_MIN)
        m->resolution = RESOLUTION_MIN;
    m->epoch++;
}

void place_model_arrive(struct place_model *m, const struct place_plan *plan) {
    struct place_shape shape = place_shape_of(plan);
    workload_add(&m->workload, &shape);
    scarce_arrived(&m->scarce, &shape);
    if (workload_is_news(&m->workload))
        place_model_learn(m);
}

uint32_t place_model_epoch(const struct place_model *m) {
    return m->epoch;
}

bool place_model_knows(const struct place_model *m) {
    return m && stranded_knows(m->stranded);
}

void place_model_allow(struct place_model *m, uint32_t states) {
    stranded_allow(m->stranded, states);
}

uint64_t place_model_short_estimates(const struct place_model *m) {
    return stranded_short_estimates(m->stranded);
}

bool place_model_has_time(const struct place_model *m) {
    return stranded_has_time(m->stranded);
}

void place_model_write(const struct place_model *m, const struct workload_names *names,
                       struct buf *out) {
    workload_write(&m->workload, names, out);
}

int place_model_read(struct place_model *m, const struct workload_names *names, const char *text,
                     size_t len) {
    int r = workload_read(&m->workload, names, text, len);
    if (r == 0 && workload_is_news(&m->workload))
        place_model_learn(m);
    return r;
}

/* ---- nodes ---- */

static uint32_t cpu_left(const struct place_node *node, uint64_t taken) {
    if (node->cpu == 0)
        return UINT32_MAX;
    uint64_t left = node->cpu_free > taken ? node->cpu_free - taken : 0;
    return left < UINT32_MAX ? (uint32_t) left : UINT32_MAX - 1;
}

static uint32_t percent_of(uint64_t part, uint64_t whole) {
    uint64_t unit = whole / CORE_PER_CARD;
    uint64_t percent = unit ? part / unit : 0;
    return percent < CORE_PER_CARD ? (uint32_t) percent : CORE_PER_CARD;
}

static bool is_idle(const struct place_card *card, const struct place_amount *held) {
    return card->memory > 0 && card->free.memory - held->memory == card->memory &&
           card->free.core - held->core == CORE_PER_CARD;
}

static const struct place_amount nothing[PLACE_CARDS_MAX];

static struct scarce_node scarce_of(const struct place_node *node, const struct place_amount *taken,
                                    uint64_t cpu) {
    struct scarce_node ret = {.cpu = cpu_left(node, cpu), .most = (uint32_t) node->cpu};
    ret.model = (uint8_t) model_of(node);
    for (uint32_t c = 0; c < node->ncards && c < PLACE_CARDS_MAX; c++) {
        if (!node->cards[c].healthy)
            continue;
        ret.cards++;
        ret.free += (node->cards[c].free.core +
                     percent_of(node->cards[c].free.memory, node->cards[c].memory)) *
                    5;
        ret.idle = (uint8_t) (ret.idle + is_idle(&node->cards[c], &taken[c]));
    }
    return ret;
}

void place_model_node(struct place_model *m, uint32_t id, const struct place_node *node) {
    struct scarce_node now = {0};
    if (node)
        now = scarce_of(node, nothing, 0);
    if (node && node->ncards > 0)
        m->tflops[model_of(node)] = node->cards[0].tflops;
    scarce_set(&m->scarce, id, &now);
}

void place_model_start(struct place_model *m, const struct place_plan *plan) {
    struct place_shape shape = place_shape_of(plan);
    scarce_run(&m->scarce, &shape, 1);
}

void place_model_end(struct place_model *m, const struct place_plan *plan) {
    struct place_shape shape = place_shape_of(plan);
    scarce_run(&m->scarce, &shape, -1);
}

/* ---- answers ---- */

static struct stranded_node stranded_of(struct place_model *m, const struct place_plan *plan,
                                        const struct place_node *node,
                                        const struct place_amount *taken) {
    struct stranded_node ret;
    ret.cpu = cpu_left(node, taken ? plan->cpu : 0);
    ret.ncards = 0;
    ret.kind = stranded_kind(m->stranded, node->model, node->ncards ? node->cards[0].memory : 0);
    if (!taken)
        taken = nothing;
    for (uint32_t c = 0; c < node->ncards && c < PLACE_CARDS_MAX; c++) {
        const struct place_card *card = &node->cards[c];
        if (card->healthy)
            ret.cards[ret.ncards++] =
                stranded_card(card->free.core - taken[c].core,
                              percent_of(card->free.memory - taken[c].memory, card->memory));
    }
    return ret;
}

void place_model_taken(const struct place_node *node, uint32_t card, const struct place_card *left,
                       const struct place_amount *amount,
                       struct place_amount ret[static PLACE_CARDS_MAX]) {
    const struct place_amount *free = &node->cards[card].free;
    memset(ret, 0, sizeof(*ret) * PLACE_CARDS_MAX);
    ret[card].memory = free->memory - left->free.memory + amount->memory;
    ret[card].core = free->core - left->free.core + amount->core;
}

int64_t place_model_expect(struct place_model *m, const struct place_plan *plan,
                           const struct place_node *node, const struct place_amount *taken) {
    struct stranded_node state = stranded_of(m, plan, node, taken);
    return stranded_expect(m->stranded, &state);
}

int64_t place_model_growth(struct place_model *m, const struct place_plan *plan,
                           const struct place_node *node, const struct place_amount *taken) {
    struct stranded_node before = stranded_of(m, plan, node, NULL);
    struct stranded_node after = stranded_of(m, plan, node, taken);
    return stranded_growth(m->stranded, &before, &after);
}

double place_model_next(struct place_model *m, const struct place_plan *plan,
                        const struct place_node *node, const struct place_amount *taken) {
    struct stranded_node state = stranded_of(m, plan, node, taken);
    return stranded_next(m->stranded, &state);
}

uint64_t place_model_broken(struct place_model *m, const struct place_plan *plan,
                            const struct place_node *node, const struct place_amount *taken) {
    struct scarce_node before = scarce_of(node, nothing, 0);
    struct scarce_node after = scarce_of(node, taken, plan->cpu);
    struct place_shape shape = place_shape_of(plan);
    return scarce_broken(&m->scarce, &before, &after, &shape);
}

int64_t place_model_slots_price(struct place_model *m, uint64_t broken) {
    return scarce_slots_price(&m->scarce, broken);
}

int64_t place_model_resolution(const struct place_model *m) {
    return m->resolution;
}
