/* SPDX-License-Identifier: Apache-2.0 */
#include "place/defrag.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define EXACT_CARDS 10    /* that could be emptied: every set of them is tried */
#define EXACT_PODS 16     /* on them */
#define EXACT_LOOKS 20000 /* at nodes, for one set */
#define LOOKS 4000        /* at cards, for one pod on one node */

struct planner {
    const struct defrag_case *of;
    struct place_node *nodes; /* with our own cards */
    struct place_card *cards; /* free as of the moves so far; healthy: may be gone to */
    uint32_t ncards;
    bool *target;    /* by card: in use, and healthy */
    bool *emptied;   /* by card: is to be emptied */
    uint32_t *users; /* by card: pods on it before any move */
    uint32_t *could; /* cards that could be emptied, the least used ones first */
    uint32_t ncould;
    bool *moved; /* by pod */
    struct defrag_move *moves;
    uint32_t nmoves, max_moves;
    uint32_t looks;
    struct place_plan plan;
};

static uint32_t card_of(const struct planner *p, const struct defrag_pod *pod, uint32_t hold) {
    return p->of->first[pod->node] + pod->holds[hold].card;
}

static bool is_on(const struct planner *p, const struct defrag_pod *pod, uint32_t card) {
    for (uint32_t h = 0; h < pod->nholds; h++)
        if (card_of(p, pod, h) == card)
            return true;
    return false;
}

/* ---- moving ---- */

static void add(struct place_amount *to, const struct place_amount *amount, bool plus) {
    to->memory = plus ? to->memory + amount->memory : to->memory - amount->memory;
    to->core = plus ? to->core + amount->core : to->core - amount->core;
    to->slots = plus ? to->slots + amount->slots : to->slots - amount->slots;
}

/* What the pod takes of the cards where it goes to. */
static void put(struct planner *p, const struct defrag_move *move, bool there) {
    const struct gpu_request *request = p->of->pods[move->pod].request;
    const struct place_node *node = &p->nodes[move->node];
    for (uint32_t c = 0; c < node->ncards; c++) {
        struct place_hold hold = {0};
        for (uint32_t i = 0; i < request->n; i++) {
            if (!(move->result.cards[i] >> c & 1))
                continue;
            struct place_amount amount = place_share(&request->asks[i], &node->cards[c]);
            place_hold_add(&hold, request->asks[i].phase, &amount);
        }
        struct place_amount total = place_hold_total(&hold);
        add(&p->cards[p->of->first[move->node] + c].free, &total, !there);
    }
}

/* What it leaves becomes free only when it is there. */
static void make_move(struct planner *p, const struct defrag_move *move) {
    const struct defrag_pod *pod = &p->of->pods[move->pod];
    put(p, move, true);
    for (uint32_t h = 0; h < pod->nholds; h++)
        add(&p->cards[card_of(p, pod, h)].free, &pod->holds[h].amount, true);
    p->moved[move->pod] = true;
    p->moves[p->nmoves++] = *move;
}

static void take_back(struct planner *p) {
    const struct defrag_move *move = &p->moves[--p->nmoves];
    const struct defrag_pod *pod = &p->of->pods[move->pod];
    for (uint32_t h = 0; h < pod->nholds; h++)
        add(&p->cards[card_of(p, pod, h)].free, &pod->holds[h].amount, false);
    put(p, move, false);
    p->moved[move->pod] = false;
}

/* ---- where a pod could go ---- */

static bool place(struct planner *p, uint32_t pod, uint32_t node, struct defrag_move *ret) {
    const struct defrag_pod *of = &p->of->pods[pod];
    if (of->at_home && of->node != node)
        return false;
    place_prepare(of->request, &p->plan);
    p->plan.effort = LOOKS;
    *ret = (struct defrag_move){.pod = pod, .node = node};
    return place_on_node(p->of->policy, &p->plan, &p->nodes[node], &ret->result) == PLACE_OK;
}

static void open_cards(struct planner *p) {
    for (uint32_t c = 0; c < p->ncards; c++)
        p->cards[c].healthy = p->target[c] && !p->emptied[c];
}

static bool wants_one_card(const struct gpu_request *request) {
    return request->n == 1 && request->asks[0].cards <= 1;
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
    for (uint32_t node = 0; node < p->of->nnodes && p->looks > 0; node++) {
        struct defrag_move move;
        p->looks--;
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
    for (uint32_t h = 0; h < pod->nholds; h++)
        size += pod->holds[h].amount.memory;
    return size;
}

/* Who is on a card of the set, the largest first. */
static uint32_t who_moves(const struct planner *p, uint32_t set, uint32_t *ret) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->of->npods; i++) {
        bool on = false;
        for (uint32_t c = 0; c < p->ncould; c++)
            on |= (set >> c & 1) && is_on(p, &p->of->pods[i], p->could[c]);
        if (!on)
            continue;
        uint32_t at = n++;
        for (; at > 0 && size_of(&p->of->pods[i]) > size_of(&p->of->pods[ret[at - 1]]); at--)
            ret[at] = ret[at - 1];
        ret[at] = i;
    }
    return n;
}

static bool try_set(struct planner *p, uint32_t set, uint32_t *pods, uint32_t n) {
    for (uint32_t c = 0; c < p->ncould; c++)
        p->emptied[p->could[c]] = set >> c & 1;
    open_cards(p);
    while (p->nmoves > 0)
        take_back(p);
    p->looks = EXACT_LOOKS;
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
    while (p->nmoves > 0)
        take_back(p);
    memset(p->emptied, 0, p->ncards * sizeof(*p->emptied));
}

