/* SPDX-License-Identifier: Apache-2.0 */

/* Placement on MIG instances that are given out in shares. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "place-cards.h"

/* 2 of 7 compute slices. */
static struct place_card idle_instance(uint64_t gib, uint32_t core) {
    struct place_card card = idle_card(gib);
    card.core = core;
    card.free.core = core;
    return card;
}

/* Percent is of the card: an instance gives as much as it has of it. */
static void test_shares_of_an_instance(void **state) {
    (void) state;
    const struct place_card both[] = {idle_instance(20, 28), idle_card(80)};
    struct place_card used = idle_instance(20, 28);
    struct container_request req = share(14, 0);
    struct place_result result;
    assert_true(place_card_is_idle(both));
    assert_int_equal(place_share(&req, both).memory, 10 * GIB);
    assert_int_equal(run_one(both, 1, share(28, 0), &result), PLACE_OK);
    assert_int_equal(result.grants[0].taken.core, 28);
    assert_true(result.grants[0].memory == 20 * GIB);
    assert_int_equal(run_one(both, 1, share(29, GIB), &result), PLACE_TOO_WIDE);
    assert_int_equal(run_one(both, 1, share(0, 20 * GIB), &result), PLACE_OK);
    assert_int_equal(run_one(both, 1, share(0, 21 * GIB), &result), PLACE_TOO_LARGE);
    used.free = (struct place_amount){5 * GIB, 8, SLOTS_PER_CARD};
    assert_false(place_card_is_idle(&used));
    assert_int_equal(run_one(&used, 1, share(8, 5 * GIB), &result), PLACE_OK);
    assert_int_equal(run_one(&used, 1, share(9, GIB), &result), PLACE_NO_CORE);
    req = share(0, 0);
    req.memory_percent = 20; /* of a card, and the instance is 28 % of one */
    assert_int_equal(place_share(&req, both).memory, 20 * GIB * 20 / 28);
    req.memory_percent = 50;
    assert_int_equal(run_one(both, 1, req, &result), PLACE_TOO_LARGE);
    assert_int_equal(run_one(both, 2, req, &result), PLACE_OK);
    assert_int_equal(result.cards[0], 1 << 1);
}

/* Whole cards and several cards are never instances, however large. */
static void test_whole_cards_beside_instances(void **state) {
    (void) state;
    const struct place_card cards[] = {idle_instance(80, 100), idle_instance(80, 100),
                                       idle_card(80)};
    struct container_request two = share(10, GIB);
    struct place_result result;
    two.cards = 2;
    assert_int_equal(run_one(cards, 1, whole(1), &result), PLACE_INSTANCES);
    assert_int_equal(run_one(cards, 2, two, &result), PLACE_INSTANCES);
    assert_true(place_reason_is_final(PLACE_INSTANCES));
    assert_int_equal(run_one(cards, 3, whole(1), &result), PLACE_OK);
    assert_int_equal(result.cards[0], 1 << 2);
    assert_int_equal(run_one(cards, 3, whole(2), &result), PLACE_INSTANCES);
    assert_int_equal(run_one(cards, 3, two, &result), PLACE_INSTANCES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares_of_an_instance),
        cmocka_unit_test(test_whole_cards_beside_instances),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
