/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "place-world.h"
#include "place/workload/scarce.h"

/* Prices of slots: places for pods that ask several cards or name models. */

/* As many pods of 8 cards are to be expected as there are nodes for them: smaller ones keep off,
 * wherever they come in the order. */
static void test_slot_price(void **state) {
    (void) state;
    struct place_model *m = place_model_new();
    struct world slot, broken;
    struct pod pod, large;
    arrive(m, 32, 8, 100, CORES(80));
    arrive(m, 32, 1, 100, CORES(8));
    place_model_learn(m);
    make_node(&slot, 0, CORES(96), 8, (uint32_t[]){100, 100, 100, 100, 100, 100, 100, 100});
    make_node(&broken, 1, CORES(88), 8, (uint32_t[]){0, 100, 100, 100, 100, 100, 100, 100});
    place_model_node(m, 0, &slot.node);
    place_model_node(m, 1, &broken.node);
    struct place_plan *plan = make_pod(&pod, m, 1, 100, CORES(8));
    struct place_amount holds[PLACE_CARDS_MAX] = {{CARD, 100, 0}};
    uint64_t of_slot = place_model_broken(m, plan, &slot.node, holds);
    assert_int_not_equal(of_slot, 0);
    assert_int_equal(place_model_slots_price(m, of_slot), 8000);
    struct place_amount second[PLACE_CARDS_MAX] = {[1] = {CARD, 100, 0}};
    assert_int_equal(place_model_slots_price(m, place_model_broken(m, plan, &broken.node, second)),
                     0);
    assert_true(score_of("esc", plan, &broken) > score_of("esc", plan, &slot));
    make_pod(&large, m, 8, 100, CORES(96));
    /* A hundred slots more, and few pods that need them: now they are cheap. */
    for (uint32_t id = 2; id < 102; id++)
        place_model_node(m, id, &slot.node);
    arrive(m, 3000, 1, 100, CORES(8));
    assert_in_range(place_model_slots_price(m, of_slot), 0, 10);
    /* They become dear again as they go. */
    for (uint32_t id = 14; id < 102; id++)
        place_model_node(m, id, &broken.node);
    int64_t dear = place_model_slots_price(m, of_slot);
    assert_in_range(dear, 1000, 8000);
    /* Pods that run need none. A pod that began as one kind and ends as another is counted out. */
    for (uint32_t i = 0; i < 100; i++)
        place_model_start(m, &large.plan);
    assert_true(place_model_slots_price(m, of_slot) < dear);
    large.plan.models = 3;
    for (uint32_t i = 0; i < 100; i++)
        place_model_end(m, &large.plan);
    assert_int_equal(place_model_slots_price(m, of_slot), dear);
    place_model_free(m);
}

/* Half of the demand insists on model 1, which is a tenth of the cards: others keep off. */
static void test_model_price(void **state) {
    (void) state;
    struct place_model *m = place_model_new();
    struct world w;
    struct pod pod;
    struct place_amount holds[PLACE_CARDS_MAX] = {{CARD, 100, 0}};
    make_node(&w, 0, CORES(80), 8, (uint32_t[]){100, 100, 100, 100, 100, 100, 100, 100});
    for (uint32_t id = 0; id < 10; id++) {
        w.node.model = id == 0;
        place_model_node(m, id, &w.node);
    }
    arrive(m, 32, 1, 100, CORES(8));
    make_pod(&pod, m, 1, 100, CORES(8));
    pod.plan.models = 1 << 1;
    for (uint32_t i = 0; i < 32; i++)
        place_model_arrive(m, &pod.plan);
    place_model_learn(m);
    w.node.model = 1;
    pod.plan.models = UINT64_MAX;
    uint64_t others = place_model_broken(m, &pod.plan, &w.node, holds);
    assert_int_equal(place_model_slots_price(m, others), 1000);
    int64_t scarce = score_of("esc", &pod.plan, &w);
    w.node.model = 0;
    others = place_model_broken(m, &pod.plan, &w.node, holds);
    assert_int_equal(place_model_slots_price(m, others), 0);
    assert_true(score_of("esc", &pod.plan, &w) > scarce);
    place_model_free(m);
}

/* A pod of as many cards pays as well where another one needs more CPU than it does. */
static void test_slots_of_much_cpu(void **state) {
    (void) state;
    struct place_model *m = place_model_new();
    struct world small, large;
    struct pod pod;
    uint32_t idle[] = {100, 100, 100, 100, 100, 100, 100, 100};
    arrive(m, 36, 8, 100, CORES(40));
    arrive(m, 4, 8, 100, CORES(90));
    make_node(&small, 1, CORES(64), 8, idle);
    make_node(&large, 0, CORES(96), 8, idle);
    small.node.cpu = CORES(64);
    place_model_node(m, 0, &large.node);
    for (uint32_t id = 1; id < 16; id++)
        place_model_node(m, id, &small.node);
    place_model_learn(m);
    struct place_plan *plan = make_pod(&pod, m, 8, 100, CORES(40));
    assert_true(score_of("esc", plan, &small) > score_of("esc", plan, &large));
    place_model_free(m);
}

