/* SPDX-License-Identifier: Apache-2.0 */

/* Resets of a card, and orders for it, in virtual time. */

#include "health-world.h"

/* ---- resets ---- */

static void fail_with_xid(enum health_reset reset, uint32_t holders) {
    start_healthy();
    w.options.reset = reset;
    w.reading.recovery = 1;
    w.reading.holders = holders;
    poll_after(SECOND);
    xid(48);
    poll_after(SECOND);
}

static void test_reset_never(void **state) {
    (void) state;
    fail_with_xid(HEALTH_RESET_NEVER, 0);
    expect(HEALTH_UNHEALTHY, XID_48);
    expect_work(HEALTH_NOTHING);
}

static void test_reset_idle(void **state) {
    (void) state;
    fail_with_xid(HEALTH_RESET_IDLE, 2);
    expect(HEALTH_UNHEALTHY, XID_48);
    expect_work(HEALTH_NOTHING);
    w.reading.holders = 0;
    w.reading.processes = 1; /* of no share */
    poll_after(SECOND);
    expect_work(HEALTH_NOTHING);
    w.reading.processes = 0;
    poll_after(SECOND);
    expect(HEALTH_RESETTING, XID_48);
    expect_work(HEALTH_RESET);
    poll_after(SECOND);
    expect_work(HEALTH_RESET);
    done(HEALTH_PROBE, NULL); /* of another time */
    expect_work(HEALTH_RESET);
    done(HEALTH_RESET, NULL);
    expect(HEALTH_PROBING, XID_48);
    expect_work(HEALTH_PROBE);
    done(HEALTH_PROBE, NULL);
    w.reading.recovery = 0;
    poll_after(SECOND);
    expect(HEALTH_HEALTHY, "");
}

static void test_reset_drain(void **state) {
    (void) state;
    fail_with_xid(HEALTH_RESET_DRAIN, 2);
    expect(HEALTH_DRAINING, XID_48);
    expect_work(HEALTH_EVICT);
    w.reading.holders = 0;
    poll_after(SECOND);
    expect_work(HEALTH_RESET);
}

/* By which order, and by nothing else. */
static void test_drains_by(void **state) {
    (void) state;
    fail_with_xid(HEALTH_RESET_DRAIN, 2);
    assert_false(health_drains_by(&w.card, ""));
    health_take_order(&w.card, &w.options, HEALTH_ORDER_DRAIN, "by label a=b", w.now);
    assert_false(health_drains_by(&w.card, "by label"));
    w.options.reset = HEALTH_RESET_NEVER;
    poll_after(SECOND);
    assert_true(health_drains_by(&w.card, "by label"));
    assert_false(health_drains_by(&w.card, "by order"));
    health_take_order(&w.card, &w.options, HEALTH_ORDER_UNCORDON, "", w.now);
    assert_false(health_drains_by(&w.card, "by label"));
}

/* It has recovered while its pods were still leaving. */
static void test_drain_ends_early(void **state) {
    (void) state;
    fail_with_xid(HEALTH_RESET_DRAIN, 2);
    w.reading.recovery = 0;
    poll_after(SECOND);
    expect(HEALTH_HEALTHY, "");
    expect_work(HEALTH_NOTHING);
}

/* The policy of a running agent can change. */
static void test_policy_changes(void **state) {
    (void) state;
    fail_with_xid(HEALTH_RESET_DRAIN, 2);
    w.options.reset = HEALTH_RESET_NEVER;
    poll_after(SECOND);
    expect(HEALTH_UNHEALTHY, XID_48);
    expect_work(HEALTH_NOTHING);
}

