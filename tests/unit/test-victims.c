/* SPDX-License-Identifier: Apache-2.0 */

/* Whom preemption chooses, against every subset there is. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "place/victims.h"

#define GIB ((uint64_t) 1 << 30)
#define CARDS_MAX 4
#define HOLDERS 40
#define TESTS 2000000

/* One case with room for what it points to. */
struct world {
    struct place_card cards[CARDS_MAX];
    struct place_node node;
    struct victims_amount amounts[HOLDERS][2];
    struct victims_holder holders[HOLDERS];
    int32_t budgets[2];
    struct gpu_request request;
    struct victims_case of;
    uint64_t random;
};

static uint32_t draw(struct world *w, uint32_t below) {
    w->random = w->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t) (w->random >> 33) % below;
}

static void prepare(struct world *w, uint32_t ncards) {
    for (uint32_t c = 0; c < ncards; c++)
        w->cards[c] = (struct place_card){.memory = 80 * GIB,
                                          .free = {80 * GIB, 100, SLOTS_PER_CARD},
                                          .healthy = true,
                                          .physical = 80 * GIB};
    w->node = (struct place_node){.cards = w->cards, .ncards = ncards};
    w->of = (struct victims_case){
        .policy = &place_binpack, .node = &w->node, .holders = w->holders, .priority = 1000};
}

static void hold(struct world *w, int32_t priority, uint32_t card, uint32_t core) {
    uint32_t i = w->of.nholders++;
    w->amounts[i][0] = (struct victims_amount){card, {core * GIB / 2, core, 0}};
    w->holders[i] = (struct victims_holder){
        .priority = priority, .since = i, .amounts = w->amounts[i], .namounts = 1};
}

static void ask(struct world *w, uint32_t cards, uint32_t core) {
    w->request.containers[w->request.n++] = (struct container_request){
        .container = "c", .phase = CONTAINER_APP, .cards = cards, .whole = core == 0, .core = core};
}

static bool choose(struct world *w, struct victims_choice *ret) {
    static struct place_plan plan;
    uint32_t tests = TESTS;
    struct victims_case of = w->of;
    /* Not one more than there are (address sanitizer). */
    struct victims_holder *exact = calloc(of.nholders, sizeof(*exact));
    assert_non_null(exact);
    memcpy(exact, w->holders, of.nholders * sizeof(*exact));
    for (uint32_t i = 0; i < of.nholders; i++) {
        struct victims_amount *amounts = calloc(exact[i].namounts, sizeof(*amounts));
        assert_non_null(amounts);
        memcpy(amounts, exact[i].amounts, exact[i].namounts * sizeof(*amounts));
        exact[i].amounts = amounts;
    }
    of.holders = exact;
    place_prepare(&w->request, &plan);
    bool chosen = victims_choose(&of, &plan, &tests, ret);
    for (uint32_t i = 0; i < of.nholders; i++)
        free((void *) (uintptr_t) exact[i].amounts);
    free(exact);
    return chosen;
}

/* ---- brute force ---- */

static bool fits_without(const struct world *w, uint64_t gone, struct place_result *ret) {
    static struct place_plan plan;
    struct place_card cards[CARDS_MAX];
    struct place_node node = w->node;
    memcpy(cards, w->cards, sizeof(cards));
    for (uint32_t i = 0; i < w->of.nholders; i++) {
        for (uint32_t h = 0; h < w->holders[i].namounts && !(gone >> i & 1); h++) {
            struct place_amount *free = &cards[w->holders[i].amounts[h].card].free;
            const struct place_amount *taken = &w->holders[i].amounts[h].amount;
            free->memory -= taken->memory < free->memory ? taken->memory : free->memory;
            free->core -= taken->core < free->core ? taken->core : free->core;
        }
    }
    node.cards = cards;
    place_prepare(&w->request, &plan);
    return place_on_node(&place_binpack, &plan, &node, ret) == PLACE_OK;
}

static struct victims_cost cost_of(const struct world *w, uint64_t set) {
    struct victims_cost cost = {INT32_MIN, 0, 0, 0, INT64_MAX};
    int32_t left[2] = {w->budgets[0], w->budgets[1]};
    for (uint32_t i = 0; i < w->of.nholders; i++) {
        const struct victims_holder *h = &w->holders[i];
        bool over = false;
        if (!(set >> i & 1) || h->goes)
            continue;
        for (int b = 0; b < 2; b++)
            if (h->budgets >> b & 1)
                over |= left[b]-- <= 0;
        cost.violations += over;
        cost.highest = h->priority > cost.highest ? h->priority : cost.highest;
        cost.since = h->since < cost.since ? h->since : cost.since;
        cost.sum += (uint64_t) ((int64_t) h->priority + (INT64_C(1) << 31) + 1);
    }
    return cost;
}

