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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_of_the_whole_card_are_kept_exactly),
        cmocka_unit_test(a_share_is_kept_for_who_begins),
        cmocka_unit_test(what_is_not_wanted_is_headroom),
        cmocka_unit_test(an_online_tenant_leaves_what_it_does_not_want),
        cmocka_unit_test(who_borrowed_nothing_owes_nothing),
        cmocka_unit_test(a_launch_that_waits_is_no_work_on_the_card),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
