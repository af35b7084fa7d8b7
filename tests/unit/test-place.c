/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "place-cards.h"

static void test_share_by_core(void **state) {
    (void) state;
    struct container_request req = share(30, 0);
    struct place_card card = idle_card(80);
    struct place_amount amount = place_share(&req, &card);
    assert_int_equal(amount.memory, 24 * GIB);
    assert_int_equal(amount.core, 30);
    assert_int_equal(amount.slots, 0);
    req.core = 33; /* does not divide: rounded down, never above the card in sum */
    card.memory = card.physical = 101;
    assert_true(place_share(&req, &card).memory == 33);
    req = share(99, 0);
    card.memory = card.physical = UINT64_C(1) << 62;
    assert_true(place_share(&req, &card).memory < UINT64_C(1) << 62);
}

static void test_tightest_card(void **state) {
    (void) state;
    struct place_result result;
    struct place_card cards[3] = {idle_card(80), idle_card(80), idle_card(80)};
    cards[1].free = (struct place_amount){40 * GIB, 50, 64};
    cards[2].free = (struct place_amount){20 * GIB, 30, 64};
    assert_int_equal(run_one(cards, 3, share(30, 10 * GIB), &result), PLACE_OK);
    assert_int_equal(result.cards[0], 1u << 2);
    assert_int_equal(run_one(cards, 3, share(40, 10 * GIB), &result), PLACE_OK);
    assert_int_equal(result.cards[0], 1u << 1);
    assert_int_equal(run_one(cards, 3, share(60, 10 * GIB), &result), PLACE_OK);
    assert_int_equal(result.cards[0], 1u << 0);
    cards[2].healthy = false;
    assert_int_equal(run_one(cards, 3, share(30, 10 * GIB), &result), PLACE_OK);
    assert_int_equal(result.cards[0], 1u << 1);
}

static void test_idle_cards_are_spared(void **state) {
    (void) state;
    struct place_result result;
    struct place_card cards[2] = {idle_card(24), idle_card(80)};
    cards[1].free = (struct place_amount){60 * GIB, 90, 64}; /* a worse fit, but in use */
    assert_int_equal(run_one(cards, 2, share(50, 20 * GIB), &result), PLACE_OK);
    assert_int_equal(result.cards[0], 1u << 1);
}

static void test_whole_cards(void **state) {
    (void) state;
    struct place_result result;
    struct place_card cards[3] = {idle_card(80), idle_card(80), idle_card(40)};
    assert_int_equal(run_one(cards, 3, whole(3), &result), PLACE_OK);
    assert_int_equal(result.cards[0], 7);
    cards[0].free.memory -= 1; /* one byte is allocated, and no compute */
    assert_int_equal(run_one(cards, 3, whole(2), &result), PLACE_OK);
    assert_int_equal(result.cards[0], 6);
    assert_int_equal(run_one(cards, 3, whole(3), &result), PLACE_NO_WHOLE);
    assert_int_equal(run_one(cards, 3, whole(4), &result), PLACE_TOO_FEW);
    struct container_request req = whole(1);
    req.memory_floor = 60 * GIB;
    assert_int_equal(run_one(cards, 3, req, &result), PLACE_OK);
    assert_int_equal(result.cards[0], 2);
    req.memory_floor = 81 * GIB;
    assert_int_equal(run_one(cards, 3, req, &result), PLACE_TOO_LARGE);
}

/* A card that is given out whole only takes no shares. */
static void test_whole_only_cards(void **state) {
    (void) state;
    struct place_result result;
    struct place_card cards[2] = {idle_card(40), idle_card(80)};
    cards[0].whole_only = true;
    assert_int_equal(run_one(cards, 2, share(5, GIB), &result), PLACE_OK);
    assert_int_equal(result.cards[0], 2);
    assert_int_equal(run_one(cards, 2, whole(2), &result), PLACE_OK);
    assert_int_equal(run_one(cards, 1, whole(1), &result), PLACE_OK);
    assert_int_equal(run_one(cards, 1, share(5, GIB), &result), PLACE_ONLY_WHOLE);
    assert_false(place_reason_is_final(PLACE_ONLY_WHOLE));
    cards[0].healthy = false;
    assert_int_equal(run_one(cards, 1, share(5, GIB), &result), PLACE_NONE_HEALTHY);
    cards[0] = cards[1];
    cards[1].whole_only = true;
    assert_int_equal(run_one(cards, 2, whole(1), &result), PLACE_OK);
    assert_int_equal(result.cards[0], 2);
}