static bool allowed(const struct world *w, uint64_t set) {
    for (uint32_t i = 0; i < w->of.nholders; i++) {
        const struct victims_holder *h = &w->holders[i];
        if ((set >> i & 1) ? !h->goes && (h->stays || h->priority >= w->of.priority) : h->goes)
            return false;
    }
    return true;
}

static bool brute_force(const struct world *w, struct victims_cost *ret) {
    bool found = false;
    for (uint64_t set = 0; set < UINT64_C(1) << w->of.nholders; set++) {
        struct place_result result;
        struct victims_cost cost = cost_of(w, set);
        if (!allowed(w, set) || (cost.violations > 0 && !w->of.may_violate) ||
            !fits_without(w, set, &result))
            continue;
        cost.gain = result.score;
        if (!found || victims_compare(&cost, ret) < 0)
            *ret = cost;
        found = true;
    }
    return found;
}

/* ---- tests ---- */

static void test_cheapest_goes(void **state) {
    (void) state;
    struct world w = {0};
    struct victims_choice choice;
    prepare(&w, 2);
    hold(&w, 10, 0, 60); /* 0: on the first card */
    hold(&w, 10, 0, 40);
    hold(&w, 5, 1, 50);
    hold(&w, 20, 1, 50);
    ask(&w, 1, 40);
    assert_true(choose(&w, &choice));
    assert_int_equal(choice.n, 1);
    assert_int_equal(choice.victims[0], 2); /* the lowest priority, though it is the larger one */
    assert_true(choice.result.cards[0] == 2);
    w.holders[2].stays = true;
    assert_true(choose(&w, &choice));
    assert_int_equal(choice.n, 1);
    assert_int_equal(choice.victims[0], 1); /* leaves less over than the other of priority 10 */
}

static void test_who_does_not_help_stays(void **state) {
    (void) state;
    struct world w = {0};
    struct victims_choice choice;
    prepare(&w, 2);
    hold(&w, 1, 0, 10);
    hold(&w, 2, 0, 90);
    hold(&w, 3, 1, 50);
    ask(&w, 1, 90);
    assert_true(choose(&w, &choice));
    assert_int_equal(choice.n, 1);
    assert_int_equal(choice.victims[0], 1);
    w.of.priority = 2; /* only 0 is lower, which helps nothing */
    assert_false(choose(&w, &choice));
    w.holders[1].goes = true; /* is ending anyhow: no other has to */
    assert_true(choose(&w, &choice));
    assert_int_equal(choice.n, 0);
}

static void test_budgets(void **state) {
    (void) state;
    struct world w = {.budgets = {1, 0}};
    struct victims_choice choice;
    prepare(&w, 1);
    hold(&w, 1, 0, 50);
    hold(&w, 1, 0, 50);
    w.holders[0].budgets = w.holders[1].budgets = 1;
    w.of.budget = w.budgets;
    w.of.nbudgets = 2;
    ask(&w, 1, 40);
    assert_true(choose(&w, &choice));
    assert_int_equal(choice.n, 1);
    w.request.containers[0].core = 60; /* both would have to go, and only one may */
    assert_false(choose(&w, &choice));
    w.of.may_violate = true;
    assert_true(choose(&w, &choice));
    assert_int_equal(choice.n, 2);
    assert_int_equal(choice.cost.violations, 1);
}

/* One that may lose a pod more does not count as violated: among more holders than are tried in
 * every subset, too, its pod goes and the one without a budget left stays. */
static void test_a_budget_of_one_allows_one(void **state) {
    (void) state;
    struct world w = {.budgets = {1, 0}};
    struct victims_choice choice;
    prepare(&w, 1);
    hold(&w, 1, 0, 40);
    hold(&w, 1, 0, 40);
    w.holders[0].budgets = 1;
    w.holders[1].budgets = 2;
    for (uint32_t i = 0; i < 11; i++)
        hold(&w, 1, 0, 1);
    w.of.budget = w.budgets;
    w.of.nbudgets = 2;
    ask(&w, 1, 30);
    assert_true(choose(&w, &choice));
    assert_int_equal(choice.n, 1);
    assert_int_equal(choice.victims[0], 0);
}