/* Three times, at longer and longer intervals, and then an order only. */
static void test_reset_fails(void **state) {
    uint64_t wait = HEALTH_RETRY_MIN_MS;

    (void) state;
    fail_with_xid(HEALTH_RESET_IDLE, 0);
    for (int i = 0; i < HEALTH_RESETS_MAX; i++, wait *= 2) {
        expect_work(HEALTH_RESET);
        done(HEALTH_RESET, "exit status 255: in use");
        expect(HEALTH_UNHEALTHY, i + 1 < HEALTH_RESETS_MAX
                                     ? XID_48 "; reset failed: exit status 255: in use"
                                     : XID_48 "; reset failed: exit status 255: in use; no further "
                                              "reset without an order");
        poll_after(wait - 1);
        expect_work(HEALTH_NOTHING);
        poll_after(1);
    }
    poll_after(60 * MINUTE);
    expect_work(HEALTH_NOTHING);
    order(HEALTH_ORDER_RESET);
    expect_work(HEALTH_RESET);
    done(HEALTH_RESET, "no");
    expect_work(HEALTH_NOTHING);
    order(HEALTH_ORDER_SET_HEALTHY); /* the action is still reported */
    poll_after(SECOND);
    expect(HEALTH_RESETTING, "the driver reports that the card needs a reset");
}

/* A command that ends well and has reset nothing: the driver goes on to report the action. */
static void test_reset_lies(void **state) {
    (void) state;
    fail_with_xid(HEALTH_RESET_IDLE, 0);
    done(HEALTH_RESET, NULL);
    done(HEALTH_PROBE, NULL);
    poll_after(SECOND);
    expect(HEALTH_UNHEALTHY, "the driver reports that the card needs a reset; the reset had no "
                             "effect: the problem goes on");
    assert_int_equal(w.card.tries, 1);
    expect_work(HEALTH_NOTHING);
    fail_with_xid(HEALTH_RESET_IDLE, 0);
    done(HEALTH_RESET, NULL);
    done(HEALTH_PROBE, "cuCtxCreate: 46");
    expect(HEALTH_UNHEALTHY, XID_48 "; the reset had no effect: cuCtxCreate: 46");
}

/* Failed probes leave the resets as many as there were. */
static void test_probes_are_no_resets(void **state) {
    (void) state;
    start();
    w.options.reset = HEALTH_RESET_IDLE;
    w.reading.recovery = -1;
    w.reading.holders = 1;
    poll_after(0);
    xid(48);
    for (int i = 0; i < 2 * HEALTH_RESETS_MAX; i++) {
        while (health_work(&w.card) != HEALTH_PROBE)
            poll_after(MINUTE);
        done(HEALTH_PROBE, "no");
    }
    w.reading.holders = 0;
    poll_after(10 * MINUTE);
    expect_work(HEALTH_RESET);
}

/* MPS is started after the probe: its absence does not show that the reset had no effect, and
 * neither does a card that waits to be given out in another way. */
static void reset_beside(enum health_cause cause) {
    fail_with_xid(HEALTH_RESET_IDLE, 0);
    done(HEALTH_RESET, NULL);
    done(HEALTH_PROBE, NULL);
    health_set_problem(&w.card, &w.options, cause, "not yet", w.now);
    w.reading.recovery = 0;
    poll_after(SECOND);
    expect(HEALTH_UNHEALTHY, "not yet");
    health_set_problem(&w.card, &w.options, cause, NULL, w.now);
    expect(HEALTH_HEALTHY, "");
}

static void test_reset_under_mps(void **state) {
    (void) state;
    reset_beside(HEALTH_MPS);
    reset_beside(HEALTH_OFFER);
}

