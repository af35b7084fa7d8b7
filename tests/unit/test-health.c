/* SPDX-License-Identifier: Apache-2.0 */

/* The states of a card in virtual time. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "agent/verdicts/health.h"

#define SECOND UINT64_C(1000)
#define MINUTE (60 * SECOND)

/* One card, and what its driver reports. */
static struct world {
    struct health_options options;
    struct health card;
    struct health_reading reading;
    uint64_t now;
} w;

static void start(void) {
    memset(&w, 0, sizeof(w));
    w.options = health_defaults;
    w.now = 12345678;
}

static void poll_after(uint64_t ms) {
    w.now += ms;
    health_read(&w.card, &w.options, &w.reading, w.now);
}

static void xid(uint32_t code) {
    health_take_xid(&w.card, &w.options, code, w.now);
}

static void order(enum health_order o) {
    health_take_order(&w.card, &w.options, o, w.now);
}

static void done(enum health_work work, const char *error) {
    health_work_done(&w.card, &w.options, work, error, w.now);
}

static void expect(enum health_state state, const char *reason) {
    assert_string_equal(health_state_name(w.card.state), health_state_name(state));
    assert_string_equal(w.card.reason, reason);
}

static void expect_work(enum health_work work) {
    assert_int_equal(health_work(&w.card), work);
}

static void start_healthy(void) {
    start();
    poll_after(0);
    expect(HEALTH_HEALTHY, "");
}

#define XID_48 "XID 48 (double-bit ECC error): the card needs a reset"
#define OVER "; it is over; the card waits for annotation elasticgpu.io/set-healthy"
#define XID_79 "XID 79 (the GPU has fallen off the bus): the node needs a restart"

static void test_names(void **state) {
    (void) state;
    for (enum health_state s = 0; s < HEALTH_STATES; s++)
        assert_int_equal(health_state_parse(health_state_name(s)), s);
    assert_int_equal(health_state_parse("healthy"), HEALTH_STATES);
    assert_int_equal(health_state_parse(""), HEALTH_STATES);
}

/* Before the first poll nothing is known; an XID before it counts. */
static void test_unknown(void **state) {
    (void) state;
    start();
    assert_int_equal(w.card.state, HEALTH_UNKNOWN);
    xid(48);
    expect(HEALTH_UNKNOWN, "");
    poll_after(10);
    expect(HEALTH_UNHEALTHY, XID_48);
    assert_int_equal(w.card.since, w.now);
}

static void test_answers(void **state) {
    (void) state;
    start_healthy();
    w.reading.error = "nvmlDeviceGetMemoryInfo: GPU is lost";
    poll_after(SECOND);
    expect(HEALTH_UNHEALTHY, "nvmlDeviceGetMemoryInfo: GPU is lost");
    expect_work(HEALTH_NOTHING);
    poll_after(SECOND);
    assert_int_equal(w.card.since, w.now - SECOND);
    w.reading.error = NULL;
    poll_after(SECOND);
    expect(HEALTH_HEALTHY, "");
    assert_int_equal(w.card.since, w.now);
}

/* The driver reports no action in the settle time, whatever it will report after it. */
static void test_xid_and_recovery_action(void **state) {
    (void) state;
    start_healthy();
    xid(48);
    expect(HEALTH_UNHEALTHY, XID_48);
    assert_int_equal(w.card.last_xid, 48);
    poll_after(0);
    poll_after(999);
    expect(HEALTH_UNHEALTHY, XID_48);
    w.reading.recovery = 1;
    poll_after(1);
    expect(HEALTH_UNHEALTHY, XID_48);
    poll_after(MINUTE);
    expect(HEALTH_UNHEALTHY, XID_48);
    w.reading.recovery = 0;
    w.reading.late = true;
    poll_after(SECOND);
    expect(HEALTH_UNHEALTHY, XID_48);
    w.reading.late = false;
    poll_after(SECOND);
    expect(HEALTH_HEALTHY, "");
    assert_int_equal(w.card.last_xid, 48);
}