static void test_reasons(void **state) {
    (void) state;
    struct place_result result;
    struct place_card cards[2] = {idle_card(80), idle_card(80)};
    assert_int_equal(run_one(cards, 0, share(10, 0), &result), PLACE_NO_GPU);
    assert_int_equal(run_one(cards, 2, share(10, 81 * GIB), &result), PLACE_TOO_LARGE);
    cards[0].free = (struct place_amount){10 * GIB, 100, 64};
    cards[1].free = (struct place_amount){80 * GIB, 10, 64};
    assert_int_equal(run_one(cards, 2, share(50, 50 * GIB), &result), PLACE_NO_BOTH);
    const struct place_card three[] = {cards[0], cards[1], idle_card(80)};
    struct container_request two = share(50, 50 * GIB);
    two.cards = 2;
    assert_int_equal(run_one(three, 3, two, &result), PLACE_NO_BOTH);
    cards[1].free.memory = 10 * GIB;
    assert_int_equal(run_one(cards, 2, share(50, 50 * GIB), &result), PLACE_NO_MEMORY);
    cards[0].free.core = 20;
    assert_int_equal(run_one(cards, 2, share(50, 5 * GIB), &result), PLACE_NO_CORE);
    cards[0].free.slots = cards[1].free.slots = 0;
    assert_int_equal(run_one(cards, 2, share(0, 5 * GIB), &result), PLACE_NO_SLOT);
    cards[0].healthy = cards[1].healthy = false;
    assert_int_equal(run_one(cards, 2, share(5, GIB), &result), PLACE_NONE_HEALTHY);
    assert_int_equal(run_one(cards, 2, whole(1), &result), PLACE_NONE_HEALTHY);
    for (int i = 0; i < PLACE_REASONS; i++)
        assert_true(strlen(place_reason_text((enum place_reason) i)) > 3);
    assert_string_equal(place_reason_text(PLACE_REASONS), place_reason_text(PLACE_NOT_TOGETHER));
}

/* kubelet gives the CPUs of the NUMA node of card 1 to containers of 3 to 8, and those of card 2 to
 * none; of card 0 it is not known. */
static void test_exclusive_cpus(void **state) {
    (void) state;
    static const struct {
        uint32_t cpus, card;
        bool far;
    } rows[] = {{0, 2, false}, {3, 1, false}, {8, 1, false}, {2, 2, true}, {9, 2, true}};
    struct place_result result;
    struct place_card cards[3] = {idle_card(80), idle_card(80), idle_card(80)};
    cards[0].healthy = false;
    cards[1].cpus = (struct place_cpus){true, 2, 8};
    cards[2].cpus = (struct place_cpus){true, 8, 0};
    cards[2].free.core = 50; /* which bin-packing takes */
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct container_request req = share(10, GIB);
        req.cpus = rows[i].cpus;
        assert_int_equal(run_one(cards, 3, req, &result), PLACE_OK);
        assert_int_equal(result.cards[0], 1 << rows[i].card);
        assert_int_equal(result.worth.far, rows[i].far);
    }
    /* A node of which it is not known is as good as one where they are near, and both are better
     * than one where they are far, whatever the policy says. */
    struct container_request req = share(50, GIB);
    req.cpus = 9;
    assert_int_equal(run_one(&cards[2], 1, req, &result), PLACE_OK);
    int64_t far = result.score;
    cards[2].cpus.known = false;
    assert_int_equal(run_one(&cards[2], 1, req, &result), PLACE_OK);
    int64_t filled = result.score;
    req.cpus = 8;
    assert_int_equal(run_one(&cards[1], 1, req, &result), PLACE_OK);
    assert_true(far < result.score);
    assert_true(result.score < filled);
}

/* A plan knows nothing but its request; what runs at the same time comes first in it. */
static void test_a_plan_before_anything_is_set(void **state) {
    (void) state;
    struct gpu_request request = {.n = 3, .containers = {share(50, 0), share(30, 0), share(40, 0)}};
    struct place_plan plan;
    request.containers[0].phase = CONTAINER_INIT;
    place_prepare(&request, &plan);
    assert_int_equal(plan.shape, 0);
    assert_int_equal(plan.cpu, 0);
    assert_int_equal(plan.memory, 0);
    assert_true(plan.models == UINT64_MAX);
    assert_null(plan.model);
    assert_int_equal(plan.topology, TOPOLOGY_UNSET);
    assert_false(plan.numa_bind);
    assert_false(plan.exclusive_cpus);
    assert_int_equal(plan.nunits, 3);
    assert_int_equal(plan.units[0], 2);
    assert_int_equal(plan.units[1], 1);
    assert_int_equal(plan.units[2], 0);
}

