/* SPDX-License-Identifier: Apache-2.0 */

/* The meter of one card by itself: which launches are measured together, when the next measurement
 * is due, and what the account says while a batch runs. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

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

/* The charge of a launch that waits is held, and not when the driver has refused it. */
static void a_refused_launch_holds_nothing(void **state) {
    struct fixture *f = *state;
    struct cost cost = known(10 * US);
    struct launch l = {.stream = 1};
    struct compute_work work = {.held = 10 * US};

    (void) meter_charge(&f->meter, &cost, &l);
    f->meter.work = &work;
    l.held = f->shared.held = 10 * US;
    meter_refused(&f->meter, &l);
    assert_int_equal(l.held, 0);
    assert_int_equal(f->shared.held, 0);
    assert_int_equal(work.held, 0);
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
    meter_running(&f->meter, at, SEC);
    assert_int_equal(f->meter.measure[at].ran, 0);
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

/* How many launches of that length make up a batch, one every `step`. */
static unsigned batch_of(struct fixture *f, uint64_t ns, uint64_t step) {
    struct cost cost = known(ns);
    struct launch l = {.stream = 1};
    uint64_t now = SEC;
    unsigned n = 0;
    int at = begin(f, &cost, &l, now), closed;

    do {
        if (n > 0)
            (void) meter_charge(&f->meter, &cost, &l);
        closed = meter_launched(&f->meter, &l, now);
        now += step;
        n++;
    } while (closed < 0 && n < 1000);
    assert_int_equal(closed, at);
    assert_int_equal(f->meter.measure[at].batch.n, n);
    assert_int_equal(f->meter.measure[at].batch.charged, n * ns);
    meter_dropped(&f->meter, at);
    f->meter.due = 0;
    return n;
}

/* A batch has 1 ms of launches and four of them at least, and is open for 5 ms at most. */
static void a_batch_is_full(void **state) {
    struct fixture *f = *state;

    assert_int_equal(batch_of(f, ALONE_NS, US), 1);
    assert_int_equal(batch_of(f, ALONE_NS - 1, US), 4);
    assert_int_equal(batch_of(f, 250 * US, US), 4);
    assert_int_equal(batch_of(f, 250 * US - 1, US), 5);
    assert_int_equal(batch_of(f, 100 * US, US), 10);
    assert_int_equal(batch_of(f, US, US), BATCH_MAX);
    assert_int_equal(batch_of(f, 10 * US, 5 * MS), 2);
    assert_int_equal(batch_of(f, 10 * US, 5 * MS - 1), 3);
    assert_int_equal(batch_of(f, 10 * US, 2500 * US), 3);
}

/* A measurement begins when it is due, for a kind that is not known at any time, and where a result
 * is of use. */
static void a_measurement_is_due(void **state) {
    struct fixture *f = *state;
    struct cost cost = known(10 * US), fresh = {.key = 2, .ns = 10 * US};
    struct launch l = {.stream = 1, .cost = &cost, .ns = 10 * US}, other = l;

    other.cost = &fresh;
    f->meter.charged = 5 * MS;
    f->meter.due = 5 * MS;
    assert_int_equal(meter_opens(&f->meter, &l, false), 0);
    f->meter.due = 5 * MS + 1;
    assert_int_equal(meter_opens(&f->meter, &l, false), -1);
    assert_int_equal(meter_opens(&f->meter, &other, false), 0);
    f->meter.due = 0;
    assert_int_equal(meter_opens(&f->meter, &l, true), -1);
    assert_int_equal(meter_opens(&f->meter, &other, true), 0);
    l.ns = ALONE_NS - 1;
    assert_int_equal(meter_opens(&f->meter, &l, true), -1);
    l.ns = ALONE_NS;
    assert_int_equal(meter_opens(&f->meter, &l, true), 0);
    for (int i = 0; i < MEASURES_MAX; i++) {
        assert_int_equal(meter_opens(&f->meter, &l, false), i);
        f->meter.measure[i].state = MEASURE_CLOSED;
    }
    assert_int_equal(meter_opens(&f->meter, &l, false), -1);
    f->meter.measure[3].state = MEASURE_FREE;
    assert_int_equal(meter_opens(&f->meter, &l, false), 3);
    f->meter.open = 1;
    assert_int_equal(meter_opens(&f->meter, &l, false), -1);
}

/* Only what is on the stream of a measurement ends it, and only where there is something to
 * measure. */
static void the_end_of_a_stream_ends_its_measurement(void **state) {
    struct fixture *f = *state;
    struct cost cost = known(10 * US);
    struct launch l = {.stream = 1};
    int at;

    assert_int_equal(meter_ends(&f->meter, 1), -1);
    at = begin(f, &cost, &l, SEC);
    assert_int_equal(meter_ends(&f->meter, 1), -1);
    assert_int_equal(meter_launched(&f->meter, &l, SEC), -1);
    assert_int_equal(meter_ends(&f->meter, 1), at);
    assert_int_equal(meter_ends(&f->meter, 2), -1);
}

/* Kinds that are not known and other streams make a batch one that says nothing of its kinds. */
static void a_mixed_batch_is_marked(void **state) {
    struct fixture *f = *state;
    struct cost cost = known(10 * US), fresh = {.key = 2, .ns = 10 * US, .samples = 1};
    struct launch l = {.stream = 1}, other = {.stream = 1};
    int at = begin(f, &cost, &l, SEC);

    assert_int_equal(meter_launched(&f->meter, &l, SEC), -1);
    (void) meter_charge(&f->meter, &cost, &l);
    assert_int_equal(meter_launched(&f->meter, &l, SEC), -1);
    assert_false(f->meter.measure[at].batch.mixed);
    (void) meter_charge(&f->meter, &fresh, &other);
    assert_int_equal(meter_launched(&f->meter, &other, SEC), -1);
    assert_true(f->meter.measure[at].batch.mixed);
    meter_dropped(&f->meter, at);
    f->meter.due = 0;
    at = begin(f, &cost, &l, SEC);
    assert_false(f->meter.measure[at].batch.mixed);
    other.stream = 2;
    (void) meter_charge(&f->meter, &cost, &other);
    assert_int_equal(meter_launched(&f->meter, &other, SEC), -1);
    assert_true(f->meter.measure[at].batch.mixed);
}

/* A batch whose stream has no further launch is given up after 5 ms and twice what it charged. */
static void a_batch_of_another_stream_is_given_up(void **state) {
    struct fixture *f = *state;
    struct cost cost = known(100 * US);
    struct launch l = {.stream = 1}, other = {.stream = 2};
    int at = begin(f, &cost, &l, SEC);

    assert_int_equal(meter_launched(&f->meter, &l, SEC), -1);
    (void) meter_charge(&f->meter, &cost, &other);
    assert_int_equal(meter_launched(&f->meter, &other, SEC + 5 * MS + 400 * US - 1), -1);
    assert_int_equal(f->meter.open, at + 1);
    (void) meter_charge(&f->meter, &cost, &other);
    assert_int_equal(meter_launched(&f->meter, &other, SEC + 5 * MS + 600 * US), -1);
    assert_int_equal(f->meter.open, 0);
    assert_int_equal(f->meter.measure[at].state, MEASURE_FREE);
}

/* How long a launch waits for the result before it: the queue in turns with each neighbour, of 64
 * at most, and a tenth of a second. The charge is held as long. */
static void the_wait_for_a_result_counts_the_neighbours(void **state) {
    static const struct {
        uint32_t neighbours;
        uint64_t turns;
    } rows[] = {{0, 1}, {1, 2}, {63, 64}, {64, 65}, {65, 65}, {1000, 65}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct fixture *f = *state;
        struct grants_file *grants = test_calloc(1, sizeof(*grants));
        struct cost cost = known(ALONE_NS);
        struct launch l = {.stream = 1}, next = {.stream = 1};
        uint64_t wait;
        bool ring;
        int at;

        memset(f, 0, sizeof(*f));
        f->meter.account.shared = &f->shared;
        f->meter.stream = 1;
        grants->beat = 1;
        f->meter.account.grants = grants;
        f->meter.account.grant = &f->grant;
        f->grant = (struct grant_device){
            .rate = RATE_UNLIMITED, .window = ALONE_NS - 1, .neighbours = rows[i].neighbours};
        at = begin(f, &cost, &l, SEC);
        assert_int_equal(meter_launched(&f->meter, &l, SEC), at);
        meter_closed(&f->meter, at);
        (void) meter_charge(&f->meter, &cost, &next);
        assert_int_equal(meter_enter(&f->meter, &next, SEC, &wait, &ring), METER_WAIT_RESULT);
        assert_true(wait == ALONE_NS * rows[i].turns + 100 * MS);
        assert_false(ring);
        assert_int_equal(f->shared.waits, 1);
        assert_int_equal(f->shared.held, ALONE_NS);
        assert_int_equal(meter_enter(&f->meter, &next, SEC, &wait, &ring), METER_WAIT_RESULT);
        assert_int_equal(f->shared.held, ALONE_NS);
        meter_force(&f->meter, &next, SEC);
        assert_int_equal(f->shared.held, 0);
        assert_true(f->meter.measure[at].stalled);
        assert_int_equal(meter_oldest(&f->meter), -1);
        assert_int_equal(meter_first(&f->meter), at);
        test_free(grants);
    }
}

/* A kind without a result that runs for longer than it was charged costs its part of that time. */
static void a_launch_without_a_result_becomes_dearer(void **state) {
    for (uint32_t neighbours = 0; neighbours < 3; neighbours++) {
        struct fixture *f = *state;
        struct cost cost = {.key = 1, .ns = 10 * US}, other = known(10 * US);
        struct launch l = {.stream = 1}, next = {.stream = 1};
        int at;

        memset(f, 0, sizeof(*f));
        f->meter.account.shared = &f->shared;
        f->meter.stream = 1;
        f->grant.neighbours = neighbours;
        f->meter.account.grant = &f->grant;
        at = begin(f, &cost, &l, SEC);
        assert_true(f->meter.measure[at].alone);
        assert_int_equal(meter_launched(&f->meter, &l, SEC), at);
        meter_closed(&f->meter, at);
        (void) meter_charge(&f->meter, &other, &next);
        meter_force(&f->meter, &next, SEC + 6 * MS);
        assert_int_equal(cost.ns, 6 * MS / (1 + neighbours));
        assert_int_equal(other.ns, 10 * US);
    }
}

/* While others compute, a batch is charged what they left of the time, and its turn at least. */
static void a_running_batch_shares_the_time(void **state) {
    static const struct {
        uint32_t before, now; /* neighbours */
        uint64_t others, ran; /* of 12 ms */
    } rows[] = {
        {0, 0, 0, 12 * MS},      {0, 0, 5 * MS, 12 * MS}, {1, 1, 5 * MS, 7 * MS},
        {1, 1, 9 * MS, 6 * MS},  {1, 2, 9 * MS, 4 * MS},  {2, 1, 9 * MS, 4 * MS},
        {3, 0, 12 * MS, 3 * MS}, {3, 0, 20 * MS, 3 * MS}, {3, 3, 1 * MS, 11 * MS},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct fixture *f = *state;
        struct cost cost = known(ALONE_NS);
        struct launch l = {.stream = 1};
        int at;

        memset(f, 0, sizeof(*f));
        f->meter.account.shared = &f->shared;
        f->meter.stream = 1;
        f->meter.account.grant = &f->grant;
        f->grant.neighbours = rows[i].before;
        at = begin(f, &cost, &l, SEC);
        assert_int_equal(meter_launched(&f->meter, &l, SEC), at);
        meter_closed(&f->meter, at);
        meter_running(&f->meter, at, SEC);
        f->grant.neighbours = rows[i].now;
        f->grant.others = rows[i].others;
        meter_running(&f->meter, at, SEC + 12 * MS);
        assert_true(f->meter.measure[at].ran == rows[i].ran);
        assert_true(f->shared.charged == rows[i].ran);
        meter_running(&f->meter, at, SEC + 12 * MS);
        assert_true(f->shared.charged == rows[i].ran);
    }
}

/* The account shows what of the charge has not run, in whole microseconds, and a number that moves
 * as long as there is any. */
static void the_account_shows_the_work_ahead(void **state) {
    struct fixture *f = *state;
    struct compute_work work = {.added = 5};
    struct cost cost = known(ALONE_NS + 999);
    struct launch l = {.stream = 1};
    uint32_t moves;
    int at;

    assert_false(meter_show(&f->meter));
    f->meter.work = &work;
    assert_false(meter_show(&f->meter));
    assert_int_equal(work.moves, 0);
    assert_int_equal(work.added, 0);
    assert_int_equal(f->shared.charged, (uint64_t) -5);
    f->shared.charged = 0;
    at = begin(f, &cost, &l, SEC);
    assert_int_not_equal(work.moves, 0);
    assert_int_equal(work.ahead, 0);
    assert_int_equal(meter_launched(&f->meter, &l, SEC), at);
    meter_closed(&f->meter, at);
    assert_int_equal(work.ahead, ALONE_NS / US);
    moves = work.moves;
    assert_true(meter_show(&f->meter));
    assert_int_equal(work.moves, moves + 1);
    meter_running(&f->meter, at, SEC);
    meter_running(&f->meter, at, SEC + 100 * US);
    assert_true(meter_show(&f->meter));
    assert_int_equal(work.ahead, (ALONE_NS - 100 * US) / US);
    meter_done(&f->meter, at, ALONE_NS, SEC + ALONE_NS);
    assert_int_equal(work.ahead, 0);
    assert_int_equal(work.moves, 0);
}

/* Measurements are in the order of the charges before them, also where that number wraps. */
static void the_oldest_measurement_is_found(void **state) {
    struct fixture *f = *state;

    assert_int_equal(meter_oldest(&f->meter), -1);
    f->meter.measure[1] = (struct measure){.state = MEASURE_CLOSED, .mark = 20};
    f->meter.measure[2] = (struct measure){.state = MEASURE_CLOSED, .mark = 10};
    f->meter.measure[3] = (struct measure){.state = MEASURE_OPEN, .mark = 5};
    assert_int_equal(meter_oldest(&f->meter), 2);
    f->meter.measure[0] = (struct measure){.state = MEASURE_CLOSED, .mark = UINT64_MAX};
    assert_int_equal(meter_oldest(&f->meter), 0);
    f->meter.measure[0].stalled = true;
    assert_int_equal(meter_oldest(&f->meter), 2);
    assert_int_equal(meter_first(&f->meter), 0);
    f->meter.measure[2].state = f->meter.measure[0].state = MEASURE_FREE;
    assert_int_equal(meter_first(&f->meter), 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_launch_without_an_open_measurement_closes_none),
        TEST(a_launch_on_another_stream_closes_none),
        TEST(a_refused_launch_ends_the_measurement_that_it_began),
        TEST(a_refused_launch_holds_nothing),
        TEST(a_refused_launch_leaves_the_measurement_of_others),
        TEST(dropping_the_open_measurement_ends_it),
        TEST(a_launch_of_the_least_length_is_measured_alone),
        TEST(the_time_of_others_goes_on_for_one_beat),
        TEST(measurements_are_due_in_uneven_steps),
        TEST(a_running_batch_is_charged_what_it_takes),
        TEST(the_longest_launch_is_told),
        TEST(the_window_admits_a_queue_of_its_length_and_no_longer),
        TEST(a_batch_is_full),
        TEST(a_measurement_is_due),
        TEST(the_end_of_a_stream_ends_its_measurement),
        TEST(a_mixed_batch_is_marked),
        TEST(a_batch_of_another_stream_is_given_up),
        TEST(the_wait_for_a_result_counts_the_neighbours),
        TEST(a_launch_without_a_result_becomes_dearer),
        TEST(a_running_batch_shares_the_time),
        TEST(the_account_shows_the_work_ahead),
        TEST(the_oldest_measurement_is_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