static void random_case(struct world *w, uint64_t seed, uint32_t nholders, uint32_t steps) {
    *w = (struct world){.random = seed * 77 + 1};
    uint32_t ncards = 1 + draw(w, CARDS_MAX);
    prepare(w, ncards);
    for (uint32_t i = 0; i < nholders; i++) {
        hold(w, (int32_t) draw(w, 4) * 400 - 400, draw(w, ncards), 5 + 5 * draw(w, steps));
        struct victims_holder *h = &w->holders[i];
        h->budgets = draw(w, 3) ? 0 : 1 + draw(w, 3);
        h->stays = draw(w, 8) == 0;
        h->goes = draw(w, 8) == 0;
        h->since = draw(w, 5);
        if (draw(w, 4) == 0 && ncards > 1) {
            w->amounts[i][1] = w->amounts[i][0];
            w->amounts[i][1].card = (w->amounts[i][0].card + 1) % ncards;
            h->namounts = 2;
        }
    }
    for (int b = 0; b < 2; b++)
        w->budgets[b] = (int32_t) draw(w, 4) - 1;
    w->of.budget = w->budgets;
    w->of.nbudgets = 2;
    w->of.may_violate = draw(w, 2);
    uint32_t kind = draw(w, 4);
    ask(w, kind == 1 && ncards > 1 ? 2 : 1, kind == 0 ? 0 : 10 + 10 * draw(w, 9));
    if (kind == 2)
        ask(w, 1, 10 + 10 * draw(w, 9));
}

static void test_against_every_subset(void **state) {
    (void) state;
    static struct world w;
    unsigned found = 0, none_needed = 0, several = 0;
    for (uint64_t seed = 0; seed < 1500; seed++) {
        struct victims_choice choice;
        struct victims_cost best;
        random_case(&w, seed, 8, 12);
        bool possible = brute_force(&w, &best);
        assert_int_equal(choose(&w, &choice), possible);
        if (!possible)
            continue;
        assert_int_equal(victims_compare(&choice.cost, &best), 0);
        found++;
        none_needed += choice.n == 0;
        several += choice.n > 1;
    }
    /* The cases are worth something. */
    assert_true(found > 700 && found < 1490 && none_needed > 50 && several > 100);
}

/* With more holders than are tried in every subset: each victim is needed, may go, and the pod
 * fits then; and the same question has the same answer. */
static void test_many_holders(void **state) {
    (void) state;
    static struct world w;
    unsigned found = 0;
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct victims_choice choice, again;
        struct place_result result;
        random_case(&w, seed, HOLDERS, 2);
        if (!choose(&w, &choice))
            continue;
        uint64_t gone = 0;
        found++;
        for (uint32_t i = 0; i < w.of.nholders; i++)
            gone |= w.holders[i].goes ? UINT64_C(1) << i : 0;
        for (uint32_t i = 0; i < choice.n; i++)
            gone |= UINT64_C(1) << choice.victims[i];
        assert_true(allowed(&w, gone) && fits_without(&w, gone, &result));
        assert_true(w.of.may_violate || cost_of(&w, gone).violations == 0);
        for (uint32_t i = 0; i < choice.n; i++)
            assert_false(fits_without(&w, gone & ~(UINT64_C(1) << choice.victims[i]), &result));
        for (uint32_t i = 1; i < choice.n; i++)
            assert_true(w.holders[choice.victims[i - 1]].priority >=
                        w.holders[choice.victims[i]].priority);
        assert_true(choose(&w, &again));
        assert_int_equal(again.n, choice.n);
        assert_memory_equal(again.victims, choice.victims, choice.n * sizeof(*choice.victims));
    }
    assert_true(found > 100);
}

/* A total order: whichever of two choices is compared with the other. */
static void test_the_order_of_choices(void **state) {
    static const struct victims_cost costs[] = {
        {.highest = 1, .sum = 5},
        {.highest = 2, .sum = 4, .gain = 9, .since = 7},
        {.highest = 2, .sum = 4, .gain = 9, .since = 6},
        {.highest = 2, .sum = 4, .gain = 8, .since = 9},
        {.highest = 2, .sum = 5},
        {.highest = 2, .violations = 1},
    };
    (void) state;
    for (size_t a = 0; a < sizeof(costs) / sizeof(costs[0]); a++)
        for (size_t b = 0; b < sizeof(costs) / sizeof(costs[0]); b++)
            assert_int_equal(victims_compare(&costs[a], &costs[b]), a < b ? -1 : a > b);
}

/* Of equal priority the oldest is named first, whatever it holds. */
static void test_victims_are_named_by_age(void **state) {
    (void) state;
    struct world w = {0};
    struct victims_choice choice;
    prepare(&w, 1);
    hold(&w, 10, 0, 60);
    hold(&w, 10, 0, 40);
    ask(&w, 1, 0);
    assert_true(choose(&w, &choice));
    assert_int_equal(choice.n, 2);
    assert_int_equal(choice.victims[0], 0);
    assert_int_equal(choice.victims[1], 1);
}