static void test_one_card_has_no_links(void **state) {
    (void) state;
    struct place_result result;
    struct place_card cards[2] = {idle_card(80), idle_card(80)};
    assert_int_equal(run_one(cards, 2, whole(1), &result), PLACE_OK);
    assert_int_equal(result.worth.links, 0);
}

static void test_containers_together(void **state) {
    (void) state;
    struct place_result result;
    struct place_card cards[2] = {idle_card(80), idle_card(80)};
    struct gpu_request r = {.n = 3, .containers = {share(60, 0), share(60, 0), share(40, 0)}};
    assert_int_equal(run(cards, 2, &r, &result), PLACE_OK);
    assert_int_not_equal(result.cards[0], result.cards[1]);
    r.containers[2] = share(50, 0);
    assert_int_equal(run(cards, 2, &r, &result), PLACE_NOT_TOGETHER);
    /* Largest first alone would put 6 and 4 on one card and then have no 5-5 pair left. */
    r = (struct gpu_request){
        .n = 4, .containers = {share(30, GIB), share(30, GIB), share(20, GIB), share(20, GIB)}};
    cards[0].free.core = 60;
    cards[1].free.core = 40;
    assert_int_equal(run(cards, 2, &r, &result), PLACE_OK);
}

static void test_init_containers(void **state) {
    (void) state;
    struct place_result result;
    struct place_card cards[2] = {idle_card(80), idle_card(80)};
    cards[0].free = (struct place_amount){40 * GIB, 50, 64};
    cards[1].free = (struct place_amount){0, 0, 0};
    struct gpu_request r = {.n = 2, .containers = {share(50, 0), share(50, 0)}};
    assert_int_equal(run(cards, 2, &r, &result), PLACE_NOT_TOGETHER);
    r.containers[0].phase = CONTAINER_INIT; /* runs before the app: the same half serves both */
    assert_int_equal(run(cards, 2, &r, &result), PLACE_OK);
    assert_int_equal(result.cards[0], 1);
    assert_int_equal(result.cards[1], 1);
    r.containers[0].phase = CONTAINER_SIDECAR; /* runs beside the app */
    assert_int_equal(run(cards, 2, &r, &result), PLACE_NOT_TOGETHER);
    /* a sidecar that starts after the init container is not beside it */
    r = (struct gpu_request){.n = 3, .containers = {share(50, 0), share(25, 0), share(25, 0)}};
    r.containers[0].phase = CONTAINER_INIT;
    r.containers[1].phase = CONTAINER_SIDECAR;
    assert_int_equal(run(cards, 2, &r, &result), PLACE_OK);
    struct container_request swap = r.containers[0];
    r.containers[0] = r.containers[1];
    r.containers[1] = swap;
    assert_int_equal(run(cards, 2, &r, &result), PLACE_NOT_TOGETHER);
}

static void test_scores(void **state) {
    (void) state;
    struct place_result used, idle, tie;
    struct place_card a[2] = {idle_card(80), idle_card(80)}, b[2] = {idle_card(80), idle_card(80)};
    b[1].free = (struct place_amount){40 * GIB, 50, 64};
    assert_int_equal(run_one(a, 2, share(50, 0), &idle), PLACE_OK);
    assert_int_equal(run_one(b, 2, share(50, 0), &used), PLACE_OK);
    assert_true(used.score > idle.score);
    assert_true(used.score <= PLACE_SCORE_MAX && idle.score >= -PLACE_SCORE_MAX);
    struct gpu_request request = {.n = 1, .containers = {share(50, 0)}};
    static struct place_plan plan;
    place_prepare(&request, &plan);
    struct place_node later = {.cards = a, .ncards = 2, .rank = 1};
    assert_int_equal(place_on_node(&place_binpack, &plan, &later, &tie), PLACE_OK);
    assert_true(idle.score - tie.score >= 1000);
    assert_true(used.score > idle.score + 1000 * 1000);
}

/* ---- against every possible placement ---- */

static uint32_t seed = 1;

