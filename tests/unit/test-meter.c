/* SPDX-License-Identifier: Apache-2.0 */

/* The meter of one card by itself: which launches are measured together, when the next measurement
 * is due, and what the account says while a batch runs. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "intercept/compute/meter.h"

#define US 1000ull
#define MS 1000000ull
#define SEC 1000000000ull
#define PERIOD_NS (10 * MS) /* between measurements, in time charged */
#define ALONE_NS (300 * US) /* a launch of that length is measured by itself */

struct fixture {
    struct compute_device shared;
    struct grant_device grant;
    struct meter meter;
};

static int setup(void **state) {
    struct fixture *f = test_calloc(1, sizeof(*f));

    f->meter.account.shared = &f->shared;
    f->meter.stream = 1;
    *state = f;
    return 0;
}

static int teardown(void **state) {
    test_free(*state);
    return 0;
}

static struct cost known(uint64_t ns) {
    return (struct cost){.key = 1, .ns = ns, .samples = COST_SAMPLES};
}

/* Charges a launch and begins a measurement with it; the index of the measurement. */
static int begin(struct fixture *f, struct cost *cost, struct launch *l, uint64_t now) {
    int at;

    (void) meter_charge(&f->meter, cost, l);
    at = meter_opens(&f->meter, l, false);
    assert_true(at >= 0);
    meter_opened(&f->meter, at, l, now);
    return at;
}

static void a_launch_without_an_open_measurement_closes_none(void **state) {
    struct fixture *f = *state;
    struct cost cost = known(10 * US);
    struct launch l = {.stream = 1};

    (void) meter_charge(&f->meter, &cost, &l);
    assert_int_equal(meter_launched(&f->meter, &l, SEC), -1);
}

static void a_launch_on_another_stream_closes_none(void **state) {
    struct fixture *f = *state;
    struct cost cost = known(10 * US);
    struct launch l = {.stream = 1}, other = {.stream = 2};

    (void) begin(f, &cost, &l, SEC);
    assert_int_equal(meter_launched(&f->meter, &l, SEC), -1);
    (void) meter_charge(&f->meter, &cost, &other);
    assert_int_equal(meter_launched(&f->meter, &other, SEC), -1);
    assert_int_not_equal(f->meter.open, 0);
}

static void a_refused_launch_ends_the_measurement_that_it_began(void **state) {
    struct fixture *f = *state;
    struct cost cost = known(10 * US);
    struct launch l = {.stream = 1};
    int at = begin(f, &cost, &l, SEC);

    meter_refused(&f->meter, &l);
    assert_int_equal(f->meter.open, 0);
    assert_int_equal(f->meter.measure[at].state, MEASURE_FREE);
    assert_int_equal(f->shared.charged, 0);
}

static void a_refused_launch_leaves_the_measurement_of_others(void **state) {
    struct fixture *f = *state;
    struct cost cost = known(10 * US);
    struct launch l = {.stream = 1}, refused = {.stream = 1};
    int at = begin(f, &cost, &l, SEC);

    assert_int_equal(meter_launched(&f->meter, &l, SEC), -1);
    (void) meter_charge(&f->meter, &cost, &refused);
    meter_refused(&f->meter, &refused);
    assert_int_equal(f->meter.open, at + 1);
    assert_int_equal(f->shared.charged, 10 * US);
}

static void dropping_the_open_measurement_ends_it(void **state) {
    struct fixture *f = *state;
    struct cost cost = known(ALONE_NS);
    struct launch l = {.stream = 1};
    int first = begin(f, &cost, &l, SEC), second;

    assert_int_equal(meter_launched(&f->meter, &l, SEC), first);
    meter_closed(&f->meter, first);
    f->meter.due = 0;
    second = begin(f, &cost, &l, SEC);
    /* Another one does not end it. */
    meter_dropped(&f->meter, first);
    assert_int_equal(f->meter.open, second + 1);
    meter_dropped(&f->meter, second);
    assert_int_equal(f->meter.open, 0);
}

static void a_launch_of_the_least_length_is_measured_alone(void **state) {
    struct fixture *f = *state;
    struct cost cost = known(ALONE_NS), less = known(ALONE_NS - 1);
    struct launch l = {.stream = 1};
    int at;

    at = begin(f, &cost, &l, SEC);
    assert_true(f->meter.measure[at].alone);
    meter_dropped(&f->meter, at);
    f->meter.due = 0;
    at = begin(f, &less, &l, SEC);
    assert_false(f->meter.measure[at].alone);
}

/* The arbiter's figure is continued up to the time at which the next one is due. */
static void the_time_of_others_goes_on_for_one_beat(void **state) {
    struct fixture *f = *state;
    struct cost cost = known(ALONE_NS);
    struct launch l = {.stream = 1};
    int at;

    f->grant = (struct grant_device){
        .others = SEC, .others_at = SEC, .others_rate = RATE_WHOLE, .rate = RATE_UNLIMITED};
    f->meter.account.grant = &f->grant;
    at = begin(f, &cost, &l, SEC + ARBITER_BEAT_NS);
    assert_true(f->meter.measure[at].others == SEC + ARBITER_BEAT_NS);
    meter_dropped(&f->meter, at);
    f->meter.due = 0;
    at = begin(f, &cost, &l, SEC + ARBITER_BEAT_NS + 1);
    assert_true(f->meter.measure[at].others == SEC);
}

