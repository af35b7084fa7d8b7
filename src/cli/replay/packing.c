/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/replay/packing.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#define MILLI_PER_CORE 10
#define CARD_MILLI 1000
#define CARD_MEMORY                                                                                \
    (UINT64_C(100) << 20) /* traces have no memory sizes: shares count by compute only */
#define RANKS 100000
/* Shapes whose results are cached; the oldest is evaluated again when there are more. */
#define ROWS_MAX 1024
#define ROWS_BYTES (UINT64_C(1) << 30)

/* The result of a node for a shape. */
struct answer {
    uint32_t version; /* of the node; 0: not evaluated yet */
    bool fits;
    struct place_worth worth;
};

struct row {
    struct trace_pod shape; /* its name and times do not count */
    uint32_t epoch;         /* of the model */
    struct answer *answers; /* by node */
};

struct node {
    struct place_node place;
    uint32_t version;
};

struct packing {
    const struct trace *trace;
    const struct packing_options *options;
    struct place_model *model;
    struct place_card *cards; /* of all nodes */
    struct node *nodes;
    struct row *rows;
    size_t nrows, rows_max;
    size_t next_row; /* the one to replace when all are in use */
    uint64_t arrivals;
    uint64_t used, capacity;
};

static const uint64_t all_cards[GPU_CONTAINERS_MAX] = {UINT64_MAX};
static const uint64_t no_cards[GPU_CONTAINERS_MAX];

/* ---- pods as requests ---- */

static void request_of(const struct trace_pod *pod, struct gpu_request *ret) {
    struct container_request *req = &ret->containers[0];
    ret->n = pod->gpus > 0;
    *req =
        (struct container_request){.container = "main", .phase = CONTAINER_APP, .cards = pod->gpus};
    req->whole = pod->milli == CARD_MILLI;
    if (!req->whole)
        req->core = (pod->milli + MILLI_PER_CORE - 1) / MILLI_PER_CORE;
    if (req->core == CORE_PER_CARD) {
        req->whole = true;
        req->core = 0;
    }
}

static void plan_of(struct packing *p, const struct trace_pod *pod, struct gpu_request *request,
                    struct place_plan *ret) {
    request_of(pod, request);
    place_prepare(request, ret);
    ret->cpu = pod->cpu;
    ret->memory = pod->memory;
    ret->models = pod->models;
    ret->model = p->model;
}

static bool same_shape(const struct trace_pod *a, const struct trace_pod *b) {
    return a->cpu == b->cpu && a->memory == b->memory && a->gpus == b->gpus &&
           a->milli == b->milli && a->models == b->models;
}

/* ---- the cluster ---- */

static void make_node(struct packing *p, uint32_t i, struct place_card *cards) {
    const struct trace_node *from = &p->trace->nodes[i];
    struct node *node = &p->nodes[i];
    for (uint32_t c = 0; c < from->gpus; c++)
        cards[c] = (struct place_card){
            .memory = CARD_MEMORY,
            .free = place_amount_of_card(CARD_MEMORY),
            .healthy = true,
            .physical = CARD_MEMORY,
        };
    node->version = 1;
    node->place = (struct place_node){.cards = cards, .ncards = from->gpus, .rank = i};
    node->place.cpu = node->place.cpu_free = from->cpu;
    node->place.memory = node->place.memory_free = from->memory;
    node->place.model = from->model;
    p->capacity += (uint64_t) from->gpus * CARD_MILLI;
    place_model_node(p->model, i, &node->place);
}

static int make_cluster(struct packing *p) {
    size_t n = p->trace->nnodes, cards = 0, at = 0;
    for (size_t i = 0; i < n; i++)
        cards += p->trace->nodes[i].gpus;
    p->model = place_model_new();
    p->cards = calloc(cards + 1, sizeof(*p->cards));
    p->nodes = calloc(n + 1, sizeof(*p->nodes));
    p->rows_max = ROWS_BYTES / ((n + 1) * sizeof(struct answer));
    p->rows_max = p->rows_max < ROWS_MAX ? p->rows_max : ROWS_MAX;
    p->rows = calloc(p->rows_max, sizeof(*p->rows));
    if (!p->model || !p->cards || !p->nodes || !p->rows)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++) {
        make_node(p, i, &p->cards[at]);
        at += p->trace->nodes[i].gpus;
    }
    return 0;
}