/* What no reset of the card heals. */
static void test_reset_of_no_use(void **state) {
    (void) state;
    start_healthy();
    w.options.reset = HEALTH_RESET_DRAIN;
    w.reading.error = "GPU is lost";
    poll_after(SECOND);
    expect_work(HEALTH_NOTHING);
    w.reading.needs_reset = true;
    poll_after(SECOND);
    expect_work(HEALTH_RESET);

    start_healthy();
    w.options.reset = HEALTH_RESET_DRAIN;
    xid(79);
    expect(HEALTH_UNHEALTHY, XID_79);
    expect_work(HEALTH_NOTHING);

    for (int32_t action = 1; action <= 5; action++) {
        start_healthy();
        w.options.reset = HEALTH_RESET_DRAIN;
        w.reading.recovery = action;
        poll_after(SECOND);
        expect_work(action == 1 || action == 4 ? HEALTH_RESET : HEALTH_NOTHING);
    }
    start_healthy();
    w.options.reset = HEALTH_RESET_DRAIN;
    health_set_problem(&w.card, &w.options, HEALTH_MPS, "the MPS daemon ended", w.now);
    expect_work(HEALTH_NOTHING);
}

/* The agent is killed at each step and goes on with what it has saved. */
static void test_restarts(void **state) {
    struct health saved;

    (void) state;
    fail_with_xid(HEALTH_RESET_DRAIN, 1);
    for (int step = 0; step < 4; step++) {
        static const enum health_work works[] = {HEALTH_EVICT, HEALTH_RESET, HEALTH_PROBE,
                                                 HEALTH_NOTHING};

        saved = w.card;
        memset(&w.card, 0xa5, sizeof(w.card));
        w.card = saved;
        expect_work(works[step]);
        w.reading.holders = 0;
        if (step == 0)
            poll_after(SECOND);
        else if (step < 3)
            done(works[step], NULL);
    }
    w.reading.recovery = 0;
    poll_after(SECOND);
    expect(HEALTH_HEALTHY, "");
}

/* ---- orders ---- */

static void test_cordon(void **state) {
    (void) state;
    start_healthy();
    w.reading.holders = 2;
    poll_after(0);
    order(HEALTH_ORDER_CORDON);
    expect(HEALTH_DRAINING, "cordoned by order");
    expect_work(HEALTH_NOTHING); /* its pods stay */
    poll_after(MINUTE);
    expect(HEALTH_DRAINING, "cordoned by order");
    order(HEALTH_ORDER_SET_HEALTHY);
    assert_int_equal(w.card.state, HEALTH_DRAINING);
    xid(48);
    assert_int_equal(w.card.state, HEALTH_UNHEALTHY);
    poll_after(SECOND);
    expect(HEALTH_DRAINING, "cordoned by order");
    order(HEALTH_ORDER_UNCORDON);
    expect(HEALTH_HEALTHY, "");
}

static void test_drain(void **state) {
    (void) state;
    start_healthy();
    w.reading.holders = 2;
    poll_after(0);
    order(HEALTH_ORDER_DRAIN);
    expect(HEALTH_DRAINING, "drained by order");
    expect_work(HEALTH_EVICT);
    xid(48); /* the order holds for a card with a problem, too */
    expect(HEALTH_DRAINING, XID_48);
    expect_work(HEALTH_EVICT);
    w.reading.holders = 0;
    poll_after(SECOND);
    expect(HEALTH_DRAINING, "drained by order");
    expect_work(HEALTH_NOTHING);
    order(HEALTH_ORDER_UNCORDON);
    expect(HEALTH_HEALTHY, "");
}

static void test_reset_by_order(void **state) {
    (void) state;
    start_healthy();
    w.reading.holders = 1;
    poll_after(0);
    order(HEALTH_ORDER_RESET);
    expect(HEALTH_DRAINING, "reset by order");
    expect_work(HEALTH_NOTHING); /* nothing is evicted without the order to drain */
    order(HEALTH_ORDER_DRAIN);
    expect_work(HEALTH_EVICT);
    w.reading.holders = 0;
    poll_after(SECOND);
    expect(HEALTH_RESETTING, "reset by order");
    done(HEALTH_RESET, NULL);
    done(HEALTH_PROBE, NULL);
    poll_after(SECOND);
    expect(HEALTH_DRAINING, "drained by order");
    order(HEALTH_ORDER_UNCORDON);
    expect(HEALTH_HEALTHY, "");
    assert_int_equal(w.card.nleft, 0);
}