static uint32_t pick(uint32_t n) {
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

static void test_the_largest_pod_is_placed(void **state) {
    (void) state;
    static struct gpu_request r = {.n = GPU_CONTAINERS_MAX};
    struct place_card cards[2] = {idle_card(80), idle_card(80)};
    struct place_result result;
    for (uint32_t i = 0; i < r.n; i++)
        r.containers[i] = share(6, 0);
    assert_int_equal(run(cards, 2, &r, &result), PLACE_OK);
    assert_int_equal(result.ngrants, GPU_CONTAINERS_MAX);
}

/* A node can be worth as little as a policy can say, and be any in the order of names. */
static void test_scores_are_bounded(void **state) {
    (void) state;
    static const uint32_t ranks[] = {0, 1, 99999, UINT32_MAX};
    const int64_t values[] = {-PLACE_VALUE_MAX, 0, PLACE_VALUE_MAX, INT64_MIN, INT64_MAX};
    const struct place_plan plan = {.topology = TOPOLOGY_UNSET};
    for (size_t v = 0; v < sizeof(values) / sizeof(values[0]); v++)
        for (size_t r = 0; r < sizeof(ranks) / sizeof(ranks[0]); r++) {
            const struct place_worth worth = {.value = values[v]};
            int64_t score = place_score(&place_binpack, &plan, &worth, ranks[r]);
            assert_true(score >= -PLACE_SCORE_MAX && score <= PLACE_SCORE_MAX);
        }
    /* Values within the bounds differ in their scores. */
    const struct place_worth low[] = {{.value = 1 - PLACE_VALUE_MAX},
                                      {.value = 2 - PLACE_VALUE_MAX}},
                             high[] = {{.value = PLACE_VALUE_MAX - 1}, {.value = PLACE_VALUE_MAX}};
    assert_true(place_score(&place_binpack, &plan, &low[0], 0) <
                place_score(&place_binpack, &plan, &low[1], 0));
    assert_true(place_score(&place_binpack, &plan, &high[0], 0) <
                place_score(&place_binpack, &plan, &high[1], 0));
}

/* What runs before the rest takes nothing of another card where the pod's own will do. */
static void test_init_container_stays_on_the_pods_card(void **state) {
    (void) state;
    static const struct place_policy *const policies[] = {&place_first_fit, &place_best_fit,
                                                          &place_binpack, &place_spread};
    struct place_card cards[2] = {idle_card(80), idle_card(80)};
    struct gpu_request request = {.n = 2, .containers = {share(50, 0), share(10, 0)}};
    struct place_node node = {.cards = cards, .ncards = 2};
    struct place_result result;
    struct place_plan plan;
    request.containers[1].phase = CONTAINER_INIT;
    for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++) {
        place_prepare(&request, &plan);
        assert_int_equal(place_on_node(policies[i], &plan, &node, &result), PLACE_OK);
        assert_int_equal(result.cards[0], result.cards[1]);
    }
}

/* Straight from the definition: do these grants fit? */
static bool fits(const struct place_card *cards, uint32_t ncards, const struct gpu_request *r,
                 const uint64_t *grants) {
    for (uint32_t c = 0; c < ncards; c++) {
        struct place_amount side = {0}, app = {0};
        for (uint32_t i = 0; i < r->n; i++) {
            if (!(grants[i] >> c & 1))
                continue;
            struct place_amount m = place_share(&r->containers[i], &cards[c]);
            struct place_amount *sum = r->containers[i].phase == CONTAINER_APP ? &app : &side;
            struct place_amount now = {side.memory + m.memory, side.core + m.core,
                                       side.slots + m.slots};
            if (!cards[c].healthy || now.memory > cards[c].free.memory ||
                now.core > cards[c].free.core || now.slots > cards[c].free.slots)
                return false;
            if (r->containers[i].phase != CONTAINER_INIT)
                *sum = (struct place_amount){sum->memory + m.memory, sum->core + m.core,
                                             sum->slots + m.slots};
        }
        if (side.memory + app.memory > cards[c].free.memory ||
            side.core + app.core > cards[c].free.core ||
            side.slots + app.slots > cards[c].free.slots)
            return false;
    }
    return true;
}

static bool right_count(const struct container_request *req, uint64_t mask,
                        const struct place_card *cards) {
    uint64_t sum = 0;
    for (uint32_t c = 0; c < 8; c++)
        if (mask >> c & 1)
            sum += cards[c].memory;
    return __builtin_popcountll(mask) == (int) req->cards && sum >= req->memory_floor;
}

