/* SPDX-License-Identifier: Apache-2.0 */
#include "place/defrag.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "place/amounts.h"

#define EXACT_CARDS 10    /* that could be emptied: every set of them is tried */
#define EXACT_PODS 16     /* on them */
#define EXACT_TRIES 20000 /* at nodes, for one set */
#define TRIES 4000        /* at cards, for one pod on one node */
#define EFFORT 10000000   /* placements tried in all: some seconds */
#define SHAPES_MAX 256    /* of requests, of which it is remembered where they fit */
#define NO_SHAPE UINT32_MAX

/* What is known of a shape on a node. */
struct seen {
    uint64_t version; /* the node's when it was found out */
    int64_t score;
    bool fits;
};

struct shape {
    const struct gpu_request *request; /* of the first pod that has it */
    struct seen *on;                   /* by node; NULL: nothing is known yet */
};

struct planner {
    const struct defrag_case *of;
    struct place_node *nodes; /* with our own cards */
    struct place_card *cards; /* free as of the moves so far; healthy: may be gone to */
    uint32_t ncards;
    uint64_t *version; /* by node: counts its changes, from 1 */
    bool *target;      /* by card: in use, and healthy */
    bool *emptied;     /* by card: is to be emptied */
    uint32_t *users;   /* pods on each card before any move, those of one card together */
    uint32_t *begin;   /* by card: where its pods begin there; one more than there are cards */
    uint32_t *arrived; /* by card: pods that have moved there */
    uint64_t *could;   /* cards that could be emptied, the least used ones first: that number
                          above, the card below */
    uint32_t ncould;
    bool *moved;     /* by pod */
    uint32_t *shape; /* by pod */
    struct shape shapes[SHAPES_MAX];
    uint32_t nshapes;
    struct defrag_move *moves;
    uint32_t nmoves, max_moves;
    uint32_t tries, effort;
    struct place_plan plan;
};

static uint32_t could_card(const struct planner *p, uint32_t i) {
    return (uint32_t) p->could[i];
}

static uint32_t card_of(const struct planner *p, const struct defrag_pod *pod, uint32_t i) {
    return p->of->first[pod->node] + pod->amounts[i].card;
}

/* ---- moving ---- */

static void add(struct place_amount *to, const struct place_amount *amount, bool plus) {
    to->memory = plus ? to->memory + amount->memory : to->memory - amount->memory;
    to->core = plus ? to->core + amount->core : to->core - amount->core;
    to->slots = plus ? to->slots + amount->slots : to->slots - amount->slots;
}

/* What the pod takes of the cards where it goes to. */
static void count_arrival(struct planner *p, const struct defrag_move *move, bool there) {
    const struct gpu_request *request = p->of->pods[move->pod].request;
    const struct place_node *node = &p->nodes[move->node];
    for (uint32_t c = 0; c < node->ncards; c++) {
        uint32_t at = p->of->first[move->node] + c, containers = 0;
        for (uint32_t i = 0; i < request->n; i++)
            containers |= (uint32_t) (move->cards[i] >> c & 1) << i;
        struct place_amount total = place_held_by(request, node, containers, c);
        add(&p->cards[at].free, &total, !there);
        uint32_t arrived = (uint32_t) __builtin_popcount(containers);
        p->arrived[at] += there ? arrived : -arrived;
    }
    p->version[move->node]++;
}

static void leave(struct planner *p, const struct defrag_pod *pod, bool left) {
    for (uint32_t h = 0; h < pod->namounts; h++)
        add(&p->cards[card_of(p, pod, h)].free, &pod->amounts[h].amount, left);
    p->version[pod->node]++;
}

/* What it leaves becomes free only when it is there. */
static void make_move(struct planner *p, const struct defrag_move *move) {
    const struct defrag_pod *pod = &p->of->pods[move->pod];
    count_arrival(p, move, true);
    leave(p, pod, true);
    p->moved[move->pod] = true;
    p->moves[p->nmoves++] = *move;
}

static void take_back(struct planner *p) {
    const struct defrag_move *move = &p->moves[--p->nmoves];
    const struct defrag_pod *pod = &p->of->pods[move->pod];
    leave(p, pod, false);
    count_arrival(p, move, false);
    p->moved[move->pod] = false;
}

/* ---- where a pod could go ---- */

static bool place(struct planner *p, uint32_t pod, uint32_t node, struct defrag_move *ret) {
    const struct defrag_pod *of = &p->of->pods[pod];
    if ((of->at_home && of->node != node) || p->effort == 0)
        return false;
    p->effort--;
    place_prepare(of->request, &p->plan);
    p->plan.effort = TRIES;
    struct place_result result;
    if (place_on_node(p->of->policy, &p->plan, &p->nodes[node], &result) != PLACE_OK)
        return false;
    *ret = (struct defrag_move){.pod = pod, .node = node, .score = result.score};
    memcpy(ret->cards, result.cards, sizeof(ret->cards));
    return true;
}

