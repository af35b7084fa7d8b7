/* SPDX-License-Identifier: Apache-2.0 */

/* Requests of replicas, into which the configuration of a node divides a card. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "place-cards.h"

static struct container_request replicas(uint32_t n) {
    return (struct container_request){.cards = 1, .replicas = n, .slot = true};
}

/* How many parts a card has is the card's own. */
static void test_replicas(void **state) {
    (void) state;
    struct place_result result;
    struct place_card cards[2] = {idle_card(80), idle_card(80)};
    struct container_request req = replicas(1);
    assert_int_equal(place_share(&req, &cards[0]).memory, 8 * GIB); /* not configured: a tenth */
    cards[0].replicas.count = 4;
    assert_int_equal(place_share(&req, &cards[0]).memory, 20 * GIB);
    assert_int_equal(place_share(&req, &cards[0]).slots, 1);
    assert_int_equal(run_one(cards, 1, replicas(4), &result), PLACE_OK);
    assert_int_equal(result.grants[0].taken.memory, 80 * GIB);
    assert_int_equal(result.grants[0].taken.core, 0);
    assert_int_equal(result.grants[0].memory, 80 * GIB);
    assert_int_equal(run_one(cards, 1, replicas(5), &result), PLACE_TOO_LARGE);
    assert_int_equal(run_one(cards, 2, replicas(5), &result), PLACE_OK);
    assert_int_equal(result.cards[0], 2);
    assert_int_equal(result.grants[0].taken.memory, 40 * GIB);
    cards[0].free.memory -= 1;
    assert_int_equal(run_one(cards, 1, replicas(4), &result), PLACE_NO_MEMORY);
    /* Shares of other names are as on any card. */
    assert_int_equal(run_one(cards, 1, share(30, 7 * GIB), &result), PLACE_OK);
    /* Under sharing.mps a replica has its part of the compute, and takes no slot. */
    cards[0].replicas = (struct card_replicas){.count = 8, .with_core = true};
    req = replicas(2);
    assert_int_equal(place_share(&req, &cards[0]).core, 25);
    assert_int_equal(place_share(&req, &cards[0]).slots, 0);
    cards[0].replicas.count = 1024;
    req = replicas(1);
    assert_int_equal(place_share(&req, &cards[0]).core, 1);
}

/* All replicas of a card together take no more than the card has. */
static void test_replicas_fill_a_card(void **state) {
    (void) state;
    for (uint32_t n = 2; n <= SLOTS_PER_CARD; n++) {
        struct place_card card = idle_card(80);
        struct place_result result;
        card.memory = card.physical = card.free.memory = 80 * GIB - 1;
        card.replicas.count = n;
        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(run_one(&card, 1, replicas(1), &result), PLACE_OK);
            assert_true(place_amount_take(&card.free, &result.grants[0].taken));
        }
        assert_true(card.free.memory < n);
        assert_int_not_equal(run_one(&card, 1, replicas(1), &result), PLACE_OK);
    }
}

/* nvidia.com/gpu is a replica on some cards, and all of the others. */
static void test_replicas_as_cards(void **state) {
    (void) state;
    struct place_result result;
    struct place_card cards[2] = {idle_card(80), idle_card(80)};
    struct container_request req = whole(1);
    req.as_replica = true;
    cards[0].replicas = (struct card_replicas){.count = 4, .as_cards = true};
    cards[0].free.memory -= 60 * GIB;
    cards[1].free.memory -= 60 * GIB;
    assert_int_equal(run_one(cards, 2, req, &result), PLACE_OK);
    assert_int_equal(result.cards[0], 1);
    assert_int_equal(result.grants[0].memory, 20 * GIB);
    assert_int_equal(result.grants[0].taken.core, 0);
    assert_int_equal(run_one(&cards[1], 1, req, &result), PLACE_NO_WHOLE);
    cards[0].free.memory -= 1;
    assert_int_equal(run_one(cards, 1, req, &result), PLACE_NO_MEMORY);
    cards[0] = idle_card(80);
    cards[0].replicas = (struct card_replicas){.count = 4}; /* under another name */
    assert_int_equal(run_one(cards, 1, req, &result), PLACE_OK);
    assert_int_equal(result.grants[0].taken.core, 100);
    /* One of each of two cards. */
    cards[0].replicas.as_cards = true;
    cards[1] = cards[0];
    req.cards = 2;
    assert_int_equal(run_one(cards, 2, req, &result), PLACE_OK);
    assert_int_equal(result.cards[0], 3);
    assert_int_equal(result.grants[1].memory, 20 * GIB);
    assert_int_equal(run_one(cards, 1, req, &result), PLACE_TOO_FEW);
    /* A request by another name is of whole cards. */
    assert_int_equal(run_one(cards, 2, whole(1), &result), PLACE_OK);
    assert_int_equal(result.grants[0].memory, 80 * GIB);
}

static void test_one_replica_at_most(void **state) {
    (void) state;
    struct place_result result;
    struct place_card cards[2] = {idle_card(80), idle_card(80)};
    struct container_request two = whole(2);
    two.as_replica = true;
    for (int i = 0; i < 2; i++)
        cards[i].replicas =
            (struct card_replicas){.count = 4, .as_cards = true, .one_at_most = true};
    assert_int_equal(run_one(cards, 2, replicas(1), &result), PLACE_OK);
    assert_int_equal(run_one(cards, 2, replicas(2), &result), PLACE_ONE_REPLICA);
    assert_int_equal(run_one(cards, 2, two, &result), PLACE_ONE_REPLICA);
    assert_true(place_reason_is_final(PLACE_ONE_REPLICA));
    two.cards = 1;
    assert_int_equal(run_one(cards, 2, two, &result), PLACE_OK);
    cards[1].replicas.one_at_most = false;
    assert_int_equal(run_one(cards, 2, replicas(2), &result), PLACE_OK);
    assert_int_equal(result.cards[0], 2);
}

/* Shares under the name of replicas would be more than the replicas that kubelet counts. */
static void test_no_shares_under_the_name(void **state) {
    (void) state;
    struct place_result result;
    struct place_card cards[2] = {idle_card(80), idle_card(80)};
    struct container_request named = share(0, GIB), all = whole(1);
    named.as_cards = true;
    cards[0].replicas = (struct card_replicas){.count = 4, .as_cards = true};
    assert_int_equal(run_one(cards, 1, named, &result), PLACE_REPLICAS);
    assert_true(place_reason_is_final(PLACE_REPLICAS));
    assert_int_equal(run_one(cards, 2, named, &result), PLACE_OK);
    assert_int_equal(result.cards[0], 2);
    /* By other names, and all of the card. */
    assert_int_equal(run_one(cards, 1, share(0, GIB), &result), PLACE_OK);
    assert_int_equal(run_one(cards, 1, all, &result), PLACE_OK);
    cards[0].replicas.as_cards = false;
    assert_int_equal(run_one(cards, 1, named, &result), PLACE_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replicas),
        cmocka_unit_test(test_replicas_fill_a_card),
        cmocka_unit_test(test_replicas_as_cards),
        cmocka_unit_test(test_one_replica_at_most),
        cmocka_unit_test(test_no_shares_under_the_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
