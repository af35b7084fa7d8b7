/* SPDX-License-Identifier: Apache-2.0 */

/* Single steps of the arbiter: what each tenant may take, to the part per million. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "share/arbitration.h"

#define MS 1000000ull
#define SEC 1000000000ull
#define STEP (10 * MS)

/* Until `end`, every 10 ms: tenant `i` is charged charges[i]. */
static void run(struct arbitration_tenant *t, size_t n, const uint64_t *charges, uint64_t *now,
                uint64_t end) {
    for (; *now < end; *now += STEP) {
        for (size_t i = 0; i < n; i++)
            t[i].usage.charged += charges[i];
        (void) arbitration_step(t, n, *now);
    }
}

static void shares_of_the_whole_card_are_kept_exactly(void **state) {
    struct arbitration_tenant halves[2] = {{.policy = SHARE_FIXED, .share_percent = 50},
                                           {.policy = SHARE_FIXED, .share_percent = 50}};
    struct arbitration_tenant whole[2] = {{.policy = SHARE_FIXED, .share_percent = 100},
                                          {.policy = SHARE_BEST_EFFORT}};

    (void) state;
    (void) arbitration_step(halves, 2, SEC);
    assert_int_equal(halves[0].entitled, RATE_WHOLE / 2);
    assert_int_equal(halves[1].entitled, RATE_WHOLE / 2);
    (void) arbitration_step(whole, 2, SEC);
    assert_int_equal(whole[0].entitled, RATE_WHOLE);
    assert_int_equal(whole[1].entitled, ARBITRATION_FLOOR);
}

/* For 200 ms the share of a tenant that begins to compute is kept whole, whether it waits or not;
 * after that, what it does not take is lent. */
static void a_share_is_kept_for_who_begins(void **state) {
    struct arbitration_tenant t[2] = {{.policy = SHARE_BURST, .share_percent = 50},
                                      {.policy = SHARE_BURST, .share_percent = 50}};
    uint64_t now = SEC;

    (void) state;
    run(t, 2, (const uint64_t[]){10 * MS, 0}, &now, 3 * SEC);
    assert_int_equal(t[0].entitled, RATE_WHOLE);
    run(t, 2, (const uint64_t[]){10 * MS, MS / 10}, &now, 3 * SEC + 100 * MS);
    assert_int_equal(t[0].entitled, RATE_WHOLE / 2);
    run(t, 2, (const uint64_t[]){10 * MS, MS / 10}, &now, 5 * SEC);
    assert_true(t[0].entitled > RATE_WHOLE / 2);
}

/* Two tenants that take little of the card could have all of it between them. */
static void what_is_not_wanted_is_headroom(void **state) {
    struct arbitration_tenant t[2] = {{.policy = SHARE_BURST, .share_percent = 30},
                                      {.policy = SHARE_BURST, .share_percent = 30}};
    uint64_t now = SEC;

    (void) state;
    run(t, 2, (const uint64_t[]){MS, MS}, &now, 3 * SEC);
    assert_true(t[0].active && t[1].active);
    assert_int_equal(t[0].entitled + t[1].entitled, RATE_WHOLE);
}

/* It goes first, and what it does not want is for the others. */
static void an_online_tenant_leaves_what_it_does_not_want(void **state) {
    struct arbitration_tenant t[2] = {{.policy = SHARE_ONLINE}, {.policy = SHARE_BURST}};
    uint64_t now = SEC;

    (void) state;
    run(t, 2, (const uint64_t[]){MS, 10 * MS}, &now, 3 * SEC);
    assert_true(t[0].active && t[1].active);
    assert_in_range(t[0].entitled, RATE_WHOLE / 10, RATE_WHOLE / 4);
    assert_in_range(t[1].entitled, RATE_WHOLE / 4 * 3, RATE_WHOLE / 10 * 9);
}