static bool oracle(const struct place_card *cards, uint32_t ncards, const struct gpu_request *r,
                   uint64_t *grants, uint32_t i) {
    if (i == r->n)
        return fits(cards, ncards, r, grants);
    for (uint64_t mask = 1; mask < UINT64_C(1) << ncards; mask++) {
        grants[i] = mask;
        if (right_count(&r->containers[i], mask, cards) && oracle(cards, ncards, r, grants, i + 1))
            return true;
    }
    return false;
}

static void random_case(struct place_card *cards, uint32_t ncards, struct gpu_request *r) {
    static const uint32_t cores[] = {0, 10, 20, 30, 40, 50, 60};
    for (uint32_t c = 0; c < ncards; c++) {
        cards[c] = idle_card(pick(3) ? 80 : 40);
        if (pick(2))
            cards[c].free =
                (struct place_amount){cards[c].memory / 8 * pick(9), pick(11) * 10, pick(3)};
        cards[c].healthy = pick(8) != 0;
    }
    r->n = 1 + pick(4);
    for (uint32_t i = 0; i < r->n; i++) {
        struct container_request *req = &r->containers[i];
        *req = pick(4) ? share(cores[pick(7)], pick(3) * 10 * GIB) : whole(1 + pick(2));
        if (req->whole)
            req->memory_floor = pick(3) ? 0 : pick(20) * 8 * GIB;
        if (!req->whole && req->core == 0 && req->memory == 0)
            req->memory = GIB;
    }
    uint32_t first_app = pick(r->n + 1);
    for (uint32_t i = 0; i < first_app; i++)
        r->containers[i].phase = pick(2) ? CONTAINER_INIT : CONTAINER_SIDECAR;
}

static void test_oracle(void **state) {
    (void) state;
    static struct gpu_request r;
    int placed = 0;
    for (int round = 0; round < 20000; round++) {
        struct place_card cards[8] = {0};
        uint32_t ncards = 1 + pick(3);
        random_case(cards, ncards, &r);
        uint64_t grants[GPU_CONTAINERS_MAX] = {0};
        struct place_result result;
        bool expected = oracle(cards, ncards, &r, grants, 0);
        enum place_reason reason = run(cards, ncards, &r, &result);
        if ((reason == PLACE_OK) != expected)
            fail_msg("round %d: placed %d, possible %d", round, reason == PLACE_OK, expected);
        if (!expected)
            continue;
        placed++;
        assert_true(fits(cards, ncards, &r, result.cards));
        for (uint32_t i = 0; i < r.n; i++)
            assert_true(right_count(&r.containers[i], result.cards[i], cards));
    }
    assert_in_range(placed, 4000, 16000); /* both outcomes are well covered */
}

/* The card of one container straight from the definition: of those on which it fits, one that costs
 * least by the policy, and the first of these. */
static uint32_t cheapest(const struct place_policy *policy, const struct place_plan *plan,
                         const struct place_node *node, const struct container_request *req) {
    uint32_t best = UINT32_MAX;
    uint64_t least = 0;
    for (uint32_t c = 0; c < node->ncards; c++) {
        const struct place_card *card = &node->cards[c];
        const struct place_amount want = place_share(req, card), *free = &card->free;
        if (!card->healthy || want.memory == 0 || want.memory > free->memory ||
            want.core > free->core || want.slots > free->slots)
            continue;
        uint64_t cost = policy->card_cost(plan, node, c, card, &want);
        if (best == UINT32_MAX || cost < least) {
            best = c;
            least = cost;
        }
    }
    return best;
}