/* A second XID starts the settle time again. The first one is the cause, or one that is worse. */
static void test_xid_again(void **state) {
    (void) state;
    start_healthy();
    xid(48);
    w.now += 900;
    xid(62);
    poll_after(500);
    expect(HEALTH_UNHEALTHY, XID_48);
    xid(79);
    expect(HEALTH_UNHEALTHY, XID_79);
    xid(48);
    expect(HEALTH_UNHEALTHY, XID_79);
    assert_int_equal(w.card.last_xid, 48);
    poll_after(999);
    assert_int_equal(w.card.state, HEALTH_UNHEALTHY);
    poll_after(1);
    expect(HEALTH_HEALTHY, "");
}

static void test_xid_without_effect(void **state) {
    static const uint32_t codes[] = {13, 31, 43, 45, 63, 94, 999};

    (void) state;
    start_healthy();
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        xid(codes[i]);
        expect(HEALTH_HEALTHY, "");
        assert_int_equal(w.card.last_xid, codes[i]);
    }
    assert_int_equal(xid_set_add(&w.options.xids.fatal, 45), 0);
    xid(45);
    expect(HEALTH_UNHEALTHY,
           "XID 45 (preemptive cleanup after an earlier error): the XID before it decides");
}

/* Under suspicion until the driver had time to say what has to be done. */
static void test_evaluation(void **state) {
    (void) state;
    start_healthy();
    xid(154);
    expect(HEALTH_SUSPECT,
           "XID 154 (the recovery action of the GPU changed): the recovery action decides");
    poll_after(999);
    assert_int_equal(w.card.state, HEALTH_SUSPECT);
    xid(13); /* changes nothing of it */
    assert_int_equal(w.card.state, HEALTH_SUSPECT);
    poll_after(1);
    expect(HEALTH_HEALTHY, "");
    xid(154);
    w.reading.recovery = 2;
    poll_after(10);
    expect(HEALTH_UNHEALTHY, "the driver reports that the node needs a restart");
    w.reading.recovery = 77;
    poll_after(10);
    expect(HEALTH_UNHEALTHY, "the driver reports an unknown recovery action");
    w.reading.recovery = 0;
    poll_after(SECOND);
    expect(HEALTH_HEALTHY, "");
}

/* NVLink 5: Suspect, and then what the links say. */
static void test_links(void **state) {
    (void) state;
    start_healthy();
    xid(146);
    assert_int_equal(w.card.state, HEALTH_SUSPECT);
    health_set_problem(&w.card, &w.options, HEALTH_LINKS, "NVLink 3 is down", w.now);
    expect(HEALTH_SUSPECT, "NVLink 3 is down");
    poll_after(999);
    expect(HEALTH_SUSPECT, "NVLink 3 is down");
    poll_after(1);
    expect(HEALTH_UNHEALTHY, "NVLink 3 is down");
    health_set_problem(&w.card, &w.options, HEALTH_LINKS, NULL, w.now);
    expect(HEALTH_HEALTHY, "");
}

static void test_temperature(void **state) {
    (void) state;
    start_healthy();
    w.reading.temperature = 120;
    poll_after(MINUTE);
    expect(HEALTH_HEALTHY, ""); /* no maximum */
    w.options.max_temperature = 95;
    w.reading.temperature = 95;
    poll_after(SECOND);
    expect(HEALTH_HEALTHY, "");
    w.reading.temperature = 96;
    poll_after(SECOND);
    expect(HEALTH_SUSPECT, "the temperature is above maxTemperature, 95 degrees Celsius");
    w.reading.temperature = 95;
    poll_after(SECOND);
    expect(HEALTH_HEALTHY, "");
    assert_int_equal(w.card.nleft, 0); /* suspicion is no flapping */
    w.reading.temperature = 97;
    poll_after(SECOND);
    poll_after(SECOND);
    expect(HEALTH_UNHEALTHY, "the temperature is above maxTemperature, 95 degrees Celsius");
    w.reading.temperature = 98;
    poll_after(SECOND); /* the same reason: each new one is published */
    expect(HEALTH_UNHEALTHY, "the temperature is above maxTemperature, 95 degrees Celsius");
    w.reading.temperature = -1;
    poll_after(SECOND);
    expect(HEALTH_HEALTHY, "");
}