/* By how much the driver's figure over a sample changes the rate, and what is charged beside. */
static void the_drivers_figure_trims_the_rate(void **state) {
    static const struct {
        uint64_t charged, driver, longest, pending; /* ms */
        uint32_t trim;                              /* 1024ths */
        uint64_t unpaid;                            /* ms */
    } rows[] = {
        {2000, 2000, 0, 0, 1024, 0},         {2000, 4000, 0, 0, 1536, 0},
        {4000, 2000, 0, 0, 768, 0},          {4000, 1999, 0, 0, 1024, 0},
        {100000, 2000, 0, 0, 522, 0},        {2000, 8000, 0, 0, 2560, 0},
        {2000, 20000, 0, 0, 1243, 12000},    {0, 2000, 0, 0, 1024, 2000},
        {4000, 2000, 100, 0, 768, 0},        {4000, 2000, 101, 0, 1024, 0},
        {40000, 20000, 5000, 0, 768, 0},     {40000, 19999, 5000, 0, 1024, 0},
        {10000, 2000, 0, 5000, 716, 0},      {100000, 1000000, 0, 0, 2432, 60000},
        {2000, 20000, 0, 1000, 1120, 15000}, {3000, 10000, 0, 1000, 2048, 1000},
    };

    (void) state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct arbitration_tenant t = {.policy = SHARE_FIXED, .share_percent = 50, .driver_ns = 1};

        (void) arbitration_step(&t, 1, SEC);
        assert_int_equal(t.state.trim, 1024);
        t.usage.charged = rows[i].charged * MS;
        t.usage.longest = rows[i].longest * MS;
        t.driver_ns = 1 + rows[i].driver * MS;
        t.pending_ns = rows[i].pending * MS;
        (void) arbitration_step(&t, 1, SEC + STEP);
        if (t.state.trim != rows[i].trim || t.unpaid_ns != rows[i].unpaid * MS)
            fail_msg("row %zu: %u, %llu ms", i, t.state.trim,
                     (unsigned long long) (t.unpaid_ns / MS));
        assert_int_equal(t.entitled, RATE_WHOLE / 2);
        assert_int_equal(t.grant.rate, (uint64_t) RATE_WHOLE / 2 * 1024 / rows[i].trim);
    }
}

/* Where the driver says nothing, or its figure begins anew, the rate stays. */
static void without_the_drivers_figure_the_rate_stays(void **state) {
    struct arbitration_tenant t = {
        .policy = SHARE_FIXED, .share_percent = 50, .driver_ns = 50 * SEC};

    (void) state;
    (void) arbitration_step(&t, 1, SEC);
    t.usage.charged = 100 * SEC;
    t.driver_ns = 49 * SEC;
    (void) arbitration_step(&t, 1, SEC + STEP);
    assert_int_equal(t.state.trim, 1024);
    t.usage.charged += 2 * SEC;
    t.driver_ns += 4 * SEC;
    (void) arbitration_step(&t, 1, SEC + 2 * STEP);
    assert_int_equal(t.state.trim, 1536);
    t.usage.charged += 100 * SEC;
    t.driver_ns = 0;
    (void) arbitration_step(&t, 1, SEC + 3 * STEP);
    assert_int_equal(t.state.trim, 1536);
}

/* Of a tenant that wants nothing for 60 ms the others have the card. */
static void a_tenant_is_active_for_60_ms(void **state) {
    struct arbitration_tenant t[2] = {{.policy = SHARE_BURST, .share_percent = 50},
                                      {.policy = SHARE_BURST, .share_percent = 50}};
    uint64_t now = SEC;

    (void) state;
    run(t, 2, (const uint64_t[]){MS, MS}, &now, 2 * SEC);
    now -= STEP;
    (void) arbitration_step(t, 2, now + 60 * MS);
    assert_true(t[0].active && t[1].active);
    t[1].usage.waits++;
    assert_int_equal(arbitration_step(t, 2, now + 60 * MS + 1), 10 * MS);
    assert_false(t[0].active);
    assert_true(t[1].active);
    assert_int_equal(t[0].grant.neighbours, 1);
    assert_int_equal(t[1].grant.neighbours, 0);
    assert_int_equal(t[1].grant.rate, RATE_UNLIMITED);
    assert_int_equal(arbitration_step(t, 2, now + 200 * MS), 50 * MS);
    assert_false(t[1].active);
}

/* A tenant with a ceiling stays under it also alone, and a tenant of two computes unlimited only
 * while it is alone. */
static void ceilings_hold_alone(void **state) {
    static const struct {
        enum share_policy policy;
        uint32_t share, ceiling, alone; /* percent; 0: unlimited */
    } rows[] = {
        {SHARE_FIXED, 30, 0, 30},  {SHARE_FIXED, 100, 0, 0},       {SHARE_BURST, 30, 0, 0},
        {SHARE_BURST, 30, 60, 60}, {SHARE_ONLINE, 0, 99, 99},      {SHARE_OFFLINE, 0, 0, 0},
        {SHARE_WEAK, 0, 0, 0},     {SHARE_BEST_EFFORT, 0, 40, 40},
    };

    (void) state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct arbitration_tenant t = {.policy = rows[i].policy,
                                       .share_percent = rows[i].share,
                                       .ceiling_percent = rows[i].ceiling};
        uint64_t now = SEC;

        run(&t, 1, (const uint64_t[]){10 * MS}, &now, 2 * SEC);
        if (rows[i].alone)
            assert_int_equal(t.grant.rate, rows[i].alone * (RATE_WHOLE / 100));
        else
            assert_int_equal(t.grant.rate, RATE_UNLIMITED);
    }
}

