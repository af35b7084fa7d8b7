/* SPDX-License-Identifier: Apache-2.0 */

/* Plans of moves, against every plan there is. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "place/defrag.h"

#define GIB ((uint64_t) 1 << 30)
#define NODES 3
#define CARDS 3 /* of a node */
#define PODS 40

struct world {
    struct place_node nodes[NODES];
    struct place_card cards[NODES * CARDS];
    uint32_t first[NODES];
    struct gpu_request requests[PODS];
    struct victims_amount amounts[PODS];
    struct defrag_pod pods[PODS];
    struct defrag_move moves[PODS];
    struct defrag_case of;
    uint64_t random;
};

static uint32_t draw(struct world *w, uint32_t below) {
    w->random = w->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t) (w->random >> 33) % below;
}

static void prepare(struct world *w, uint32_t nnodes, uint32_t ncards) {
    for (uint32_t n = 0; n < nnodes; n++) {
        w->first[n] = n * ncards;
        w->nodes[n] =
            (struct place_node){.cards = &w->cards[w->first[n]], .ncards = ncards, .rank = n};
    }
    for (uint32_t c = 0; c < nnodes * ncards; c++)
        w->cards[c] = (struct place_card){.memory = 100 * GIB,
                                          .free = {100 * GIB, 100, SLOTS_PER_CARD},
                                          .healthy = true,
                                          .physical = 100 * GIB};
    w->of = (struct defrag_case){.policy = &place_binpack,
                                 .nodes = w->nodes,
                                 .cards = w->cards,
                                 .first = w->first,
                                 .nnodes = nnodes,
                                 .pods = w->pods};
}

/* A pod with a share of card `card` of the node; false: it has no room there. */
static bool run(struct world *w, uint32_t node, uint32_t card, uint32_t core) {
    struct place_card *at = &w->cards[w->first[node] + card];
    uint32_t i = w->of.npods;
    if (at->free.core < core)
        return false;
    w->requests[i] = (struct gpu_request){
        .n = 1,
        .containers = {{.container = "c", .phase = CONTAINER_APP, .cards = 1, .core = core}}};
    w->amounts[i] = (struct victims_amount){card, {core * GIB, core, 0}};
    w->pods[i] = (struct defrag_pod){
        .node = node, .request = &w->requests[i], .amounts = &w->amounts[i], .namounts = 1};
    at->free.core -= core;
    at->free.memory -= core * GIB;
    w->of.npods++;
    return true;
}

static struct defrag_plan plan(struct world *w) {
    struct defrag_plan p = {.moves = w->moves, .nmoves = PODS};
    struct place_card before[NODES * CARDS];
    memcpy(before, w->cards, sizeof(before));
    assert_int_equal(defrag_choose(&w->of, &p), 0);
    assert_memory_equal(before, w->cards, sizeof(before));
    return p;
}

static uint32_t card_of(const struct world *w, const struct defrag_move *move) {
    return w->first[move->node] + (uint32_t) __builtin_ctzll(move->cards[0]);
}

/* Makes the moves one after the other, each beside what the pod still has where it was; returns how
 * many cards are idle then that were not. */
static uint32_t play(const struct world *w, const struct defrag_plan *p) {
    int core[NODES * CARDS];
    bool used[NODES * CARDS] = {false};
    uint32_t emptied = 0;
    for (uint32_t c = 0; c < NODES * CARDS; c++) {
        core[c] = (int) w->cards[c].free.core;
        used[c] = core[c] < 100;
    }
    for (uint32_t i = 0; i < p->nmoves; i++) {
        const struct defrag_pod *pod = &w->pods[p->moves[i].pod];
        uint32_t to = card_of(w, &p->moves[i]);
        assert_true(used[to]);
        assert_false(pod->stays);
        assert_true(!pod->at_home || p->moves[i].node == pod->node);
        core[to] -= (int) pod->amounts[0].amount.core;
        assert_true(core[to] >= 0);
        core[w->first[pod->node] + pod->amounts[0].card] += (int) pod->amounts[0].amount.core;
        for (uint32_t j = 0; j < i; j++)
            assert_true(p->moves[j].pod != p->moves[i].pod);
    }
    for (uint32_t c = 0; c < w->of.nnodes * w->nodes[0].ncards; c++)
        emptied += used[c] && core[c] == 100;
    return emptied;
}

/* ---- brute force ---- */

struct force {
    const struct world *w;
    int core[NODES * CARDS];
    uint32_t set; /* of cards to be emptied */
};