static void test_the_cheapest_card_is_taken(void **state) {
    (void) state;
    static const struct place_policy *const policies[] = {&place_first_fit, &place_best_fit,
                                                          &place_binpack, &place_spread};
    enum { CARDS = 12 };
    int placed = 0;
    for (int round = 0; round < 8000; round++) {
        const struct place_policy *policy = policies[pick(4)];
        struct place_card cards[CARDS];
        struct gpu_request r = {.n = 1};
        struct place_plan plan;
        struct place_result result;
        for (uint32_t c = 0; c < CARDS; c++) {
            cards[c] = idle_card(pick(2) ? 80 : 40);
            cards[c].physical = pick(4) ? cards[c].memory : cards[c].memory / 2;
            cards[c].tflops = pick(2) ? 100 : 200;
            cards[c].healthy = pick(8) != 0;
            if (pick(3))
                cards[c].free = (struct place_amount){cards[c].memory / 4 * (1 + pick(4)),
                                                      10 * (1 + pick(10)), 1 + pick(2)};
        }
        if (pick(2))
            r.containers[0] = share(10 * (1 + pick(6)), 0);
        else
            r.containers[0] = share(10 * pick(3), (1 + pick(5)) * 10 * GIB);
        if (pick(4) == 0)
            r.containers[0] = (struct container_request){
                .phase = CONTAINER_APP, .cards = 1, .tflops = 10 * (1 + pick(9))};
        const struct place_node node = {.cards = cards, .ncards = CARDS};
        place_prepare(&r, &plan);
        uint32_t want = cheapest(policy, &plan, &node, &r.containers[0]);
        enum place_reason reason = place_on_node(policy, &plan, &node, &result);
        assert_int_equal(reason == PLACE_OK, want != UINT32_MAX);
        if (reason != PLACE_OK)
            continue;
        placed++;
        if (result.cards[0] != UINT64_C(1) << want)
            fail_msg("round %d, %s: not card %u", round, policy->name, want);
        assert_int_equal(result.ngrants, 1);
        assert_int_equal(result.grants[0].card, want);
    }
    assert_in_range(placed, 4000, 7999);
}

/* Containers with equal requests are placed in the order in which the pod has them. */
static void test_equal_containers_are_placed_in_order(void **state) {
    (void) state;
    static struct place_result result;
    const struct container_request requests[] = {share(60, 0), share(0, 50 * GIB), whole(1)};
    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
        const struct place_card cards[3] = {idle_card(80), idle_card(80), idle_card(80)};
        struct gpu_request r = {.n = 3, .containers = {requests[i], requests[i], requests[i]}};
        assert_int_equal(run(cards, 3, &r, &result), PLACE_OK);
        for (uint32_t c = 0; c < 3; c++)
            assert_true(result.cards[c] == UINT64_C(1) << c);
    }
}

/* What each container gets of each card, and what the pod takes of a card in all. */
static void test_grants(void **state) {
    (void) state;
    static struct place_result result, copy;
    struct place_card cards[2] = {idle_card(160), idle_card(80)};
    struct gpu_request r = {.n = 3, .containers = {share(30, 0), share(0, 20 * GIB), share(60, 0)}};
    struct place_grant total;
    cards[0].physical = 80 * GIB;
    r.containers[0].cards = 2;
    r.containers[2].phase = CONTAINER_INIT; /* the most of any moment: it, or the two others */
    assert_int_equal(run(cards, 2, &r, &result), PLACE_OK);
    assert_int_equal(result.ngrants, 4);
    for (uint32_t i = 0, at = 0; i < r.n; i++)
        for (uint32_t c = 0; c < 2; c++) {
            if (!(result.cards[i] >> c & 1))
                continue;
            const struct place_grant *grant = &result.grants[at++];
            const struct place_amount taken = place_share(&r.containers[i], &cards[c]);
            uint64_t memory, physical;
            place_given(&r.containers[i], &cards[c], &memory, &physical);
            assert_int_equal(grant->container, i);
            assert_int_equal(grant->card, c);
            assert_memory_equal(&grant->taken, &taken, sizeof(taken));
            assert_true(grant->memory == memory && grant->physical == physical);
        }
    place_result_copy(&copy, &result);
    assert_int_equal(copy.grants[3].container, 2);
    assert_true(copy.score == result.score);
    cards[1].healthy = false;
    r = (struct gpu_request){.n = 3,
                             .containers = {share(30, 0), share(0, 20 * GIB), share(60, 0)}};
    r.containers[2].phase = CONTAINER_INIT;
    assert_int_equal(run(cards, 2, &r, &result), PLACE_OK);
    assert_true(place_total(&r, &result, &cards[0], 0, &total));
    assert_int_equal(total.taken.core, 60);
    assert_int_equal(total.taken.slots, 1);
    assert_true(total.taken.memory == 96 * GIB && total.memory == 96 * GIB);
    assert_true(total.physical == 48 * GIB);
    assert_false(place_total(&r, &result, &cards[1], 1, &total));
}