/* A process that ends again and again has a new PID each time, and another failure is another
 * reason. */
static void test_figures_in_reasons(void **state) {
    (void) state;
    start_healthy();
    w.reading.error = "process 9 has ended";
    poll_after(SECOND);
    w.reading.error = "process 10 has ended";
    poll_after(SECOND);
    expect(HEALTH_UNHEALTHY, "process 9 has ended");
    w.reading.error = "process 10 has ended early";
    poll_after(SECOND);
    expect(HEALTH_UNHEALTHY, "process 10 has ended early");
}

/* Problems of other sources need no settle time. The first cause is the reason. */
static void test_sources(void **state) {
    (void) state;
    start_healthy();
    health_set_problem(&w.card, &w.options, HEALTH_MPS, "the MPS daemon ended", w.now);
    expect(HEALTH_UNHEALTHY, "the MPS daemon ended");
    health_set_problem(&w.card, &w.options, HEALTH_MEMORY, "row remapping failed", w.now);
    expect(HEALTH_UNHEALTHY, "row remapping failed");
    w.reading.error = "no answer";
    poll_after(0);
    expect(HEALTH_UNHEALTHY, "no answer");
    w.reading.error = NULL;
    poll_after(0);
    health_set_problem(&w.card, &w.options, HEALTH_MEMORY, NULL, w.now);
    expect(HEALTH_UNHEALTHY, "the MPS daemon ended");
    health_set_problem(&w.card, &w.options, HEALTH_MPS, NULL, w.now);
    expect(HEALTH_HEALTHY, "");
}

/* Drivers before 570 report no recovery action: a context shows whether the card works. */
static void test_no_recovery_action(void **state) {
    (void) state;
    start();
    w.reading.recovery = -1;
    poll_after(0);
    xid(48);
    w.reading.processes = 1;
    poll_after(SECOND);
    expect(HEALTH_UNHEALTHY, XID_48); /* not beside a program */
    w.reading.processes = 0;
    w.reading.error = "GPU requires reset";
    poll_after(SECOND);
    assert_int_equal(w.card.state, HEALTH_UNHEALTHY);
    w.reading.error = NULL;
    poll_after(SECOND);
    expect(HEALTH_PROBING, XID_48);
    expect_work(HEALTH_PROBE);
    poll_after(SECOND);
    expect_work(HEALTH_PROBE);
    done(HEALTH_PROBE, "cuCtxCreate: 46");
    expect(HEALTH_UNHEALTHY, XID_48 "; probe failed: cuCtxCreate: 46");
    poll_after(HEALTH_RETRY_MIN_MS - 1);
    assert_int_equal(w.card.state, HEALTH_UNHEALTHY);
    poll_after(1);
    expect_work(HEALTH_PROBE);
    done(HEALTH_PROBE, "again");
    poll_after(2 * HEALTH_RETRY_MIN_MS - 1);
    assert_int_equal(w.card.state, HEALTH_UNHEALTHY);
    poll_after(1);
    done(HEALTH_PROBE, NULL);
    expect_work(HEALTH_NOTHING);
    assert_int_equal(w.card.state, HEALTH_PROBING); /* the next reading confirms */
    poll_after(SECOND);
    expect(HEALTH_HEALTHY, "");
}

/* Probes go on for ever, at most at the longest interval. */
static void test_probe_interval(void **state) {
    uint64_t last = 0;

    (void) state;
    start();
    w.reading.recovery = -1;
    poll_after(0);
    xid(48);
    for (int i = 0; i < 40; i++) {
        uint64_t before = w.now;

        while (health_work(&w.card) != HEALTH_PROBE)
            poll_after(SECOND);
        assert_true(w.now - before <= HEALTH_RETRY_MAX_MS + SECOND);
        last = w.now - before;
        done(HEALTH_PROBE, "no");
    }
    assert_true(last >= HEALTH_RETRY_MAX_MS);
}