static bool place_rest(struct force *f, uint32_t i) {
    const struct world *w = f->w;
    uint32_t ncards = w->nodes[0].ncards;
    while (i < w->of.npods &&
           !(f->set >> (w->first[w->pods[i].node] + w->pods[i].amounts[0].card) & 1))
        i++;
    if (i == w->of.npods)
        return true;
    int core = (int) w->pods[i].amounts[0].amount.core;
    for (uint32_t c = 0; c < w->of.nnodes * ncards; c++) {
        if ((f->set >> c & 1) || w->cards[c].free.core == 100 || f->core[c] < core ||
            (w->pods[i].at_home && c / ncards != w->pods[i].node))
            continue;
        f->core[c] -= core;
        if (place_rest(f, i + 1))
            return true;
        f->core[c] += core;
    }
    return false;
}

static void brute_force(const struct world *w, uint32_t *ret_emptied, uint32_t *ret_moves) {
    uint32_t ncards = w->of.nnodes * w->nodes[0].ncards;
    *ret_emptied = *ret_moves = 0;
    for (uint32_t set = 1; set < UINT32_C(1) << ncards; set++) {
        struct force f = {.w = w, .set = set};
        uint32_t moves = 0, emptied = (uint32_t) __builtin_popcount(set);
        bool may = true;
        for (uint32_t c = 0; c < ncards; c++) {
            f.core[c] = (int) w->cards[c].free.core;
            may &= !(set >> c & 1) || f.core[c] < 100;
        }
        for (uint32_t i = 0; i < w->of.npods; i++)
            if (set >> (w->first[w->pods[i].node] + w->pods[i].amounts[0].card) & 1) {
                moves++;
                may &= !w->pods[i].stays;
            }
        if (!may || emptied < *ret_emptied || (emptied == *ret_emptied && moves >= *ret_moves) ||
            !place_rest(&f, 0))
            continue;
        *ret_emptied = emptied;
        *ret_moves = moves;
    }
}

/* ---- tests ---- */

static void test_two_halves(void **state) {
    (void) state;
    struct world w = {0};
    prepare(&w, 2, 1);
    run(&w, 0, 0, 50);
    run(&w, 1, 0, 30);
    run(&w, 1, 0, 20);
    struct defrag_plan p = plan(&w);
    assert_int_equal(p.emptied, 1);
    assert_int_equal(p.nmoves, 1); /* the one pod goes to the two */
    assert_int_equal(p.moves[0].pod, 0);
    assert_int_equal(p.moves[0].node, 1);
    assert_int_equal(play(&w, &p), 1);
    w.pods[0].at_home = true; /* then the two go to the one */
    p = plan(&w);
    assert_int_equal(p.nmoves, 2);
    assert_int_equal(play(&w, &p), 1);
    w.pods[1].stays = true;
    p = plan(&w);
    assert_int_equal(p.nmoves, 0);
    assert_int_equal(p.emptied, 0);
}

static void test_nothing_to_gain(void **state) {
    (void) state;
    struct world w = {0};
    prepare(&w, 3, 1);
    run(&w, 0, 0, 60);
    run(&w, 1, 0, 60); /* an idle card is no place to go to */
    struct defrag_plan p = plan(&w);
    assert_int_equal(p.nmoves, 0);
    w.cards[0].healthy = false; /* nor is an unhealthy one worth a move */
    w.cards[1].free.core = 40;
    p = plan(&w);
    assert_int_equal(p.nmoves, 0);
    w.of.npods = 0;
    p = plan(&w);
    assert_int_equal(p.nmoves, 0);
}

static void random_case(struct world *w, uint64_t seed, uint32_t npods, uint32_t steps) {
    *w = (struct world){.random = seed * 131 + 7};
    prepare(w, 2 + draw(w, 2), 1 + draw(w, CARDS));
    for (uint32_t i = 0; i < npods; i++) {
        if (!run(w, draw(w, w->of.nnodes), draw(w, w->nodes[0].ncards), 10 + 10 * draw(w, steps)))
            continue;
        w->pods[w->of.npods - 1].stays = draw(w, 10) == 0;
        w->pods[w->of.npods - 1].at_home = draw(w, 6) == 0;
    }
}

static void test_against_every_plan(void **state) {
    (void) state;
    static struct world w;
    unsigned some = 0, several = 0;
    for (uint64_t seed = 0; seed < 400; seed++) {
        uint32_t emptied, moves;
        random_case(&w, seed, 9, 5);
        brute_force(&w, &emptied, &moves);
        struct defrag_plan p = plan(&w);
        assert_int_equal(p.emptied, emptied);
        assert_int_equal(p.nmoves, moves);
        assert_int_equal(play(&w, &p), emptied);
        some += emptied > 0;
        several += emptied > 1;
    }
    assert_true(some > 150 && several > 50);
}