static void open_cards(struct planner *p) {
    for (uint32_t c = 0; c < p->ncards; c++)
        p->cards[c].healthy = p->target[c] && !p->emptied[c];
}

static bool wants_one_card(const struct gpu_request *request) {
    return request->n == 1 && request->containers[0].cards <= 1;
}

static bool search(struct planner *p, const uint32_t *pods, uint32_t n);

/* Goes there and on to the other pods; comes back if those find no place then. */
static bool try_move(struct planner *p, const struct defrag_move *move, const uint32_t *pods,
                     uint32_t n) {
    make_move(p, move);
    if (search(p, pods, n))
        return true;
    take_back(p);
    return false;
}

/* The pod on each card of the node by itself: where it goes decides what is left for the others. */
static bool try_cards(struct planner *p, uint32_t node, const uint32_t *pods, uint32_t n) {
    struct place_card *cards = &p->cards[p->of->first[node]];
    bool found = false;
    for (uint32_t c = 0; !found && c < p->nodes[node].ncards; c++) {
        bool open[PLACE_CARDS_MAX];
        struct defrag_move move;
        if (!cards[c].healthy)
            continue;
        for (uint32_t i = 0; i < p->nodes[node].ncards; i++) {
            open[i] = cards[i].healthy;
            cards[i].healthy = i == c;
        }
        bool fits = place(p, pods[0], node, &move);
        for (uint32_t i = 0; i < p->nodes[node].ncards; i++)
            cards[i].healthy = open[i];
        found = fits && try_move(p, &move, pods + 1, n - 1);
    }
    return found;
}

/* Finds a place for all of the pods. */
static bool search(struct planner *p, const uint32_t *pods, uint32_t n) {
    if (n == 0)
        return true;
    for (uint32_t node = 0; node < p->of->nnodes && p->tries > 0; node++) {
        struct defrag_move move;
        p->tries--;
        if (wants_one_card(p->of->pods[pods[0]].request)
                ? try_cards(p, node, pods, n)
                : place(p, pods[0], node, &move) && try_move(p, &move, pods + 1, n - 1))
            return true;
    }
    return false;
}

/* ---- every set of few cards ---- */

static uint64_t size_of(const struct defrag_pod *pod) {
    uint64_t size = 0;
    for (uint32_t h = 0; h < pod->namounts; h++)
        size += pod->amounts[h].amount.memory;
    return size;
}

static bool goes_before(const struct planner *p, uint32_t pod, uint32_t other) {
    uint64_t size = size_of(&p->of->pods[pod]), others = size_of(&p->of->pods[other]);
    return size != others ? size > others : pod < other;
}

/* Adds a pod to those, the largest first, unless it is there. */
static uint32_t add_pod(const struct planner *p, uint32_t pod, uint32_t *pods, uint32_t n) {
    uint32_t at = n;
    for (uint32_t i = 0; i < n; i++)
        if (pods[i] == pod)
            return n;
    for (; at > 0 && goes_before(p, pod, pods[at - 1]); at--)
        pods[at] = pods[at - 1];
    pods[at] = pod;
    return n + 1;
}

/* Who is on a card of the set; no more than one too many. */
static uint32_t who_moves(const struct planner *p, uint32_t set, uint32_t ret[EXACT_PODS + 1]) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->ncould; i++)
        for (uint32_t u = p->begin[could_card(p, i)];
             (set >> i & 1) && n <= EXACT_PODS && u < p->begin[could_card(p, i) + 1]; u++)
            n = add_pod(p, p->users[u], ret, n);
    return n;
}

static void begin_anew(struct planner *p) {
    while (p->nmoves > 0)
        take_back(p);
    memset(p->emptied, 0, p->ncards * sizeof(*p->emptied));
    open_cards(p);
}

static bool try_set(struct planner *p, uint32_t set, uint32_t *pods, uint32_t n) {
    for (uint32_t c = 0; c < p->ncould; c++)
        p->emptied[could_card(p, c)] = set >> c & 1;
    open_cards(p);
    while (p->nmoves > 0)
        take_back(p);
    p->tries = EXACT_TRIES;
    return search(p, pods, n);
}