/* ---- recover: manual ---- */

static void test_manual(void **state) {
    (void) state;
    start();
    w.options.recover = false;
    poll_after(0);
    xid(48);
    poll_after(2 * SECOND);
    expect(HEALTH_UNHEALTHY, XID_48 OVER);
    poll_after(MINUTE);
    assert_int_equal(w.card.state, HEALTH_UNHEALTHY);
    order(HEALTH_ORDER_SET_HEALTHY);
    expect(HEALTH_HEALTHY, "");
    /* What goes on is no matter of an order. */
    w.reading.error = "GPU is lost";
    poll_after(SECOND);
    order(HEALTH_ORDER_SET_HEALTHY);
    expect(HEALTH_UNHEALTHY, "GPU is lost");
    w.reading.error = NULL;
    poll_after(SECOND);
    expect(HEALTH_UNHEALTHY, "GPU is lost" OVER);
    /* Suspicion passes by itself. */
    order(HEALTH_ORDER_SET_HEALTHY);
    w.options.max_temperature = 90;
    w.reading.temperature = 91;
    poll_after(SECOND);
    assert_int_equal(w.card.state, HEALTH_SUSPECT);
    w.reading.temperature = 90;
    poll_after(SECOND);
    expect(HEALTH_HEALTHY, "");
}

/* No probe and no reset by themselves either. */
static void test_manual_starts_nothing(void **state) {
    (void) state;
    start();
    w.options.recover = false;
    w.options.reset = HEALTH_RESET_DRAIN;
    w.reading.recovery = -1;
    poll_after(0);
    xid(48);
    poll_after(MINUTE);
    expect(HEALTH_UNHEALTHY, XID_48);
    expect_work(HEALTH_NOTHING);
    order(HEALTH_ORDER_RESET);
    expect_work(HEALTH_RESET);
}

/* ---- flapping ---- */

static void lose_and_return(void) {
    w.reading.error = "GPU is lost";
    poll_after(SECOND);
    w.reading.error = NULL;
    poll_after(SECOND);
}

static void test_flapping(void **state) {
    (void) state;
    start_healthy();
    lose_and_return();
    lose_and_return();
    expect(HEALTH_HEALTHY, "");
    lose_and_return();
    expect(HEALTH_UNHEALTHY,
           "the card failed too often and waits for annotation elasticgpu.io/set-healthy");
    poll_after(24 * 60 * MINUTE);
    assert_int_equal(w.card.state, HEALTH_UNHEALTHY);
    order(HEALTH_ORDER_SET_HEALTHY);
    expect(HEALTH_HEALTHY, "");
    lose_and_return();
    expect(HEALTH_HEALTHY, ""); /* counted from the order on */
}

/* A driver that is restarted again and again is no matter of its cards. */
static void test_flapping_of_the_driver(void **state) {
    (void) state;
    start_healthy();
    w.reading.of_driver = true;
    for (int i = 0; i < 100; i++)
        lose_and_return();
    expect(HEALTH_HEALTHY, "");
}

/* Exactly `times` within exactly `within`. */
static void test_flapping_bounds(void **state) {
    (void) state;
    for (uint64_t more = 0; more <= 1; more++) {
        start_healthy();
        lose_and_return();
        poll_after(5 * MINUTE - 2 * SECOND);
        lose_and_return();
        poll_after(5 * MINUTE - 2 * SECOND + more);
        lose_and_return();
        assert_int_equal(w.card.state, more ? HEALTH_HEALTHY : HEALTH_UNHEALTHY);
    }
    start_healthy();
    w.options.flapping_times = 0;
    for (int i = 0; i < 100; i++)
        lose_and_return();
    expect(HEALTH_HEALTHY, "");
    start_healthy();
    w.options.flapping_times = 1;
    lose_and_return();
    assert_int_equal(w.card.state, HEALTH_UNHEALTHY);
    start_healthy();
    w.options.flapping_times = 1000; /* as the most that are kept */
    for (int i = 0; i < HEALTH_FLAPPING_MAX - 1; i++)
        lose_and_return();
    assert_int_equal(w.card.state, HEALTH_HEALTHY);
    lose_and_return();
    assert_int_equal(w.card.state, HEALTH_UNHEALTHY);
}