static void learn_beforehand(struct packing *p, const struct trace *workload) {
    struct gpu_request request;
    struct place_plan plan;
    for (size_t i = 0; i < workload->npods; i++) {
        plan_of(p, &workload->pods[i], &request, &plan);
        place_model_arrive(p->model, &plan);
    }
    place_model_learn(p->model);
}

int packing_new(const struct trace *trace, const struct packing_options *options,
                struct packing **ret, struct err *err) {
    struct packing *p = calloc(1, sizeof(*p));
    if (!p)
        return err_errno(err, ENOMEM, "cannot make the cluster");
    p->trace = trace;
    p->options = options;
    if (make_cluster(p) < 0) {
        packing_free(p);
        return err_errno(err, ENOMEM, "cannot make the cluster");
    }
    if (options->workload)
        learn_beforehand(p, options->workload);
    *ret = p;
    return 0;
}

void packing_free(struct packing *p) {
    if (!p)
        return;
    for (size_t r = 0; r < p->nrows; r++)
        free(p->rows[r].answers);
    place_model_free(p->model);
    free(p->rows);
    free(p->nodes);
    free(p->cards);
    free(p);
}

uint64_t packing_capacity(const struct packing *p) {
    return p->capacity;
}

uint64_t packing_used(const struct packing *p) {
    return p->used;
}

/* ---- results ---- */

/* The row of the shape; a new one takes the place of the oldest when there is no more room. */
static struct row *row_of(struct packing *p, const struct trace_pod *pod) {
    for (size_t r = 0; r < p->nrows; r++)
        if (same_shape(&p->rows[r].shape, pod))
            return &p->rows[r];
    struct row *row = &p->rows[p->nrows];
    if (p->nrows == p->rows_max) {
        assert(p->rows_max > 0); /* TRACE_NODES_MAX leaves room for some */
        row = &p->rows[p->next_row];
        p->next_row = (p->next_row + 1) % p->rows_max;
        memset(row->answers, 0, p->trace->nnodes * sizeof(*row->answers));
    } else {
        row->answers = calloc(p->trace->nnodes + 1, sizeof(*row->answers));
        if (!row->answers)
            return NULL;
        p->nrows++;
    }
    row->shape = *pod;
    return row;
}

/* kube-scheduler checks CPU and memory; here is none. */
static bool has_room(const struct place_node *node, const struct place_plan *plan) {
    return plan->cpu <= node->cpu_free && plan->memory <= node->memory_free;
}

static bool ask_node(struct packing *p, struct place_plan *plan, struct node *node,
                     struct place_result *ret) {
    if (!has_room(&node->place, plan))
        return false;
    node->place.allowed = plan->models >> node->place.model & 1 ? all_cards : no_cards;
    if (plan->request->n == 0)
        node->place.allowed = NULL;
    return place_on_node(p->options->policy, plan, &node->place, ret) == PLACE_OK;
}

/* A number from 0 to RANKS - 1, the same for the same seed, arrival and node. */
static uint32_t throw_dice(const struct packing *p, uint32_t node) {
    uint64_t z = p->options->seed * UINT64_C(0x9e3779b97f4a7c15) + p->arrivals;
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9) + node;
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    return (uint32_t) ((z ^ z >> 31) % RANKS);
}

static void evaluate_node(struct packing *p, struct place_plan *plan, uint32_t i,
                          struct answer *ret) {
    struct place_result result;
    uint64_t estimates = place_model_short_estimates(p->model);
    ret->fits = ask_node(p, plan, &p->nodes[i], &result);
    ret->worth = ret->fits ? result.worth : (struct place_worth){0};
    ret->worth.rough = place_model_short_estimates(p->model) != estimates;
    ret->version = p->nodes[i].version;
}

