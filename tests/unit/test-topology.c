/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "place/topology.h"

#define GIB ((uint64_t) 1 << 30)

static uint32_t seed = 1;

static uint32_t pick(uint32_t n) {
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

static struct place_topology *make(uint32_t ncards, uint8_t (*link)(uint32_t a, uint32_t b)) {
    struct place_topology *t = calloc(1, topology_size(ncards));
    assert_non_null(t);
    t->ncards = ncards;
    for (uint32_t a = 0; a < ncards; a++) {
        t->numa[a] = (int8_t) (a >= ncards / 2);
        for (uint32_t b = a + 1; b < ncards; b++)
            t->links[a * ncards + b] = t->links[b * ncards + a] = link(a, b);
    }
    topology_finish(t);
    return t;
}

#define NV(n) ((uint8_t) (LINK_NVLINK + (n) -1))

/* ---- machines ---- */

static uint8_t quads(uint32_t a, uint32_t b) { /* two bridged quads on two sockets */
    return a / 4 == b / 4 ? NV(4) : LINK_SYSTEM;
}

static uint8_t switched(uint32_t a, uint32_t b) {
    (void) a, (void) b;
    return NV(18);
}

/* DGX-1 with V100: a hybrid cube mesh, some pairs with two links, some with one, some with none. */
static uint8_t cube_mesh(uint32_t a, uint32_t b) {
    static const char *const lanes[8] = {"01122000", "10210200", "12020010", "21200002",
                                         "20000112", "02001021", "00101202", "00022120"};
    return lanes[a][b] > '0' ? NV(lanes[a][b] - '0') : a / 4 == b / 4 ? LINK_NODE : LINK_SYSTEM;
}

static uint8_t sixteen(uint32_t a, uint32_t b) { /* PCIe: four switches on two sockets */
    return a / 4 == b / 4 ? LINK_SWITCH : a / 8 == b / 8 ? LINK_NODE : LINK_SYSTEM;
}

static uint8_t any(uint32_t a, uint32_t b) {
    static const uint8_t links[] = {LINK_SYSTEM, LINK_NODE, LINK_SWITCH, NV(1), NV(2), NV(4)};
    (void) a, (void) b;
    return links[pick(6)];
}

/* ---- the best set, from its definition ---- */

struct value {
    uint32_t weakest, sum, far, cut;
    uint64_t cost;
};

static bool value_of(const struct place_topology *t, const struct topology_search *s, uint64_t set,
                     struct value *ret) {
    struct value v = {.weakest = UINT8_MAX};
    int numa = -2;
    for (uint32_t a = 0; a < t->ncards; a++) {
        if (!(set >> a & 1))
            continue;
        if (s->numa_bind && numa != -2 && numa != t->numa[a])
            return false;
        numa = t->numa[a];
        v.far += (uint32_t) (s->far >> a & 1);
        v.cost += s->costs ? s->costs[a] : 0;
        for (uint32_t b = 0; b < t->ncards; b++) {
            uint8_t link = b == a ? 0 : topology_link(t, a, b);
            if (b > a && (set >> b & 1)) {
                v.weakest = link < v.weakest ? link : v.weakest;
                v.sum += link;
            }
            if ((s->idle & ~set) >> b & 1)
                v.cut += link;
        }
    }
    *ret = v;
    return v.weakest >= s->weakest;
}

static int compare(const struct value *a, const struct value *b) {
    if (a->weakest != b->weakest)
        return a->weakest > b->weakest ? 1 : -1;
    if (a->sum != b->sum)
        return a->sum > b->sum ? 1 : -1;
    if (a->far != b->far)
        return a->far < b->far ? 1 : -1;
    if (a->cost != b->cost)
        return a->cost < b->cost ? 1 : -1;
    return a->cut == b->cut ? 0 : a->cut < b->cut ? 1 : -1;
}

static bool brute_force(const struct place_topology *t, const struct topology_search *s,
                        struct value *ret) {
    bool found = false;
    for (uint64_t set = 1; set < UINT64_C(1) << t->ncards; set++) {
        struct value v;
        if ((set & ~s->candidates) || (uint32_t) __builtin_popcountll(set) != s->n ||
            !value_of(t, s, set, &v) || (found && compare(&v, ret) <= 0))
            continue;
        *ret = v;
        found = true;
    }
    return found;
}

static void check(const struct place_topology *t, struct topology_search *s) {
    struct value expected, got;
    uint64_t set = topology_pick(t, s);
    bool possible = brute_force(t, s, &expected);
    assert_int_equal(set != 0, possible);
    if (!possible)
        return;
    assert_true((set & ~s->candidates) == 0);
    assert_int_equal(__builtin_popcountll(set), s->n);
    assert_true(value_of(t, s, set, &got));
    assert_int_equal(compare(&got, &expected), 0);
}

static void test_exact(void **state) {
    (void) state;
    uint8_t (*const machines[])(uint32_t, uint32_t) = {quads, switched, cube_mesh, any, any, any};
    for (int round = 0; round < 1500; round++) {
        uint64_t costs[PLACE_CARDS_MAX];
        struct place_topology *t = make(8, machines[round % 6]);
        for (uint32_t c = 0; c < 8; c++)
            costs[c] = pick(3);
        struct topology_search s = {.candidates = 1 + pick(255),
                                    .n = 1 + pick(8),
                                    .numa_bind = pick(4) == 0,
                                    .weakest = pick(3) ? 0 : LINK_SWITCH,
                                    .costs = costs};
        s.idle = pick(2) ? s.candidates : pick(256);
        s.far = pick(2) ? 0 : pick(256);
        if (round % 6 ==
            1) /* among equal links, those to cards that are no candidates say nothing */
            s.idle = s.candidates;
        check(t, &s);
        free(t);
    }
}

/* Whatever the machine looks like: the whole search of 16 cards is some ten thousand looks. */
static void test_sixteen_cards(void **state) {
    (void) state;
    uint8_t (*const machines[])(uint32_t, uint32_t) = {sixteen, quads, switched, any, any, any};
    uint32_t most = 0;
    uint64_t slowest = 0;
    for (int round = 0; round < 60; round++) {
        struct place_topology *t = make(16, machines[round % 6]);
        struct topology_search s = {.candidates = 0xffff, .n = 1 + (uint32_t) round % 16};
        struct timespec a, b;
        s.idle = s.candidates;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
        (void) topology_pick(t, &s);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
        uint64_t ns = (uint64_t) (b.tv_sec - a.tv_sec) * 1000000000 + (uint64_t) b.tv_nsec -
                      (uint64_t) a.tv_nsec;
        slowest = ns > slowest ? ns : slowest;
        most = s.steps > most ? s.steps : most;
        if (round % 4 == 0)
            check(t, &s);
        free(t);
    }
    print_message("16 cards: at most %u looks, %llu us\n", most,
                  (unsigned long long) slowest / 1000);
    assert_in_range(most, 1, 50000);
}

static void test_known_machines(void **state) {
    (void) state;
    struct place_topology *t = make(8, cube_mesh);
    struct topology_search s = {.candidates = 0xff, .n = 4, .idle = 0xff};
    uint64_t set = topology_pick(t, &s);
    assert_true(topology_weakest(t, set) >= NV(1)); /* a fully linked quad */
    s = (struct topology_search){.candidates = 0xff, .n = 2, .idle = 0xff};
    assert_int_equal(topology_weakest(t, topology_pick(t, &s)), NV(2));
    assert_int_equal(t->best[2], NV(2));
    assert_int_equal(t->best[8], LINK_SYSTEM);
    free(t);
    t = make(8, quads);
    /* Two of a quad that is broken already, and not of the one that is whole. */
    s = (struct topology_search){.candidates = 0xf7, .n = 2, .idle = 0xf7};
    set = topology_pick(t, &s);
    assert_int_equal(set & ~UINT64_C(7), 0);
    s = (struct topology_search){.candidates = 0xf7, .n = 4, .idle = 0xf7};
    assert_int_equal(topology_pick(t, &s), 0xf0);
    free(t);
}

/* 64 cards are too many to be tried in all sets: bounded, and still a good one. */
static void test_many_cards(void **state) {
    (void) state;
    struct place_topology *t = make(64, sixteen);
    struct topology_search s = {.candidates = UINT64_MAX, .n = 4, .idle = UINT64_MAX};
    uint64_t set = topology_pick(t, &s);
    assert_int_equal(topology_weakest(t, set), LINK_SWITCH);
    assert_in_range(s.steps, 0, TOPOLOGY_STEPS);
    free(t);
}

/* Where there is no such set, the search must end all the same. */
static void test_many_cards_in_vain(void **state) {
    (void) state;
    struct place_topology *t = make(64, quads);
    struct topology_search s = {.candidates = UINT64_MAX, .n = 33, .numa_bind = true};
    assert_int_equal(topology_pick(t, &s), 0);
    assert_in_range(s.steps, 1, TOPOLOGY_STEPS);
    free(t);
}

/* ---- placing by it ---- */

static struct place_card cards[8];

static void idle_cards(void) {
    for (uint32_t c = 0; c < 8; c++)
        cards[c] = (struct place_card){.memory = 80 * GIB,
                                       .free = {80 * GIB, 100, SLOTS_PER_CARD},
                                       .healthy = true,
                                       .physical = 80 * GIB};
}

static enum place_reason run(const struct place_topology *t, struct container_request req,
                             enum topology_policy policy, bool numa_bind,
                             struct place_result *ret) {
    static struct place_plan plan;
    struct gpu_request request = {.n = 1, .containers = {req}};
    struct place_node node = {.cards = cards, .ncards = 8, .topology = t};
    place_prepare(&request, &plan);
    plan.topology = policy;
    plan.numa_bind = numa_bind;
    return place_on_node(&place_binpack, &plan, &node, ret);
}

static const struct container_request four = {.phase = CONTAINER_APP, .cards = 4, .whole = true};
static const struct container_request pair = {
    .phase = CONTAINER_APP, .cards = 2, .core = 30, .memory = GIB};

static void test_topology_policies(void **state) {
    (void) state;
    struct place_result r, worse;
    struct place_topology *t = make(8, quads);
    idle_cards();
    cards[1].healthy = false;
    assert_int_equal(run(t, four, TOPOLOGY_UNSET, false, &r), PLACE_OK);
    assert_int_equal(r.cards[0], 0xf0);
    assert_int_equal(run(t, four, TOPOLOGY_RESTRICTED, false, &r), PLACE_OK);
    assert_int_equal(r.cards[0], 0xf0);
    cards[5].free.core = 50;
    cards[5].free.memory = 40 * GIB;
    assert_int_equal(run(t, four, TOPOLOGY_RESTRICTED, false, &r), PLACE_NOT_LINKED);
    assert_int_equal(run(t, four, TOPOLOGY_UNSET, true, &r), PLACE_NOT_LINKED);
    assert_int_equal(run(t, four, TOPOLOGY_BEST, false, &worse), PLACE_OK);
    assert_int_equal(run(NULL, four, TOPOLOGY_RESTRICTED, false, &r), PLACE_NOT_LINKED);
    assert_int_equal(run(NULL, four, TOPOLOGY_BEST, false, &r), PLACE_OK);
    /* Of two nodes, the one with the better links, although the other is tidier. */
    idle_cards();
    assert_int_equal(run(t, four, TOPOLOGY_BEST, false, &r), PLACE_OK);
    assert_true(r.score > worse.score);
    free(t);
}

/* Of cards with equal links those near the CPUs, of one that are better linked not. */
static void test_near_cards(void **state) {
    (void) state;
    struct place_result r;
    struct place_topology *t = make(8, switched);
    struct container_request near = four;
    idle_cards();
    near.cpus = 4;
    for (uint32_t c = 0; c < 8; c++)
        cards[c].cpus = (struct place_cpus){true, 0, c % 2 ? 8 : 2};
    assert_int_equal(run(t, near, TOPOLOGY_UNSET, false, &r), PLACE_OK);
    assert_int_equal(r.cards[0], 0xaa);
    assert_false(r.worth.far);
    free(t);
    t = make(8, quads);
    assert_int_equal(run(t, near, TOPOLOGY_UNSET, false, &r), PLACE_OK);
    assert_true(r.cards[0] == 0x0f || r.cards[0] == 0xf0);
    assert_true(r.worth.far);
    free(t);
}

static void test_shares_of_several(void **state) {
    (void) state;
    struct place_result r;
    struct place_topology *t = make(8, quads);
    idle_cards();
    cards[3].free.core = cards[6].free.core = 40; /* used ones, on two sockets */
    assert_int_equal(run(t, pair, TOPOLOGY_UNSET, false, &r), PLACE_OK);
    assert_int_equal(r.cards[0], 0x48); /* shares are packed */
    assert_int_equal(run(t, pair, TOPOLOGY_BEST, false, &r), PLACE_OK);
    assert_true((r.cards[0] & ~UINT64_C(0x0f)) == 0 || (r.cards[0] & ~UINT64_C(0xf0)) == 0);
    assert_int_equal(run(t, pair, TOPOLOGY_UNSET, true, &r), PLACE_OK);
    assert_true((r.cards[0] & ~UINT64_C(0x0f)) == 0 || (r.cards[0] & ~UINT64_C(0xf0)) == 0);
    free(t);
}

/* Sets of linked cards are looked for at the cost of the effort that all nodes share, but the first
 * try of every container is always made. */
static void test_links_cost_effort(void **state) {
    (void) state;
    static struct gpu_request request = {.n = 2};
    static struct place_plan plan;
    struct place_card many[16];
    struct place_result r;
    struct place_topology *t = make(16, any);
    struct place_node node = {.cards = many, .ncards = 16, .topology = t};
    idle_cards();
    for (uint32_t c = 0; c < 16; c++)
        many[c] = cards[0];
    request.containers[0] = request.containers[1] = four;
    request.containers[0].cards = request.containers[1].cards = 8;
    place_prepare(&request, &plan);
    uint32_t whole = plan.effort, nodes = 0;
    for (; plan.effort > 16 * 16 + 1 && nodes < 100000; nodes++) /* what a first try may take */
        assert_int_equal(place_on_node(&place_binpack, &plan, &node, &r), PLACE_OK);
    assert_in_range(nodes, 2, whole / 32 / 2); /* 32: two containers look at 16 cards each */
    assert_int_equal(place_on_node(&place_binpack, &plan, &node, &r), PLACE_OK);
    assert_int_equal(r.cards[0] | r.cards[1], 0xffff);
    free(t);
}

/* One whole card comes from the group that is broken already. */
static void test_one_card(void **state) {
    (void) state;
    const struct container_request one = {.phase = CONTAINER_APP, .cards = 1, .whole = true};
    struct place_result r;
    struct place_topology *t = make(8, quads);
    idle_cards();
    cards[6].healthy = false;
    assert_int_equal(run(t, one, TOPOLOGY_UNSET, false, &r), PLACE_OK);
    assert_int_equal(r.cards[0] & ~UINT64_C(0xf0), 0);
    free(t);
}

static void test_words(void **state) {
    (void) state;
    char text[GPU_LINK_TEXT_MAX];
    for (int i = LINK_SYSTEM; i < LINK_NVLINK + LINK_NVLINKS_MAX; i++)
        assert_int_equal(gpu_link_parse(gpu_link_format((uint8_t) i, text)), i);
    assert_int_equal(gpu_link_parse("NV0"), LINK_UNKNOWN);
    assert_int_equal(gpu_link_parse("NV65"), LINK_UNKNOWN);
    assert_int_equal(gpu_link_parse("NV"), LINK_UNKNOWN);
    assert_int_equal(gpu_link_parse("NVx"), LINK_UNKNOWN);
    assert_int_equal(gpu_link_parse(""), LINK_UNKNOWN);
    assert_int_equal(gpu_link_parse("SYSTEM"), LINK_UNKNOWN);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_sixteen_cards),
        cmocka_unit_test(test_known_machines),
        cmocka_unit_test(test_many_cards),
        cmocka_unit_test(test_many_cards_in_vain),
        cmocka_unit_test(test_topology_policies),
        cmocka_unit_test(test_near_cards),
        cmocka_unit_test(test_shares_of_several),
        cmocka_unit_test(test_links_cost_effort),
        cmocka_unit_test(test_one_card),
        cmocka_unit_test(test_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