/* Orders are no flapping, and a flapping card is neither reset nor probed by itself. */
static void test_flapping_and_others(void **state) {
    (void) state;
    start_healthy();
    for (int i = 0; i < 10; i++) {
        order(HEALTH_ORDER_CORDON);
        order(HEALTH_ORDER_UNCORDON);
    }
    expect(HEALTH_HEALTHY, "");
    w.options.reset = HEALTH_RESET_DRAIN;
    w.options.flapping_times = 1;
    w.reading.holders = 1;
    xid(48);
    assert_true(w.card.held);
    w.reading.recovery = 1;
    poll_after(2 * SECOND);
    assert_int_equal(w.card.state, HEALTH_UNHEALTHY);
    expect_work(HEALTH_NOTHING);
    w.reading.holders = 0;
    w.reading.recovery = -1;
    poll_after(MINUTE);
    expect_work(HEALTH_NOTHING);
    order(HEALTH_ORDER_RESET);
    expect_work(HEALTH_RESET);
}

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
        done(HEALTH_RESET, "exit status 255: In use by another client");
        expect(HEALTH_UNHEALTHY,
               XID_48 "; reset failed: exit status 255: In use by another client");
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
    expect(HEALTH_UNHEALTHY, "the driver reports that the card needs a reset; probe failed: the "
                             "problem goes on");
    assert_int_equal(w.card.tries, 1);
    expect_work(HEALTH_NOTHING);
    fail_with_xid(HEALTH_RESET_IDLE, 0);
    done(HEALTH_RESET, NULL);
    done(HEALTH_PROBE, "cuCtxCreate: 46");
    expect(HEALTH_UNHEALTHY, XID_48 "; probe failed: cuCtxCreate: 46");
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
    expect(HEALTH_HEALTHY, "");
}

/* A storm of XIDs costs nothing and changes nothing twice. */
static void test_storm(void **state) {
    uint64_t since;

    (void) state;
    start_healthy();
    xid(119);
    since = w.card.since;
    for (uint32_t i = 0; i < 10000; i++) {
        w.now++;
        xid(i % 200);
    }
    xid(119);
    assert_int_equal(w.card.since, since);
    assert_int_equal(w.card.nleft, 1);
    poll_after(SECOND);
    expect(HEALTH_HEALTHY, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_xid_and_recovery_action),
        cmocka_unit_test(test_xid_again),
        cmocka_unit_test(test_xid_without_effect),
        cmocka_unit_test(test_evaluation),
        cmocka_unit_test(test_links),
        cmocka_unit_test(test_temperature),
        cmocka_unit_test(test_figures_in_reasons),
        cmocka_unit_test(test_sources),
        cmocka_unit_test(test_no_recovery_action),
        cmocka_unit_test(test_probe_interval),
        cmocka_unit_test(test_manual),
        cmocka_unit_test(test_manual_starts_nothing),
        cmocka_unit_test(test_flapping),
        cmocka_unit_test(test_flapping_of_the_driver),
        cmocka_unit_test(test_flapping_bounds),
        cmocka_unit_test(test_flapping_and_others),
        cmocka_unit_test(test_reset_never),
        cmocka_unit_test(test_reset_idle),
        cmocka_unit_test(test_reset_drain),
        cmocka_unit_test(test_drain_ends_early),
        cmocka_unit_test(test_policy_changes),
        cmocka_unit_test(test_reset_fails),
        cmocka_unit_test(test_reset_lies),
        cmocka_unit_test(test_reset_of_no_use),
        cmocka_unit_test(test_restarts),
        cmocka_unit_test(test_cordon),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_reset_by_order),
        cmocka_unit_test(test_release),
        cmocka_unit_test(test_storm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