/* A card of 80 GiB with a capacity of 160. */
static void test_oversubscribed_card(void **state) {
    (void) state;
    struct place_result result;
    struct place_card cards[1] = {idle_card(160)};
    struct container_request req = share(0, 60 * GIB);
    uint64_t memory, physical;
    cards[0].physical = 80 * GIB;
    assert_true(place_share(&req, &cards[0]).memory == 60 * GIB);
    place_given(&req, &cards[0], &memory, &physical);
    assert_true(memory == 60 * GIB && physical == 30 * GIB);
    req.memory = 120 * GIB; /* more than there is, in one share */
    assert_int_equal(run_one(cards, 1, req, &result), PLACE_OK);
    req.scaling = 1000; /* all of it on the card: that is not there */
    assert_int_equal(run_one(cards, 1, req, &result), PLACE_TOO_LARGE);
    req.memory = 80 * GIB;
    assert_true(place_share(&req, &cards[0]).memory == 160 * GIB);
    assert_int_equal(run_one(cards, 1, req, &result), PLACE_OK);
    cards[0].free.memory -= 1;
    assert_int_equal(run_one(cards, 1, req, &result), PLACE_NO_MEMORY);
    cards[0] = idle_card(160);
    cards[0].physical = 80 * GIB;
    /* A percentage of the capacity; less of it with a larger physical part. */
    req = share(25, 0);
    place_given(&req, &cards[0], &memory, &physical);
    assert_true(memory == 40 * GIB && physical == 20 * GIB);
    req.scaling = 1500;
    place_given(&req, &cards[0], &memory, &physical);
    assert_true(memory == 30 * GIB && physical == 20 * GIB);
    assert_true(place_share(&req, &cards[0]).memory == 40 * GIB);
    /* A whole card is what it is. */
    req = whole(1);
    place_given(&req, &cards[0], &memory, &physical);
    assert_true(memory == 80 * GIB && physical == 80 * GIB);
    assert_true(place_share(&req, &cards[0]).memory == 160 * GIB);
    req.memory_floor = 81 * GIB;
    assert_int_equal(run_one(cards, 1, req, &result), PLACE_TOO_LARGE);
}

static void test_amounts_are_taken_down_to_nothing(void **state) {
    (void) state;
    struct place_amount free = place_amount_of_card(1000);
    assert_true(place_amount_take(&free, &(struct place_amount){400, 30, 1}));
    assert_int_equal(free.memory, 600);
    assert_int_equal(free.core, 70);
    assert_int_equal(free.slots, SLOTS_PER_CARD - 1);
    assert_false(place_amount_take(&free, &(struct place_amount){601, 20, 0}));
    assert_int_equal(free.memory, 0);
    assert_int_equal(free.core, 50);
    assert_false(place_amount_take(&free, &(struct place_amount){0, 51, 0}));
    assert_int_equal(free.core, 0);
    assert_false(place_amount_take(&free, &(struct place_amount){0, 0, SLOTS_PER_CARD}));
    assert_int_equal(free.slots, 0);
    assert_true(place_amount_take(&free, &(struct place_amount){0}));
}

static void test_share_by_memory_percent(void **state) {
    (void) state;
    struct place_result result;
    struct place_card cards[2] = {idle_card(40), idle_card(80)};
    struct container_request req = share(30, 0);
    req.memory_percent = 50; /* of whichever card it gets, and not what the compute would give */
    assert_true(place_share(&req, &cards[0]).memory == 20 * GIB);
    assert_true(place_share(&req, &cards[1]).memory == 40 * GIB);
    assert_int_equal(place_share(&req, &cards[1]).core, 30);
    cards[0].free.memory = 20 * GIB - 1;
    cards[1].free.memory = 40 * GIB;
    assert_int_equal(run_one(cards, 2, req, &result), PLACE_OK);
    assert_int_equal(result.cards[0], 1u << 1);
    cards[1].free.memory -= 1;
    assert_int_equal(run_one(cards, 2, req, &result), PLACE_NO_MEMORY);
    req.memory_percent = 100;
    assert_true(place_share(&req, &cards[0]).memory == 40 * GIB);
    req.memory_percent = 250; /* never more than there is */
    assert_true(place_share(&req, &cards[0]).memory == 40 * GIB);
    req.memory_percent = 50;
    req.memory = GIB; /* bytes were asked for */
    assert_true(place_share(&req, &cards[0]).memory == GIB);
}

/* ---- what is held for some of the containers ---- */