/* Beyond what is tried in every way: each move still fits, and cards do become empty. */
static void test_many_pods(void **state) {
    (void) state;
    static struct world w;
    unsigned emptied = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        random_case(&w, seed, PODS, 2);
        struct defrag_plan p = plan(&w);
        assert_int_equal(play(&w, &p), p.emptied);
        emptied += p.emptied;
        struct defrag_plan few = {.moves = w.moves, .nmoves = 2};
        assert_int_equal(defrag_choose(&w.of, &few), 0);
        assert_true(few.nmoves <= 2);
        assert_int_equal(play(&w, &few), few.emptied);
    }
    assert_true(emptied > 100);
}

enum { MANY = 5000, EACH = 8, ALL = 20000 };

/* 5,000 nodes of 8 cards, 20,000 pods of 60 kinds on every other card. */
struct large {
    struct place_node nodes[MANY];
    struct place_card cards[MANY * EACH];
    uint32_t first[MANY];
    struct gpu_request requests[ALL];
    struct victims_amount amounts[ALL];
    struct defrag_pod pods[ALL];
    struct defrag_move moves[ALL];
};

static void add_large_pod(struct large *l, uint32_t i, uint32_t c, uint32_t core) {
    l->requests[i] = (struct gpu_request){
        .n = 1,
        .containers = {{.container = "c", .phase = CONTAINER_APP, .cards = 1, .core = core}}};
    l->amounts[i] = (struct victims_amount){c % EACH, {core * GIB, core, 0}};
    l->pods[i] = (struct defrag_pod){
        .node = c / EACH, .request = &l->requests[i], .amounts = &l->amounts[i], .namounts = 1};
    l->cards[c].free.core -= core;
    l->cards[c].free.memory -= core * GIB;
}

static struct large *make_large(void) {
    struct world w = {.random = 42}; /* for draw() */
    struct large *l = calloc(1, sizeof(*l));
    assert_non_null(l);
    for (uint32_t n = 0; n < MANY; n++) {
        l->first[n] = n * EACH;
        l->nodes[n] =
            (struct place_node){.cards = &l->cards[l->first[n]], .ncards = EACH, .rank = n};
    }
    for (uint32_t c = 0; c < MANY * EACH; c++)
        l->cards[c] = (struct place_card){.memory = 100 * GIB,
                                          .free = {100 * GIB, 100, SLOTS_PER_CARD},
                                          .healthy = true,
                                          .physical = 100 * GIB};
    for (uint32_t i = 0; i < ALL;) {
        uint32_t core = 10 + draw(&w, 60), c = draw(&w, MANY * EACH / 2) * 2;
        if (l->cards[c].free.core >= core)
            add_large_pod(l, i++, c, core);
    }
    return l;
}

static uint32_t count_used(const struct large *l) {
    uint32_t n = 0;
    for (uint32_t c = 0; c < MANY * EACH; c++)
        n += l->cards[c].free.core < 100;
    return n;
}

/* The effort is bounded, and what is counted is how often a node is looked at: with this many it
 * does not grow with the pods times the nodes, on whatever machine. */
static void test_large_cluster(void **state) {
    (void) state;
    struct large *l = make_large();
    const struct defrag_case of = {.policy = &place_binpack,
                                   .nodes = l->nodes,
                                   .cards = l->cards,
                                   .first = l->first,
                                   .nnodes = MANY,
                                   .pods = l->pods,
                                   .npods = ALL};
    struct defrag_plan p = {.moves = l->moves, .nmoves = ALL};
    uint32_t used = count_used(l);
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    assert_int_equal(defrag_choose(&of, &p), 0);
    clock_gettime(CLOCK_MONOTONIC, &to);
    print_message("%u cards in use, %u of them emptied by %u moves, planned in %.2f s\n", used,
                  p.emptied, p.nmoves,
                  (double) (to.tv_sec - from.tv_sec) + (double) (to.tv_nsec - from.tv_nsec) / 1e9);
    assert_false(p.cut_short);
    assert_true(p.emptied > used / 10);
    for (uint32_t i = 0; i < p.nmoves; i++) { /* as play() does it */
        const struct defrag_pod *pod = &l->pods[p.moves[i].pod];
        uint32_t core = pod->amounts[0].amount.core;
        uint32_t to_card = (uint32_t) __builtin_ctzll(p.moves[i].cards[0]);
        struct place_card *at = &l->cards[l->first[p.moves[i].node] + to_card];
        assert_true(at->free.core < 100 && at->free.core >= core);
        at->free.core -= core;
        l->cards[l->first[pod->node] + pod->amounts[0].card].free.core += core;
    }
    assert_int_equal(used - count_used(l), p.emptied);
    free(l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_halves),         cmocka_unit_test(test_nothing_to_gain),
        cmocka_unit_test(test_against_every_plan), cmocka_unit_test(test_many_pods),
        cmocka_unit_test(test_large_cluster),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