/* A drained card without a problem is drained again, and the reset has not been done. */
static void test_reset_by_order_fails(void **state) {
    (void) state;
    start_healthy();
    order(HEALTH_ORDER_DRAIN);
    assert_int_equal(health_level(&w.card), HEALTH_ORDER_DRAIN);
    order(HEALTH_ORDER_RESET);
    poll_after(SECOND);
    expect_work(HEALTH_RESET);
    done(HEALTH_RESET, "exit status 255: in use");
    poll_after(SECOND);
    expect(HEALTH_DRAINING, "drained by order; reset failed: exit status 255: in use");
    order(HEALTH_ORDER_RESET);
    poll_after(SECOND);
    done(HEALTH_RESET, NULL);
    done(HEALTH_PROBE, NULL);
    poll_after(SECOND);
    expect(HEALTH_DRAINING, "drained by order");
    assert_int_equal(health_level(&w.card), HEALTH_ORDER_DRAIN);
}

static void expect_ordered(enum health_ordered ordered, const char *failure) {
    assert_int_equal(w.card.ordered, ordered);
    assert_string_equal(w.card.ordered_failure, failure);
}

/* How the order ended is known also of a card that is healthy again at once. */
static void test_end_of_an_order(void **state) {
    (void) state;
    start_healthy();
    expect_ordered(HEALTH_ORDERED_NONE, "");
    order(HEALTH_ORDER_RESET);
    expect_work(HEALTH_RESET);
    expect_ordered(HEALTH_ORDERED_AWAITED, "");
    done(HEALTH_RESET, "exit status 255: in use");
    expect(HEALTH_HEALTHY, "");
    expect_ordered(HEALTH_ORDERED_FAILED, "reset failed: exit status 255: in use");
    order(HEALTH_ORDER_RESET);
    expect_ordered(HEALTH_ORDERED_AWAITED, "reset failed: exit status 255: in use");
    done(HEALTH_RESET, NULL);
    done(HEALTH_PROBE, "cuCtxCreate: 46");
    expect_ordered(HEALTH_ORDERED_FAILED, "the reset had no effect: cuCtxCreate: 46");
    order(HEALTH_ORDER_RESET);
    done(HEALTH_RESET, NULL);
    done(HEALTH_PROBE, NULL);
    expect_ordered(HEALTH_ORDERED_AWAITED, "the reset had no effect: cuCtxCreate: 46");
    poll_after(SECOND);
    expect(HEALTH_HEALTHY, "");
    expect_ordered(HEALTH_ORDERED_DONE, "");
}

/* A reset for a MIG configuration tells nothing of the user's order before it, and ends one that is
 * still awaited. */
static void test_a_reset_of_the_agent_is_no_order(void **state) {
    (void) state;
    start_healthy();
    order(HEALTH_ORDER_RESET_BY_AGENT);
    expect_work(HEALTH_RESET);
    done(HEALTH_RESET, "no");
    expect_ordered(HEALTH_ORDERED_NONE, "");
    order(HEALTH_ORDER_RESET);
    done(HEALTH_RESET, "in use");
    expect_ordered(HEALTH_ORDERED_FAILED, "reset failed: in use");
    order(HEALTH_ORDER_RESET_BY_AGENT);
    expect_work(HEALTH_RESET);
    expect_ordered(HEALTH_ORDERED_FAILED, "reset failed: in use");
    done(HEALTH_RESET, NULL);
    done(HEALTH_PROBE, NULL);
    poll_after(SECOND);
    expect_ordered(HEALTH_ORDERED_FAILED, "reset failed: in use");
    w.reading.holders = 1;
    poll_after(SECOND);
    order(HEALTH_ORDER_RESET);
    order(HEALTH_ORDER_RESET_BY_AGENT);
    w.reading.holders = 0;
    poll_after(SECOND);
    done(HEALTH_RESET, NULL);
    done(HEALTH_PROBE, NULL);
    poll_after(SECOND);
    expect_ordered(HEALTH_ORDERED_DONE, "");
}