static uint32_t best_of(struct packing *p, struct place_plan *plan, struct row *row) {
    uint32_t best = PACKING_NOWHERE;
    int64_t most = 0;
    for (uint32_t i = 0; i < p->trace->nnodes; i++) {
        struct answer *answer = &row->answers[i];
        if (answer->version != p->nodes[i].version)
            evaluate_node(p, plan, i, answer);
        if (!answer->fits)
            continue;
        uint32_t rank = p->options->random_ties ? throw_dice(p, i) : i;
        int64_t score = place_score(p->options->policy, plan, &answer->worth, rank);
        if (best == PACKING_NOWHERE || score > most) {
            best = i;
            most = score;
        }
    }
    return best;
}

/* All nodes roughly, the best in detail: the same effort as in the scheduler. */
static uint32_t choose(struct packing *p, struct place_plan *plan, struct row *row) {
    if (row->epoch != place_model_epoch(p->model))
        memset(row->answers, 0, p->trace->nnodes * sizeof(*row->answers));
    row->epoch = place_model_epoch(p->model);
    place_model_allow(p->model, 0);
    uint32_t best = best_of(p, plan, row);
    place_model_allow(p->model, PLACE_MODEL_STATES);
    while (best != PACKING_NOWHERE && row->answers[best].worth.rough &&
           place_model_has_time(p->model)) {
        evaluate_node(p, plan, best, &row->answers[best]);
        best = best_of(p, plan, row);
    }
    return best;
}

/* ---- holding ---- */

static void update_cards(struct packing *p, const struct place_plan *plan,
                         const struct trace_pod *pod, const struct packing_place *at, bool takes) {
    struct node *node = &p->nodes[at->node];
    struct place_card *cards = &p->cards[node->place.cards - p->cards];
    uint64_t milli = (uint64_t) pod->milli * pod->gpus;
    for (uint32_t c = 0; c < node->place.ncards; c++) {
        if (!(at->cards >> c & 1))
            continue;
        struct place_amount share = place_share(&plan->request->containers[0], &cards[c]);
        cards[c].free.memory += takes ? -share.memory : share.memory;
        cards[c].free.core += takes ? -share.core : share.core;
    }
    node->place.cpu_free += takes ? -pod->cpu : pod->cpu;
    node->place.memory_free += takes ? -pod->memory : pod->memory;
    node->version++;
    p->used += takes ? milli : -milli;
    place_model_node(p->model, at->node, &node->place);
    if (takes)
        place_model_start(p->model, plan);
    else
        place_model_end(p->model, plan);
}

int packing_put(struct packing *p, const struct trace_pod *pod, struct packing_place *ret,
                struct err *err) {
    struct gpu_request request;
    struct place_plan plan;
    struct place_result result = {0};
    struct row *row = row_of(p, pod);
    if (!row)
        return err_errno(err, ENOMEM, "cannot place %s", pod->name);
    plan_of(p, pod, &request, &plan);
    if (!p->options->workload)
        place_model_arrive(p->model, &plan);
    p->arrivals++;
    *ret = (struct packing_place){.node = choose(p, &plan, row)};
    if (ret->node == PACKING_NOWHERE)
        return 0;
    /* The cost of cards may have changed since the node was evaluated. */
    (void) ask_node(p, &plan, &p->nodes[ret->node], &result);
    ret->cards = pod->gpus > 0 ? result.cards[0] : 0;
    update_cards(p, &plan, pod, ret, true);
    return 0;
}

void packing_take(struct packing *p, const struct trace_pod *pod,
                  const struct packing_place *place) {
    struct gpu_request request;
    struct place_plan plan;
    plan_of(p, pod, &request, &plan);
    update_cards(p, &plan, pod, place, false);
}
