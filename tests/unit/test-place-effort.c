/* SPDX-License-Identifier: Apache-2.0 */

/* What the search spares itself, and that it finds what there is nevertheless. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "place-cards.h"

/* A pod that finds no place on equal cards costs the other nodes little. */
static void test_equal_cards_are_tried_once(void **state) {
    (void) state;
    enum { CARDS = 8 };
    static struct gpu_request r = {.n = CARDS + 1};
    struct place_card cards[CARDS];
    struct place_node node = {.cards = cards, .ncards = CARDS};
    struct place_result result;
    struct place_plan plan;
    for (uint32_t c = 0; c < CARDS; c++)
        cards[c] = idle_card(80);
    for (uint32_t i = 0; i < r.n; i++)
        r.containers[i] = share(60, 0);
    place_prepare(&r, &plan);
    uint32_t effort = plan.effort;
    assert_int_equal(place_on_node(&place_binpack, &plan, &node, &result), PLACE_NOT_TOGETHER);
    assert_in_range(effort - plan.effort, 1, 2 * r.n * CARDS);
}

/* Two equal cards of which one container may take only one: the other container, which is placed
 * first, gets the other card. */
static void test_equal_cards_with_unequal_permissions(void **state) {
    (void) state;
    const struct place_card cards[2] = {idle_card(80), idle_card(80)};
    static const struct gpu_request orders[2] = {
        {.n = 2,
         .containers = {{.phase = CONTAINER_APP, .cards = 1, .core = 10},
                        {.phase = CONTAINER_APP, .cards = 1, .whole = true}}},
        {.n = 2,
         .containers = {{.phase = CONTAINER_APP, .cards = 1, .whole = true},
                        {.phase = CONTAINER_APP, .cards = 1, .core = 10}}}};
    for (uint32_t small = 0; small < 2; small++)
        for (uint32_t card = 0; card < 2; card++) {
            uint64_t allowed[2] = {3, 3};
            struct place_node node = {.cards = cards, .ncards = 2, .allowed = allowed};
            static struct place_plan plan;
            struct place_result result;
            allowed[small] = UINT64_C(1) << card;
            place_prepare(&orders[small], &plan);
            assert_int_equal(place_on_node(&place_binpack, &plan, &node, &result), PLACE_OK);
            assert_int_equal(result.cards[small], 1u << card);
            assert_int_equal(result.cards[1 - small], 2u >> card);
        }
}

static void test_worst_case_ends(void **state) {
    (void) state;
    struct place_card cards[16];
    static struct gpu_request r;
    struct place_result result;
    for (uint32_t c = 0; c < 16; c++) {
        cards[c] = idle_card(80);
        cards[c].free.core = 99 - c; /* no two equal */
    }
    r.n = GPU_CONTAINERS_MAX;
    for (uint32_t i = 0; i < r.n; i++)
        r.containers[i] = share(48 + i % 3, GIB);
    assert_int_not_equal(run(cards, 16, &r, &result), PLACE_OK);
}

/* A pod of many containers that nearly fits is told so by the sums, at no effort. */
static void test_nearly_fitting_is_cheap(void **state) {
    (void) state;
    struct place_card cards[8];
    static struct gpu_request r;
    static struct place_plan plan;
    struct place_result result;
    for (uint32_t c = 0; c < 8; c++) {
        cards[c] = idle_card(80);
        cards[c].free.memory -= c * GIB / 8;
    }
    r.n = GPU_CONTAINERS_MAX;
    for (uint32_t i = 0; i < r.n; i++)
        r.containers[i] = share(0, 20 * GIB + i * 37 * (GIB >> 10));
    struct place_node node = {.cards = cards, .ncards = 8};
    place_prepare(&r, &plan);
    uint32_t effort = plan.effort;
    assert_int_equal(place_on_node(&place_binpack, &plan, &node, &result), PLACE_NOT_TOGETHER);
    assert_int_equal(plan.effort, effort);
    for (uint32_t i = 0; i < r.n; i++)
        r.containers[i] = share(0, GIB);
    r.containers[0].phase = CONTAINER_INIT;
    r.containers[0].memory =
        200 * GIB; /* one that fits nowhere is found before the others are placed */
    place_prepare(&r, &plan);
    assert_int_equal(place_on_node(&place_binpack, &plan, &node, &result), PLACE_TOO_LARGE);
    assert_int_equal(plan.effort, effort);
}

/* All nodes together cost no more than one that takes the whole effort; a pod that fits at the
 * first try is placed all the same. */
static void test_effort_is_shared(void **state) {
    (void) state;
    struct place_card cards[PLACE_CARDS_MAX];
    static struct gpu_request r;
    static struct place_plan plan;
    struct place_result result;
    for (uint32_t c = 0; c < 8; c++) {
        cards[c] = idle_card(80);
        cards[c].free.core = 99 - c; /* no two equal */
    }
    r.n = 17; /* two fit on each card: one too many, which the sums do not tell */
    for (uint32_t i = 0; i < r.n; i++)
        r.containers[i] = share(34, GIB + i);
    struct place_node node = {.cards = cards, .ncards = 8};
    place_prepare(&r, &plan);
    for (int i = 0; i < 3; i++)
        assert_int_equal(place_on_node(&place_binpack, &plan, &node, &result), PLACE_NOT_TOGETHER);
    assert_int_equal(plan.effort, 0);
    struct place_card empty[PLACE_CARDS_MAX];
    for (uint32_t c = 0; c < PLACE_CARDS_MAX; c++)
        empty[c] = idle_card(80);
    struct place_node roomy = {.cards = empty, .ncards = PLACE_CARDS_MAX};
    assert_int_equal(place_on_node(&place_binpack, &plan, &roomy, &result), PLACE_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_cards_are_tried_once),
        cmocka_unit_test(test_equal_cards_with_unequal_permissions),
        cmocka_unit_test(test_worst_case_ends),
        cmocka_unit_test(test_nearly_fitting_is_cheap),
        cmocka_unit_test(test_effort_is_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