/* The largest set of cards, and of those the one with the fewest moves. */
static void try_sets(struct planner *p, uint32_t *pods) {
    for (uint32_t size = p->ncould; size > 0; size--) {
        uint32_t fewest = p->max_moves + 1, best = 0;
        for (uint32_t set = 1; set < UINT32_C(1) << p->ncould; set++) {
            if ((uint32_t) __builtin_popcount(set) != size)
                continue;
            uint32_t n = who_moves(p, set, pods);
            if (n < fewest && try_set(p, set, pods, n)) {
                fewest = n;
                best = set;
            }
        }
        if (best && try_set(p, best, pods, who_moves(p, best, pods)))
            return;
    }
    begin_anew(p);
}

/* ---- one card after the other ---- */

/* What is known of the pod on that node, found out if need be. */
static struct seen evaluate(struct planner *p, uint32_t pod, uint32_t node) {
    struct shape *shape = p->shape[pod] == NO_SHAPE ? NULL : &p->shapes[p->shape[pod]];
    struct seen *known = NULL;
    struct defrag_move move;
    if (shape && !shape->on)
        shape->on = calloc(p->of->nnodes, sizeof(*shape->on)); /* without memory it takes longer */
    if (shape && shape->on)
        known = &shape->on[node];
    if (known && known->version == p->version[node])
        return *known;
    const bool fits = place(p, pod, node, &move);
    const struct seen seen = {p->version[node], fits ? move.score : 0, fits};
    if (known && p->effort > 0)
        *known = seen;
    return seen;
}

static bool best_place(struct planner *p, uint32_t pod, struct defrag_move *ret) {
    const struct defrag_pod *of = &p->of->pods[pod];
    uint32_t best = p->of->nnodes;
    int64_t most = 0;
    if (of->at_home)
        return place(p, pod, of->node, ret);
    for (uint32_t node = 0; node < p->of->nnodes; node++) {
        const struct seen seen = evaluate(p, pod, node);
        if (!seen.fits || (best < p->of->nnodes && seen.score <= most))
            continue;
        best = node;
        most = seen.score;
    }
    return best < p->of->nnodes && place(p, pod, best, ret);
}

static void set_emptied(struct planner *p, uint32_t node, uint32_t card, bool emptied) {
    p->emptied[card] = emptied;
    p->cards[card].healthy = p->target[card] && !emptied;
    p->version[node]++;
}

static bool empty_card(struct planner *p, uint32_t card) {
    const uint32_t node = p->of->pods[p->users[p->begin[card]]].node;
    uint32_t before = p->nmoves;
    bool fits = true;
    set_emptied(p, node, card, true);
    for (uint32_t u = p->begin[card]; fits && u < p->begin[card + 1]; u++) {
        struct defrag_move move;
        if (p->moved[p->users[u]])
            continue;
        fits = p->nmoves < p->max_moves && best_place(p, p->users[u], &move);
        if (fits)
            make_move(p, &move);
    }
    while (!fits && p->nmoves > before)
        take_back(p);
    set_emptied(p, node, card, fits);
    return fits;
}

static void empty_cards(struct planner *p) {
    begin_anew(p);
    p->effort = EFFORT;
    for (uint32_t i = 0; i < p->ncould; i++)
        if (p->arrived[could_card(p, i)] == 0)
            (void) empty_card(p, could_card(p, i));
}

/* ---- the whole ---- */

/* A card that cannot be used is not worth a move. */
static bool could_be_emptied(const struct planner *p, uint32_t card) {
    if (!p->cards[card].healthy)
        return false;
    for (uint32_t u = p->begin[card]; u < p->begin[card + 1]; u++)
        if (p->of->pods[p->users[u]].stays)
            return false;
    return p->begin[card + 1] > p->begin[card];
}

static int by_use(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *) a, y = *(const uint64_t *) b;
    return (x > y) - (x < y);
}

static void find_users(struct planner *p) {
    for (uint32_t i = 0; i < p->of->npods; i++)
        for (uint32_t h = 0; h < p->of->pods[i].namounts; h++)
            p->begin[card_of(p, &p->of->pods[i], h) + 1]++;
    for (uint32_t c = 0; c < p->ncards; c++)
        p->begin[c + 1] += p->begin[c];
    for (uint32_t i = p->of->npods; i-- > 0;) /* from behind: each card's pods in their order */
        for (uint32_t h = 0; h < p->of->pods[i].namounts; h++)
            p->users[--p->begin[card_of(p, &p->of->pods[i], h) + 1]] = i;
    /* counting sort: the end of a card's list is now its start */
    uint32_t all = 0;
    for (uint32_t i = 0; i < p->of->npods; i++)
        all += p->of->pods[i].namounts;
    memmove(p->begin, p->begin + 1, p->ncards * sizeof(*p->begin));
    p->begin[p->ncards] = all;
}