/* Of two models that a pod accepts it takes the one that other pods insist on less. */
static void test_selections_are_divided(void **state) {
    (void) state;
    struct place_model *m = place_model_new();
    struct world w[3];
    struct pod pod;
    uint32_t idle[] = {100, 100, 100, 100, 100, 100, 100, 100};
    for (uint32_t model = 0; model < 3; model++)
        make_node(&w[model], model, CORES(80), 8, idle);
    for (uint32_t id = 0; id < 60; id++) {
        struct place_node node = w[0].node;
        node.model = id / 20;
        place_model_node(m, id, &node);
    }
    make_pod(&pod, m, 1, 100, CORES(8));
    for (uint32_t i = 0; i < 320; i++) {
        uint64_t both = 1 << 1 | 1 << 2;
        pod.plan.models = i % 8 > 2 ? UINT64_MAX : i % 8 > 0 ? 1 << 2 : both;
        place_model_arrive(m, &pod.plan);
    }
    place_model_learn(m);
    pod.plan.models = 1 << 1 | 1 << 2;
    struct place_amount holds[PLACE_CARDS_MAX] = {{CARD, 100, 0}};
    int64_t price[3];
    for (uint32_t model = 0; model < 3; model++) {
        w[model].node.model = model;
        price[model] =
            place_model_slots_price(m, place_model_broken(m, &pod.plan, &w[model].node, holds));
    }
    assert_int_equal(price[0], 0);              /* no pod insists on it */
    assert_in_range(price[1], 1, price[2] - 1); /* there is a choice beside it */
    assert_true(score_of("esc", &pod.plan, &w[1]) > score_of("esc", &pod.plan, &w[2]));
    place_model_free(m);
}

/* Pods of many cards are rare: before the first of them selects a model, small ones show that
 * models are selected. */
static void test_slots_for_a_selection_not_seen_yet(void **state) {
    (void) state;
    struct place_model *m = place_model_new();
    struct world w;
    struct pod pod;
    struct place_amount holds[PLACE_CARDS_MAX] = {{CARD, 100, 0}};
    make_node(&w, 0, CORES(80), 8, (uint32_t[]){100, 100, 100, 100, 100, 100, 100, 100});
    for (uint32_t id = 0; id < 200; id++) {
        w.node.model = id == 0;
        place_model_node(m, id, &w.node);
    }
    arrive(m, 2, 8, 100, CORES(64));
    arrive(m, 3000, 1, 10, CORES(2));
    make_pod(&pod, m, 1, 10, CORES(2));
    pod.plan.models = 1 << 1;
    for (uint32_t i = 0; i < 1000; i++)
        place_model_arrive(m, &pod.plan);
    place_model_learn(m);
    pod.plan.models = UINT64_MAX;
    w.node.model = 0;
    assert_in_range(place_model_slots_price(m, place_model_broken(m, &pod.plan, &w.node, holds)), 0,
                    100);
    w.node.model = 1;
    assert_true(place_model_slots_price(m, place_model_broken(m, &pod.plan, &w.node, holds)) >
                1000);
    place_model_free(m);
}

/* Rare selections that came before do not keep out the one that most pods make. */
static void test_frequent_selections_are_watched(void **state) {
    (void) state;
    struct place_model *m = place_model_new();
    struct world w;
    struct pod pod;
    struct place_amount holds[PLACE_CARDS_MAX] = {{CARD, 100, 0}};
    make_node(&w, 0, CORES(80), 8, (uint32_t[]){100, 100, 100, 100, 100, 100, 100, 100});
    for (uint32_t id = 0; id < 20; id++) {
        w.node.model = id == 0;
        place_model_node(m, id, &w.node);
    }
    make_pod(&pod, m, 1, 100, CORES(8));
    for (uint32_t i = 0; i < SCARCE_CHOICES; i++) {
        pod.plan.models = 1 | UINT64_C(4) << i % 50 | UINT64_C(4) << (i % 50 + 1 + i / 50);
        place_model_arrive(m, &pod.plan);
    }
    pod.plan.models = 1 << 1;
    for (uint32_t i = 0; i < 500; i++)
        place_model_arrive(m, &pod.plan);
    place_model_learn(m);
    w.node.model = 1;
    pod.plan.models = UINT64_MAX;
    uint64_t broken = place_model_broken(m, &pod.plan, &w.node, holds);
    assert_int_equal(place_model_slots_price(m, broken), 1000);
    place_model_free(m);
}