static enum place_reason run_draws(struct place_amount free, const struct place_draw *draws,
                                   uint32_t ndraws, const struct gpu_request *request) {
    static struct place_plan plan;
    struct place_result result;
    struct place_card card = idle_card(100);
    card.free = free;
    struct place_node node = {.cards = &card, .ncards = 1, .draws = draws, .ndraws = ndraws};
    place_prepare(request, &plan);
    return place_on_node(&place_binpack, &plan, &node, &result);
}

/* Two containers that draw on one reservation use it once between them. */
static void test_a_reservation_is_drawn_on_once(void **state) {
    (void) state;
    struct gpu_request request = {.n = 2, .containers = {share(40, 40 * GIB), share(40, 40 * GIB)}};
    struct place_draw draws[2] = {{.containers = 3, .amount = {50 * GIB, 50, 0}}};
    assert_int_equal(run_draws((struct place_amount){29 * GIB, 30, 0}, draws, 1, &request),
                     PLACE_NOT_TOGETHER);
    assert_int_equal(run_draws((struct place_amount){30 * GIB, 29, 0}, draws, 1, &request),
                     PLACE_NOT_TOGETHER);
    assert_int_equal(run_draws((struct place_amount){30 * GIB, 30, 0}, draws, 1, &request),
                     PLACE_OK);
    /* Slots are held, too. */
    struct gpu_request slot = {.n = 1, .containers = {share(0, 10 * GIB)}};
    struct place_draw held = {.containers = 1, .amount = {0, 0, 1}};
    assert_int_equal(run_draws((struct place_amount){10 * GIB, 0, 0}, &held, 1, &slot), PLACE_OK);
    assert_int_equal(run_draws((struct place_amount){10 * GIB, 0, 1}, &held, 1, &slot), PLACE_OK);
    assert_int_equal(run_draws((struct place_amount){10 * GIB, 0, 0}, &held, 0, &slot),
                     PLACE_NO_SLOT);
    /* A container cannot leave what it does not need of its own hold to the other. */
    draws[0] = (struct place_draw){.containers = 1, .amount = {60 * GIB, 60, 0}};
    draws[1] = (struct place_draw){.containers = 2, .amount = {10 * GIB, 10, 0}};
    assert_int_equal(run_draws((struct place_amount){29 * GIB, 29, 0}, draws, 2, &request),
                     PLACE_NO_MEMORY);
    assert_int_equal(run_draws((struct place_amount){30 * GIB, 30, 0}, draws, 2, &request),
                     PLACE_OK);
    /* An init container draws before the other does: the hold serves both in turn. */
    request.containers[0].phase = CONTAINER_INIT;
    draws[0] = (struct place_draw){.containers = 3, .amount = {40 * GIB, 40, 0}};
    assert_int_equal(run_draws((struct place_amount){0, 0, 0}, draws, 1, &request), PLACE_OK);
    /* It draws on a hold of its own: of what is free the pod then takes less than without it. */
    draws[0].containers = 1;
    draws[0].amount = (struct place_amount){30 * GIB, 30, 0};
    assert_int_equal(run_draws((struct place_amount){40 * GIB, 40, 0}, draws, 1, &request),
                     PLACE_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_amounts_are_taken_down_to_nothing),
        cmocka_unit_test(test_share_by_memory_percent),
        cmocka_unit_test(test_a_plan_before_anything_is_set),
        cmocka_unit_test(test_one_card_has_no_links),
        cmocka_unit_test(test_a_reservation_is_drawn_on_once),
        cmocka_unit_test(test_oversubscribed_card),
        cmocka_unit_test(test_share_by_core),
        cmocka_unit_test(test_tightest_card),
        cmocka_unit_test(test_whole_cards),
        cmocka_unit_test(test_whole_only_cards),
        cmocka_unit_test(test_exclusive_cpus),
        cmocka_unit_test(test_reasons),
        cmocka_unit_test(test_containers_together),
        cmocka_unit_test(test_init_containers),
        cmocka_unit_test(test_init_container_stays_on_the_pods_card),
        cmocka_unit_test(test_the_largest_pod_is_placed),
        cmocka_unit_test(test_scores_are_bounded),
        cmocka_unit_test(test_scores),
        cmocka_unit_test(test_oracle),
        cmocka_unit_test(test_the_cheapest_card_is_taken),
        cmocka_unit_test(test_idle_cards_are_spared),
        cmocka_unit_test(test_equal_containers_are_placed_in_order),
        cmocka_unit_test(test_grants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