/* Work on the card is remembered for ten seconds of it, however much is charged. */
static void a_queue_is_bounded(void **state) {
    struct arbitration_tenant t = {.policy = SHARE_FIXED, .share_percent = 50};
    uint64_t now = SEC;

    (void) state;
    run(&t, 1, (const uint64_t[]){9 * SEC}, &now, SEC + 10 * STEP);
    assert_int_equal(t.state.pending, 10 * SEC - STEP);
    run(&t, 1, (const uint64_t[]){0}, &now, now + 50 * STEP);
    assert_int_equal(t.state.pending, 10 * SEC - 51 * STEP);
}

/* A tenant that takes less than it could has a demand of a quarter more than it takes, and of two
 * percent of the card. */
static void demand_leaves_room_to_grow(void **state) {
    struct arbitration_tenant t[2] = {{.policy = SHARE_ONLINE}, {.policy = SHARE_BURST}};
    uint64_t now = SEC;

    (void) state;
    run(t, 2, (const uint64_t[]){4 * MS, 10 * MS}, &now, 3 * SEC);
    assert_in_range(t[0].taken, RATE_WHOLE / 5, RATE_WHOLE / 2);
    assert_int_equal(t[0].state.wanted, t[0].taken * 5 / 4 + RATE_WHOLE / 50);
}

/* What each of three tenants is guaranteed, of which the first two have work: shares, and then by
 * weight what they leave. */
static void guarantees_by_policy(void **state) {
    static const struct {
        struct {
            enum share_policy policy;
            uint32_t percent, weight;
        } of[3];
        uint32_t sure[3]; /* percent */
    } rows[] = {
        {{{SHARE_FIXED, 50, 0}, {SHARE_BURST, 30, 0}, {SHARE_ONLINE, 10, 0}}, {50, 30, 10}},
        {{{SHARE_FIXED, 100, 0}, {SHARE_BURST, 60, 0}, {SHARE_ONLINE, 40, 0}}, {50, 30, 20}},
        {{{SHARE_WEIGHTED, 0, 1}, {SHARE_WEIGHTED, 0, 1}, {SHARE_WEIGHTED, 0, 2}}, {25, 25, 50}},
        {{{SHARE_WEAK, 0, 1}, {SHARE_WEAK, 0, 3}, {SHARE_WEAK, 0, 4}}, {25, 75, 0}},
        {{{SHARE_WEAK, 0, 1}, {SHARE_FIXED, 40, 3}, {SHARE_WEAK, 0, 4}}, {60, 40, 0}},
        {{{SHARE_WEAK, 0, 1}, {SHARE_BEST_EFFORT, 0, 3}, {SHARE_WEIGHTED, 0, 3}}, {25, 0, 75}},
        {{{SHARE_WEAK, 0, 1}, {SHARE_OFFLINE, 0, 3}, {SHARE_BURST, 20, 3}}, {80, 0, 20}},
        {{{SHARE_WEIGHTED, 0, 1}, {SHARE_FIXED, 100, 0}, {SHARE_FIXED, 50, 0}}, {0, 66, 33}},
        {{{SHARE_DEFAULT, 30, 5}, {SHARE_DEFAULT, 0, 5}, {SHARE_WEIGHTED, 20, 0}}, {30, 0, 70}},
        {{{SHARE_FIXED, 200, 0}, {SHARE_OFFLINE, 50, 0}, {SHARE_BEST_EFFORT, 50, 0}}, {100, 0, 0}},
    };

    bool met[SHARE_POLICIES] = {false};

    (void) state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct arbitration_tenant t[3] = {0};
        uint64_t now = SEC;

        for (int k = 0; k < 3; k++) {
            met[rows[i].of[k].policy] = true;
            t[k].policy = rows[i].of[k].policy;
            t[k].share_percent = rows[i].of[k].percent;
            t[k].weight = rows[i].of[k].weight;
        }
        run(t, 3, (const uint64_t[]){MS, MS, 0}, &now, SEC + 100 * MS);
        assert_true(t[0].active && t[1].active && !t[2].active);
        for (int k = 0; k < 3; k++)
            assert_int_equal(t[k].state.sure / (RATE_WHOLE / 100), rows[i].sure[k]);
    }
    for (int policy = 0; policy < SHARE_POLICIES; policy++)
        if (!met[policy])
            fail_msg("no row of policy %d", policy);
}