static void find_cards(struct planner *p) {
    find_users(p);
    for (uint32_t c = 0; c < p->ncards; c++) {
        const uint32_t users = p->begin[c + 1] - p->begin[c];
        p->target[c] = users > 0 && p->cards[c].healthy;
        if (could_be_emptied(p, c))
            p->could[p->ncould++] = (uint64_t) users << 32 | c;
    }
    qsort(p->could, p->ncould, sizeof(*p->could), by_use);
    open_cards(p);
}

static bool same_container(const struct container_request *a, const struct container_request *b) {
    return a->phase == b->phase && a->cards == b->cards && a->whole == b->whole &&
           a->core == b->core && a->memory == b->memory && a->memory_percent == b->memory_percent &&
           a->tflops == b->tflops && a->memory_floor == b->memory_floor && a->slot == b->slot &&
           a->scaling == b->scaling && a->replicas == b->replicas &&
           a->as_replica == b->as_replica && a->as_cards == b->as_cards;
}

static bool same_request(const struct gpu_request *a, const struct gpu_request *b) {
    bool same = a->n == b->n;
    for (uint32_t i = 0; same && i < a->n; i++)
        same = same_container(&a->containers[i], &b->containers[i]);
    return same;
}

static void find_shapes(struct planner *p) {
    for (uint32_t i = 0; i < p->of->npods; i++) {
        const struct gpu_request *request = p->of->pods[i].request;
        uint32_t at = 0;
        while (at < p->nshapes && !same_request(p->shapes[at].request, request))
            at++;
        p->shape[i] = at < SHAPES_MAX ? at : NO_SHAPE;
        if (at == p->nshapes && at < SHAPES_MAX)
            p->shapes[p->nshapes++].request = request;
    }
}

static int make_planner(const struct defrag_case *of, struct defrag_plan *ret, struct planner *p) {
    size_t namounts = 0;
    *p =
        (struct planner){.of = of, .moves = ret->moves, .max_moves = ret->nmoves, .effort = EFFORT};
    for (uint32_t i = 0; i < of->npods; i++)
        namounts += of->pods[i].namounts;
    for (uint32_t i = 0; i < of->nnodes; i++)
        p->ncards += of->nodes[i].ncards;
    size_t n = p->ncards ? p->ncards : 1;
    p->nodes = calloc(of->nnodes ? of->nnodes : 1, sizeof(*p->nodes));
    p->cards = calloc(n, sizeof(*p->cards));
    p->target = calloc(n, sizeof(*p->target));
    p->emptied = calloc(n, sizeof(*p->emptied));
    p->begin = calloc(n + 1, sizeof(*p->begin));
    p->arrived = calloc(n, sizeof(*p->arrived));
    p->could = calloc(n, sizeof(*p->could));
    p->moved = calloc(of->npods ? of->npods : 1, sizeof(*p->moved));
    p->shape = calloc(of->npods ? of->npods : 1, sizeof(*p->shape));
    p->version = calloc(of->nnodes ? of->nnodes : 1, sizeof(*p->version));
    p->users = calloc(namounts ? namounts : 1, sizeof(*p->users));
    if (!p->nodes || !p->cards || !p->target || !p->emptied || !p->users || !p->could ||
        !p->moved || !p->begin || !p->arrived || !p->shape || !p->version)
        return -ENOMEM;
    memcpy(p->cards, of->cards, p->ncards * sizeof(*p->cards));
    for (uint32_t i = 0; i < of->nnodes; i++) {
        p->nodes[i] = of->nodes[i];
        p->nodes[i].cards = &p->cards[of->first[i]];
        p->version[i] = 1;
    }
    return 0;
}

static void drop_planner(struct planner *p) {
    free(p->nodes);
    free(p->cards);
    free(p->target);
    free(p->emptied);
    free(p->users);
    free(p->begin);
    free(p->arrived);
    free(p->could);
    free(p->moved);
    free(p->shape);
    free(p->version);
    for (uint32_t i = 0; i < p->nshapes; i++)
        free(p->shapes[i].on);
}

int defrag_choose(const struct defrag_case *of, struct defrag_plan *ret) {
    struct planner p;
    uint32_t pods[EXACT_PODS + 1];
    int r = make_planner(of, ret, &p);
    if (r == 0) {
        find_cards(&p);
        find_shapes(&p);
        bool few = p.ncould <= EXACT_CARDS &&
                   who_moves(&p, (UINT32_C(1) << p.ncould) - 1, pods) <= EXACT_PODS;
        if (few)
            try_sets(&p, pods);
        if (!few || p.effort == 0)
            empty_cards(&p);
        ret->nmoves = p.nmoves;
        ret->cut_short = p.effort == 0;
        ret->emptied = 0;
        for (uint32_t c = 0; c < p.ncards; c++)
            ret->emptied += p.emptied[c];
    }
    drop_planner(&p);
    return r;
}