/* Old arrivals fade, but not in a day: what is expected stays. */
static void test_fading_changes_no_price(void **state) {
    (void) state;
    struct place_model *m = place_model_new();
    struct world slot;
    struct pod pod;
    struct place_amount holds[PLACE_CARDS_MAX] = {{CARD, 100, 0}};
    for (uint32_t i = 0; i < 8191; i++) {
        arrive(m, 1, 8, 100, CORES(80));
        arrive(m, 7, 1, 100, CORES(8));
    }
    arrive(m, 8, 1, 100, CORES(8));
    make_node(&slot, 0, CORES(96), 8, (uint32_t[]){100, 100, 100, 100, 100, 100, 100, 100});
    for (uint32_t id = 0; id < 60; id++)
        place_model_node(m, id, &slot.node);
    struct place_plan *plan = make_pod(&pod, m, 1, 100, CORES(8));
    uint64_t broken = place_model_broken(m, plan, &slot.node, holds);
    uint32_t epoch = place_model_epoch(m);
    int64_t before = place_model_slots_price(m, broken);
    assert_in_range(before, 100, 7900);
    arrive(m, 1, 1, 100, CORES(8)); /* the 65,537th */
    assert_int_equal(place_model_epoch(m), epoch);
    assert_in_range(place_model_slots_price(m, broken), before - 50, before + 50);
    place_model_free(m);
}

static uint32_t chance = 1;

static uint32_t below(uint32_t n) {
    chance = chance * 1664525 + 1013904223;
    return (chance >> 8) % n;
}

static struct scarce_node some_node(void) {
    struct scarce_node node = {.cards = (uint8_t) below(9)};
    if (node.cards == 0)
        return node;
    node.idle = (uint8_t) below(node.cards + 1U);
    node.model = (uint8_t) below(4);
    node.free = below(node.cards * 1000U);
    node.most = below(8) ? CORES(96) : 0;
    node.cpu = node.most ? below(node.most) : UINT32_MAX;
    return node;
}

/* Counts that are kept up are those of counting all anew. */
static void assert_counted(const struct scarce *s, uint32_t nnodes, struct scarce *again) {
    *again = *s;
    memset(again->nodes, 0, sizeof(again->nodes));
    memset(again->by_model, 0, sizeof(again->by_model));
    again->cards = again->free = 0;
    for (uint32_t i = 0; i < s->nsizes; i++)
        for (uint32_t model = 0; model < WORKLOAD_MODELS_MAX; model++)
            memset(again->sizes[i].on[model].slots, 0, sizeof(again->sizes[i].on[model].slots));
    for (uint32_t id = 0; id < nnodes; id++)
        scarce_set(again, id, &s->nodes[id]);
    assert_true(again->cards == s->cards && again->free == s->free);
    assert_memory_equal(again->by_model, s->by_model, sizeof(s->by_model));
    for (uint32_t i = 0; i < s->nsizes; i++)
        for (uint32_t model = 0; model < WORKLOAD_MODELS_MAX; model++)
            assert_memory_equal(again->sizes[i].on[model].slots, s->sizes[i].on[model].slots,
                                sizeof(s->sizes[i].on[model].slots));
}

static void test_counts_are_kept(void **state) {
    (void) state;
    enum { NODES = 40, PODS = 200 };
    struct scarce *s = calloc(1, sizeof(*s)), *again = calloc(1, sizeof(*again));
    struct workload *w = calloc(1, sizeof(*w));
    struct place_shape running[PODS];
    uint32_t n = 0, priced = 0;
    assert_true(s && again && w);
    workload_init(w);
    scarce_init(s, w);
    for (uint32_t i = 0; i < 6000; i++) {
        struct place_shape shape = {.cards = 1 + below(8), .core = 100, .cpu = CORES(below(80))};
        shape.models = below(2) ? WORKLOAD_ANY_MODEL : 1 + below(15);
        struct scarce_node node = below(4) ? some_node() : (struct scarce_node){0};
        scarce_set(s, below(NODES), &node);
        if (below(4) == 0) {
            workload_add(w, &shape);
            scarce_arrived(s, &shape);
        }
        if (n < PODS && below(2)) {
            scarce_run(s, &shape, 1);
            running[n++] = shape;
        } else if (n > 0) {
            uint32_t at = below(n);
            scarce_run(s, &running[at], -1);
            running[at] = running[--n];
        }
        if (below(100) == 0)
            scarce_learn(s);
        if (below(20) == 0)
            assert_counted(s, NODES, again);
        const struct scarce_node gone = {.model = (uint8_t) below(4)};
        struct scarce_node idle = {.cards = 8, .idle = 8, .cpu = UINT32_MAX, .model = gone.model};
        priced += scarce_slots_price(s, scarce_broken(s, &idle, &gone, &shape)) > 0;
    }
    assert_int_not_equal(priced, 0);
    while (n > 0)
        scarce_run(s, &running[--n], -1);
    for (uint32_t i = 0; i < SCARCE_RUNNING_MAX; i++)
        assert_int_equal(s->running[i].milli, 0);
    for (uint32_t id = 0; id < NODES; id++)
        scarce_set(s, id, &(struct scarce_node){0});
    assert_true(s->cards == 0 && s->free == 0);
    free(s);
    free(again);
    free(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slot_price),
        cmocka_unit_test(test_model_price),
        cmocka_unit_test(test_slots_of_much_cpu),
        cmocka_unit_test(test_selections_are_divided),
        cmocka_unit_test(test_slots_for_a_selection_not_seen_yet),
        cmocka_unit_test(test_frequent_selections_are_watched),
        cmocka_unit_test(test_fading_changes_no_price),
        cmocka_unit_test(test_counts_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