/* A tenant owes nothing for time that it could have borrowed and did not take. */
static void who_borrowed_nothing_owes_nothing(void **state) {
    struct arbitration_tenant t[2] = {{.policy = SHARE_BURST, .share_percent = 30},
                                      {.policy = SHARE_BURST, .share_percent = 70}};
    uint64_t now = SEC;

    (void) state;
    run(t, 2, (const uint64_t[]){MS, 0}, &now, 3 * SEC);
    assert_int_equal(t[0].entitled, RATE_WHOLE);
    for (uint64_t end = now + 100 * MS; now < end;) {
        run(t, 2, (const uint64_t[]){MS, MS}, &now, now + STEP);
        assert_true(t[0].grant.rate >= 300000);
    }
}

/* Its charge is held until it goes to the card. */
static void a_launch_that_waits_is_no_work_on_the_card(void **state) {
    struct arbitration_tenant t = {.policy = SHARE_FIXED, .share_percent = 50};

    (void) state;
    (void) arbitration_step(&t, 1, SEC);
    t.usage.charged = t.usage.held = 5 * MS;
    (void) arbitration_step(&t, 1, SEC + STEP);
    assert_false(t.active);
    t.usage.held = 0;
    (void) arbitration_step(&t, 1, SEC + 2 * STEP);
    assert_true(t.active);
}

/* What was charged before the first step, and a charge that is taken back. */
static void only_new_charges_are_work(void **state) {
    struct arbitration_tenant t = {
        .policy = SHARE_FIXED, .share_percent = 50, .usage = {.charged = 5 * SEC}};

    (void) state;
    (void) arbitration_step(&t, 1, SEC);
    assert_int_equal(t.state.pending, 0);
    (void) arbitration_step(&t, 1, SEC + STEP);
    assert_false(t.active);
    t.usage.charged -= MS;
    (void) arbitration_step(&t, 1, SEC + 2 * STEP);
    assert_false(t.active);
    assert_int_equal(t.state.pending, 0);
}

/* To the nanosecond: the work of the others that ran, and their longest launch. */
static void a_grant_counts_what_ran_of_the_others(void **state) {
    struct arbitration_tenant t[2] = {{.policy = SHARE_FIXED, .share_percent = 50},
                                      {.policy = SHARE_FIXED, .share_percent = 50}};
    uint64_t now = SEC;

    (void) state;
    run(t, 2, (const uint64_t[]){2 * MS, 0}, &now, SEC + 4 * STEP);
    assert_int_equal(t[0].grant.others, 0);
    assert_int_equal(t[0].grant.others_rate, 0);
    assert_int_equal(t[0].grant.depth, 20 * MS);
    assert_int_equal(t[1].grant.others, 3 * 2 * MS); /* the first step only begins to count */
    assert_int_equal(t[1].grant.others_rate, RATE_WHOLE / 5);
    run(t, 2, (const uint64_t[]){0, 3 * MS}, &now, now + STEP);
    assert_int_equal(t[0].grant.others, 3 * MS);
    assert_int_equal(t[1].grant.others, 3 * 2 * MS);
    assert_int_equal(t[1].grant.others_rate, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_of_the_whole_card_are_kept_exactly),
        cmocka_unit_test(a_share_is_kept_for_who_begins),
        cmocka_unit_test(what_is_not_wanted_is_headroom),
        cmocka_unit_test(an_online_tenant_leaves_what_it_does_not_want),
        cmocka_unit_test(a_queue_is_bounded),
        cmocka_unit_test(the_drivers_figure_trims_the_rate),
        cmocka_unit_test(without_the_drivers_figure_the_rate_stays),
        cmocka_unit_test(a_tenant_is_active_for_60_ms),
        cmocka_unit_test(ceilings_hold_alone),
        cmocka_unit_test(demand_leaves_room_to_grow),
        cmocka_unit_test(guarantees_by_policy),
        cmocka_unit_test(who_borrowed_nothing_owes_nothing),
        cmocka_unit_test(a_launch_that_waits_is_no_work_on_the_card),
        cmocka_unit_test(only_new_charges_are_work),
        cmocka_unit_test(a_grant_counts_what_ran_of_the_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