/* At the same time of the clock, too, so that a loop is not measured at the same launch always. */
static void measurements_are_due_in_uneven_steps(void **state) {
    enum { ROUNDS = 300, LAST = 20 };
    struct fixture *f = *state;
    struct cost cost = known(ALONE_NS);
    struct launch l = {.stream = 1};
    uint64_t steps[LAST];
    unsigned same = 0;

    for (int i = 0; i < ROUNDS; i++) {
        int at;

        f->meter.due = 0;
        at = begin(f, &cost, &l, 0);
        assert_int_equal(meter_launched(&f->meter, &l, 0), at);
        meter_closed(&f->meter, at);
        steps[i % LAST] = f->meter.due - f->meter.charged;
        assert_in_range(steps[i % LAST], PERIOD_NS / 2, PERIOD_NS / 2 * 3);
        meter_dropped(&f->meter, at);
    }
    for (int i = 1; i < LAST; i++)
        same += steps[i] == steps[0];
    assert_true(same < LAST / 2);
}

/* What a kernel takes beyond its price is charged once, while it runs. */
static void a_running_batch_is_charged_what_it_takes(void **state) {
    struct fixture *f = *state;
    struct cost cost = known(ALONE_NS);
    struct launch l = {.stream = 1};
    int at = begin(f, &cost, &l, SEC);

    assert_int_equal(meter_launched(&f->meter, &l, SEC), at);
    meter_closed(&f->meter, at);
    meter_running(&f->meter, at, SEC);
    for (uint64_t ran = MS; ran <= 3 * MS; ran += MS) {
        meter_running(&f->meter, at, SEC + ran);
        assert_true(f->meter.measure[at].paid == ran - ALONE_NS);
        assert_true(f->meter.paid == ran - ALONE_NS);
        assert_true(f->shared.charged == ran);
    }
    meter_done(&f->meter, at, 3 * MS, SEC + 3 * MS);
    assert_true(f->meter.paid == 0);
    assert_true(f->shared.charged == 3 * MS);
}

static uint64_t longest_after(struct fixture *f, uint64_t ns) {
    struct cost cost = known(ALONE_NS);
    struct launch l = {.stream = 1};
    int at;

    f->meter.due = 0;
    at = begin(f, &cost, &l, SEC);
    assert_int_equal(meter_launched(&f->meter, &l, SEC), at);
    meter_closed(&f->meter, at);
    meter_done(&f->meter, at, ns, SEC + ns);
    return f->shared.longest;
}

/* It follows a longer launch at once, and shorter ones slowly. */
static void the_longest_launch_is_told(void **state) {
    struct fixture *f = *state;

    assert_true(longest_after(f, 2 * MS) == 2 * MS);
    assert_true(longest_after(f, 18 * MS) == 18 * MS);
    assert_true(longest_after(f, 2 * MS) == 17 * MS);
}

/* Whether a launch goes to the card behind work of ALONE_NS under that window. */
static enum meter_verdict behind_a_launch(struct fixture *f, uint64_t window) {
    struct cost cost = known(ALONE_NS);
    struct launch l = {.stream = 1}, next = {.stream = 1};
    uint64_t wait;
    bool ring;
    int at = begin(f, &cost, &l, SEC);

    assert_int_equal(meter_launched(&f->meter, &l, SEC), at);
    meter_closed(&f->meter, at);
    f->grant.window = window;
    (void) meter_charge(&f->meter, &cost, &next);
    return meter_enter(&f->meter, &next, SEC, &wait, &ring);
}

static void the_window_admits_a_queue_of_its_length_and_no_longer(void **state) {
    struct fixture *f = *state;
    struct grants_file *grants = test_calloc(1, sizeof(*grants));
    struct meter fresh = f->meter;

    grants->beat = 1;
    fresh.account.grants = grants;
    fresh.account.grant = &f->grant;
    f->grant.rate = RATE_UNLIMITED;
    f->meter = fresh;
    assert_int_equal(behind_a_launch(f, ALONE_NS), METER_GO);
    f->meter = fresh;
    assert_int_equal(behind_a_launch(f, ALONE_NS - 1), METER_WAIT_RESULT);
    test_free(grants);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_launch_without_an_open_measurement_closes_none),
        TEST(a_launch_on_another_stream_closes_none),
        TEST(a_refused_launch_ends_the_measurement_that_it_began),
        TEST(a_refused_launch_leaves_the_measurement_of_others),
        TEST(dropping_the_open_measurement_ends_it),
        TEST(a_launch_of_the_least_length_is_measured_alone),
        TEST(the_time_of_others_goes_on_for_one_beat),
        TEST(measurements_are_due_in_uneven_steps),
        TEST(a_running_batch_is_charged_what_it_takes),
        TEST(the_longest_launch_is_told),
        TEST(the_window_admits_a_queue_of_its_length_and_no_longer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