/* ---- one card after the other ---- */

static bool best_place(struct planner *p, uint32_t pod, struct defrag_move *ret) {
    bool found = false;
    for (uint32_t node = 0; node < p->of->nnodes; node++) {
        struct defrag_move move;
        if (!place(p, pod, node, &move) || (found && move.result.score <= ret->result.score))
            continue;
        *ret = move;
        found = true;
    }
    return found;
}

/* Whether somebody has moved there meanwhile. */
static bool is_taken(const struct planner *p, uint32_t card) {
    for (uint32_t i = 0; i < p->nmoves; i++) {
        const struct defrag_move *move = &p->moves[i];
        uint32_t first = p->of->first[move->node];
        for (uint32_t a = 0; a < p->of->pods[move->pod].request->n; a++)
            if (card >= first && card < first + p->nodes[move->node].ncards &&
                move->result.cards[a] >> (card - first) & 1)
                return true;
    }
    return false;
}

static bool empty_card(struct planner *p, uint32_t card) {
    uint32_t before = p->nmoves;
    bool fits = true;
    p->emptied[card] = true;
    open_cards(p);
    for (uint32_t i = 0; fits && i < p->of->npods; i++) {
        struct defrag_move move;
        if (p->moved[i] || !is_on(p, &p->of->pods[i], card))
            continue;
        fits = p->nmoves < p->max_moves && best_place(p, i, &move);
        if (fits)
            make_move(p, &move);
    }
    while (!fits && p->nmoves > before)
        take_back(p);
    p->emptied[card] = fits;
    return fits;
}

/* ---- the whole ---- */

/* A card that cannot be used is not worth a move. */
static bool could_be_emptied(const struct planner *p, uint32_t card) {
    if (!p->cards[card].healthy)
        return false;
    for (uint32_t i = 0; i < p->of->npods; i++)
        if (p->of->pods[i].stays && is_on(p, &p->of->pods[i], card))
            return false;
    return p->users[card] > 0;
}

static void find_cards(struct planner *p) {
    for (uint32_t i = 0; i < p->of->npods; i++)
        for (uint32_t h = 0; h < p->of->pods[i].nholds; h++)
            p->users[card_of(p, &p->of->pods[i], h)]++;
    for (uint32_t c = 0; c < p->ncards; c++) {
        p->target[c] = p->users[c] > 0 && p->cards[c].healthy;
        if (!could_be_emptied(p, c))
            continue;
        uint32_t at = p->ncould++;
        for (; at > 0 && p->users[c] < p->users[p->could[at - 1]]; at--)
            p->could[at] = p->could[at - 1];
        p->could[at] = c;
    }
}

static int make_planner(const struct defrag_case *of, struct defrag_plan *ret, struct planner *p) {
    *p = (struct planner){.of = of, .moves = ret->moves, .max_moves = ret->nmoves};
    for (uint32_t i = 0; i < of->nnodes; i++)
        p->ncards += of->nodes[i].ncards;
    size_t n = p->ncards ? p->ncards : 1;
    p->nodes = calloc(of->nnodes ? of->nnodes : 1, sizeof(*p->nodes));
    p->cards = calloc(n, sizeof(*p->cards));
    p->target = calloc(n, sizeof(*p->target));
    p->emptied = calloc(n, sizeof(*p->emptied));
    p->users = calloc(n, sizeof(*p->users));
    p->could = calloc(n, sizeof(*p->could));
    p->moved = calloc(of->npods ? of->npods : 1, sizeof(*p->moved));
    if (!p->nodes || !p->cards || !p->target || !p->emptied || !p->users || !p->could || !p->moved)
        return -ENOMEM;
    memcpy(p->cards, of->cards, p->ncards * sizeof(*p->cards));
    for (uint32_t i = 0; i < of->nnodes; i++) {
        p->nodes[i] = of->nodes[i];
        p->nodes[i].cards = &p->cards[of->first[i]];
    }
    return 0;
}

static void drop_planner(struct planner *p) {
    free(p->nodes);
    free(p->cards);
    free(p->target);
    free(p->emptied);
    free(p->users);
    free(p->could);
    free(p->moved);
}

int defrag_choose(const struct defrag_case *of, struct defrag_plan *ret) {
    struct planner p;
    int r = make_planner(of, ret, &p);
    uint32_t *pods = r == 0 ? calloc(of->npods ? of->npods : 1, sizeof(*pods)) : NULL;
    if (r == 0 && pods) {
        find_cards(&p);
        bool few = p.ncould <= EXACT_CARDS &&
                   who_moves(&p, (UINT32_C(1) << p.ncould) - 1, pods) <= EXACT_PODS;
        if (few)
            try_sets(&p, pods);
        for (uint32_t i = 0; !few && i < p.ncould; i++)
            if (!is_taken(&p, p.could[i]))
                (void) empty_card(&p, p.could[i]);
        ret->nmoves = p.nmoves;
        ret->emptied = 0;
        for (uint32_t c = 0; c < p.ncards; c++)
            ret->emptied += p.emptied[c];
    }
    free(pods);
    drop_planner(&p);
    return r == 0 && !pods ? -ENOMEM : r;
}