/* Two victims do where one card's holders are tried in every subset; sparing one holder after the
 * other, among all of the node, ends with four. The other card has more holders than are tried in
 * every subset, and does not help or costs more. */
static void test_each_card_is_searched_by_itself(void **state) {
    static const struct {
        uint32_t stays, core;
        int32_t priority;
    } other[] = {{50, 4, 1}, {1, 9, 2}};
    (void) state;
    for (size_t row = 0; row < sizeof(other) / sizeof(other[0]); row++) {
        struct world w = {0};
        struct victims_choice choice;
        prepare(&w, 2);
        hold(&w, 1, 0, other[row].stays);
        w.holders[0].stays = true;
        for (int i = 0; i < 11; i++)
            hold(&w, other[row].priority, 0, other[row].core);
        hold(&w, 1, 1, 5);
        w.holders[12].stays = true;
        hold(&w, 2, 1, 30);
        hold(&w, 2, 1, 35);
        for (int i = 0; i < 3; i++)
            hold(&w, 1, 1, 10);
        ask(&w, 1, 60);
        assert_true(choose(&w, &choice));
        assert_int_equal(choice.n, 2);
        assert_int_equal(choice.victims[0], 13);
        assert_int_equal(choice.victims[1], 14);
    }
}

/* A holder of two cards is among the holders of either: the two victims have other cards beside,
 * each another one, so that they meet on one card only. */
static void test_holders_of_two_cards_are_searched(void **state) {
    (void) state;
    for (int at = 0; at < 2; at++) {
        struct world w = {0};
        struct victims_choice choice;
        prepare(&w, 4);
        hold(&w, 1, 0, 50);
        for (int i = 0; i < 11; i++)
            hold(&w, 1, 0, 4);
        hold(&w, 1, 1, 5);
        for (uint32_t i = 13; i < 15; i++) {
            hold(&w, 2, 1, 30 + 5 * (i - 13));
            w.amounts[i][1] = w.amounts[i][0];
            w.amounts[i][at] = (struct victims_amount){.card = i - 11};
            w.holders[i].namounts = 2;
        }
        for (int i = 0; i < 3; i++)
            hold(&w, 1, 1, 10);
        hold(&w, 1, 2, 50);
        hold(&w, 1, 3, 50);
        for (uint32_t i = 0; i < w.of.nholders; i++)
            w.holders[i].stays = i == 0 || i == 12 || i > 17;
        ask(&w, 1, 60);
        assert_true(choose(&w, &choice));
        assert_int_equal(choice.n, 2);
        assert_int_equal(choice.victims[0], 13);
        assert_int_equal(choice.victims[1], 14);
    }
}

/* Where not every subset is tried, one large holder goes instead of many small ones, by core as by
 * memory, also if it is the oldest. */
static void test_one_large_holder_goes_for_many_small(void **state) {
    (void) state;
    for (int by_memory = 0; by_memory < 2; by_memory++) {
        struct world w = {0};
        struct victims_choice choice;
        prepare(&w, 1);
        hold(&w, 10, 0, by_memory ? 0 : 50);
        w.amounts[0][0].amount.memory = by_memory ? 40 * GIB : 0;
        for (uint32_t i = 1; i < 13; i++) {
            hold(&w, 10, 0, by_memory ? 0 : 4);
            w.amounts[i][0].amount.memory = by_memory ? 3 * GIB : 0;
        }
        ask(&w, 1, 40);
        w.request.containers[0].memory = by_memory ? 40 * GIB : 1;
        assert_true(choose(&w, &choice));
        assert_int_equal(choice.n, 1);
        assert_int_equal(choice.victims[0], 0);
    }
}

static void test_effort_is_bounded(void **state) {
    (void) state;
    static struct world w;
    static struct place_plan plan;
    struct victims_choice choice;
    random_case(&w, 3, HOLDERS, 2);
    place_prepare(&w.request, &plan);
    for (uint32_t all = 0; all < 40; all++) {
        uint32_t tests = all;
        (void) victims_choose(&w.of, &plan, &tests, &choice);
        assert_true(tests <= all);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cheapest_goes),
        cmocka_unit_test(test_who_does_not_help_stays),
        cmocka_unit_test(test_budgets),
        cmocka_unit_test(test_a_budget_of_one_allows_one),
        cmocka_unit_test(test_the_order_of_choices),
        cmocka_unit_test(test_against_every_subset),
        cmocka_unit_test(test_many_holders),
        cmocka_unit_test(test_holders_of_two_cards_are_searched),
        cmocka_unit_test(test_one_large_holder_goes_for_many_small),
        cmocka_unit_test(test_effort_is_bounded),
        cmocka_unit_test(test_victims_are_named_by_age),
        cmocka_unit_test(test_each_card_is_searched_by_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
