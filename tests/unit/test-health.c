/* SPDX-License-Identifier: Apache-2.0 */

/* The states of a card in virtual time. */

#include "health-world.h"

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
        cmocka_unit_test(test_storm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