/* A reset by policy, and a probe without a reset, are not the order's. */
static void test_end_of_no_order(void **state) {
    (void) state;
    fail_with_xid(HEALTH_RESET_IDLE, 0);
    done(HEALTH_RESET, "no");
    expect_ordered(HEALTH_ORDERED_NONE, "");
    start_healthy();
    w.reading.recovery = -1;
    xid(48);
    poll_after(MINUTE);
    expect_work(HEALTH_PROBE);
    order(HEALTH_ORDER_RESET);
    done(HEALTH_PROBE, NULL);
    poll_after(SECOND);
    expect_ordered(HEALTH_ORDERED_AWAITED, "");
    expect_work(HEALTH_RESET);
}

/* It is followed after the probe, however that ends. */
static void test_order_during_a_probe(void **state) {
    static const char *const ends[] = {NULL, "cuCtxCreate: 46"};

    (void) state;
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        start_healthy();
        fail_with_xid(HEALTH_RESET_IDLE, 0);
        done(HEALTH_RESET, NULL);
        expect_work(HEALTH_PROBE);
        w.reading.recovery = 0;
        order(HEALTH_ORDER_RESET);
        done(HEALTH_PROBE, ends[i]);
        poll_after(SECOND);
        expect_ordered(HEALTH_ORDERED_AWAITED, "");
        expect_work(HEALTH_RESET);
        done(HEALTH_RESET, NULL);
        done(HEALTH_PROBE, NULL);
        poll_after(SECOND);
        expect_ordered(HEALTH_ORDERED_DONE, "");
    }
}

static void test_order_for_a_vgpu(void **state) {
    (void) state;
    start_healthy();
    order(HEALTH_ORDER_DRAIN);
    w.reading.holders = 1;
    poll_after(SECOND);
    order(HEALTH_ORDER_RESET);
    w.reading.no_reset = true;
    poll_after(SECOND);
    expect_ordered(HEALTH_ORDERED_FAILED, "a vGPU is reset by its host");
    w.card.ordered_failure[0] = 0;
    order(HEALTH_ORDER_RESET);
    expect_ordered(HEALTH_ORDERED_FAILED, "a vGPU is reset by its host");
}

static void test_release(void **state) {
    (void) state;
    start_healthy();
    order(HEALTH_ORDER_RELEASE);
    expect(HEALTH_UNKNOWN, "released by order");
    w.reading.error = "released";
    poll_after(MINUTE);
    expect(HEALTH_UNKNOWN, "released by order");
    w.reading.error = NULL;
    poll_after(MINUTE);
    order(HEALTH_ORDER_UNCORDON);
    expect(HEALTH_UNKNOWN, ""); /* until it is read */
    poll_after(SECOND);
    expect(HEALTH_HEALTHY, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reset_by_order_fails),
        cmocka_unit_test(test_reset_never),
        cmocka_unit_test(test_reset_idle),
        cmocka_unit_test(test_drains_by),
        cmocka_unit_test(test_reset_drain),
        cmocka_unit_test(test_drain_ends_early),
        cmocka_unit_test(test_policy_changes),
        cmocka_unit_test(test_reset_fails),
        cmocka_unit_test(test_reset_lies),
        cmocka_unit_test(test_probes_are_no_resets),
        cmocka_unit_test(test_reset_under_mps),
        cmocka_unit_test(test_reset_of_no_use),
        cmocka_unit_test(test_restarts),
        cmocka_unit_test(test_cordon),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_reset_by_order),
        cmocka_unit_test(test_end_of_an_order),
        cmocka_unit_test(test_a_reset_of_the_agent_is_no_order),
        cmocka_unit_test(test_end_of_no_order),
        cmocka_unit_test(test_order_during_a_probe),
        cmocka_unit_test(test_order_for_a_vgpu),
        cmocka_unit_test(test_release),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
