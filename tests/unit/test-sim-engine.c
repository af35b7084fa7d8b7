/* SPDX-License-Identifier: Apache-2.0 */

/* The simulated GPU's time, on a clock of the test's own: rings in this process's memory. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "sim/daemon/channel.h"
#include "sim/daemon/daemon_internal.h"
#include "sim/daemon/engine.h"
#include "sim/daemon/instance.h"
#include "sim/daemon/machine.h"
#include "sim/daemon/session.h"

#define MS 1000000ull
#define START (1000 * MS)

struct world {
    struct sim_machine machine;
    struct sim_page page[2];
};

struct client {
    struct sim_session *session;
    struct sim_ring *ring;
};

static int set_up(void **state) {
    struct world *w = calloc(1, sizeof(*w));
    w->machine.ngpus = w->machine.nunits = 2;
    for (uint32_t i = 0; i < 2; i++) {
        machine_describe(&w->page[i], i, model_find(NULL), "test");
        w->machine.gpu[i].page = &w->page[i];
        w->machine.gpu[i].now = START;
    }
    *state = w;
    return 0;
}

static int tear_down(void **state) {
    struct world *w = *state;
    while (w->machine.sessions) {
        struct sim_session *s = w->machine.sessions;
        free(s->ring);
        s->ring = NULL;
        session_end(s);
    }
    free(w);
    return 0;
}

static struct client connect_to(struct world *w) {
    static uint64_t tokens;
    uint64_t token[2] = {++tokens, 0};
    struct client c = {session_begin(&w->machine, 1, token), calloc(1, sizeof(struct sim_ring))};
    c.session->ring = c.ring;
    c.session->attached[0] = 3;
    return c;
}

static void put(struct client *c, enum sim_work kind, uint8_t minor, uint16_t queue, uint32_t slot,
                uint64_t a, uint64_t time) {
    uint32_t tail = c->ring->tail;
    c->ring->entries[tail % SIM_RING_SIZE] =
        (struct sim_entry){(uint8_t) kind, minor, queue, slot, a, time};
    c->ring->tail = tail + 1;
}

static void kernel(struct client *c, uint16_t queue, uint64_t ns, uint64_t time) {
    put(c, SIM_KERNEL, 0, queue, 0, ns, time);
}

static void one_kernel_ends_when_it_is_due(void **state) {
    struct world *w = *state;
    struct client c = connect_to(w);
    put(&c, SIM_MARK, 0, 5, 0, 0, START);
    kernel(&c, 5, 10 * MS, START);
    put(&c, SIM_MARK, 0, 5, 1, 0, START);
    assert_int_equal(engine_run(&w->machine, START), START + 10 * MS);
    assert_int_equal(c.ring->queue[5].done, 1);
    assert_int_equal(engine_run(&w->machine, START + 10 * MS - 1), START + 10 * MS);
    assert_int_equal(c.ring->queue[5].done, 1);
    /* Looked at late: the time is that at which it was due. */
    assert_int_equal(engine_run(&w->machine, START + 50 * MS), ENGINE_NEVER);
    assert_int_equal(c.ring->queue[5].done, 3);
    assert_int_equal(c.ring->marks[1] - c.ring->marks[0], 10 * MS);
    assert_int_equal(w->page[0].busy_ns, 10 * MS);
}

static void work_submitted_meanwhile_loses_no_time(void **state) {
    struct world *w = *state;
    struct client c = connect_to(w);
    kernel(&c, 0, 10 * MS, START);
    (void) engine_run(&w->machine, START);
    /* Put in before the first ended, seen only long after. */
    kernel(&c, 0, 10 * MS, START + 5 * MS);
    put(&c, SIM_MARK, 0, 0, 0, 0, START + 5 * MS);
    (void) engine_run(&w->machine, START + 100 * MS);
    assert_int_equal(c.ring->marks[0], START + 20 * MS);
    /* Put in after: the card was idle in between. */
    kernel(&c, 0, 10 * MS, START + 50 * MS);
    put(&c, SIM_MARK, 0, 0, 1, 0, START + 50 * MS);
    (void) engine_run(&w->machine, START + 200 * MS);
    assert_int_equal(c.ring->marks[1], START + 110 * MS); /* the past is over by then */
}

static void two_processes_take_turns(void **state) {
    struct world *w = *state;
    struct client a = connect_to(w), b = connect_to(w);
    kernel(&a, 0, 1000 * MS, START);
    for (int i = 0; i < 20; i++)
        kernel(&b, 0, 1 * MS, START);
    put(&b, SIM_MARK, 0, 0, 0, 0, START);
    (void) engine_run(&w->machine, START + 100 * MS);
    assert_in_range(b.ring->marks[0], START + 38 * MS, START + 42 * MS);
    assert_int_equal(w->page[0].busy_ns, 100 * MS);
    assert_int_equal(a.session->channel[0]->meter.total, 80 * MS);
    assert_int_equal(b.session->channel[0]->meter.total, 20 * MS);
}

static void cards_are_independent(void **state) {
    struct world *w = *state;
    struct client a = connect_to(w);
    kernel(&a, 0, 10 * MS, START);
    put(&a, SIM_KERNEL, 1, 1, 0, 10 * MS, START);
    (void) engine_run(&w->machine, START + 10 * MS);
    assert_int_equal(a.ring->queue[0].done, 1);
    assert_int_equal(a.ring->queue[1].done, 1);
}

/* In MIG mode only the instances work. */
static void a_divided_card_takes_no_kernel(void **state) {
    struct world *w = *state;
    struct client c = connect_to(w);
    struct sim_division division = {0};
    w->machine.gpu[0].division = &division;
    kernel(&c, 0, 10 * MS, START);
    put(&c, SIM_KERNEL, 1, 1, 0, 10 * MS, START);
    (void) engine_run(&w->machine, START);
    (void) engine_run(&w->machine, START + 20 * MS);
    assert_int_equal(w->page[0].busy_ns, 0);
    assert_int_equal(w->page[1].busy_ns, 10 * MS);
    w->machine.gpu[0].division = NULL;
}

static void a_wait_is_for_another_queue(void **state) {
    struct world *w = *state;
    struct client c = connect_to(w);
    put(&c, SIM_WAIT, 0, 1, 0, 1, START);
    kernel(&c, 1, 5 * MS, START);
    put(&c, SIM_MARK, 0, 1, 0, 0, START);
    kernel(&c, 0, 10 * MS, START);
    (void) engine_run(&w->machine, START + 9 * MS);
    assert_int_equal(c.ring->queue[1].done, 0);
    (void) engine_run(&w->machine, START + 100 * MS);
    assert_int_equal(c.ring->queue[1].done, 3);
    assert_int_equal(c.ring->marks[0], START + 15 * MS);
}

static void a_hold_is_for_a_release(void **state) {
    struct world *w = *state;
    struct client c = connect_to(w);
    put(&c, SIM_HOLD, 0, 0, 0, 0, START);
    put(&c, SIM_HOLD, 0, 0, 0, 0, START);
    kernel(&c, 0, MS, START);
    (void) engine_run(&w->machine, START + MS);
    assert_int_equal(c.ring->queue[0].done, 0);
    c.ring->queue[0].released = 1;
    (void) engine_run(&w->machine, START + 2 * MS);
    assert_int_equal(c.ring->queue[0].done, 1);
    c.ring->queue[0].released = 2;
    (void) engine_run(&w->machine, START + 3 * MS);
    (void) engine_run(&w->machine, START + 5 * MS);
    assert_int_equal(c.ring->queue[0].done, 3);
}

static void a_full_ring_is_taken_as_it_drains(void **state) {
    struct world *w = *state;
    struct client c = connect_to(w);
    for (uint32_t i = 0; i < SIM_RING_SIZE; i++)
        kernel(&c, 0, 1000, START);
    (void) engine_run(&w->machine, START);
    assert_int_equal(c.ring->head, SIM_RING_SIZE);
    for (uint32_t i = 0; i < SIM_RING_SIZE; i++)
        kernel(&c, 1, 1000, START);
    (void) engine_run(&w->machine, START); /* nothing completed: no more is taken */
    assert_int_equal(c.ring->head, SIM_RING_SIZE);
    for (uint64_t t = START; t < START + 20 * MS; t += MS)
        (void) engine_run(&w->machine, t);
    assert_int_equal(c.ring->queue[0].done, SIM_RING_SIZE);
    assert_int_equal(c.ring->queue[1].done, SIM_RING_SIZE);
}

static void a_process_that_ends_leaves_the_card_to_others(void **state) {
    struct world *w = *state;
    struct client a = connect_to(w), b = connect_to(w);
    uint64_t bytes;
    kernel(&a, 0, 1000 * MS, START);
    kernel(&b, 0, 10 * MS, START);
    assert_int_equal(channel_context_create(session_channel(a.session, 0), &bytes), 0);
    assert_int_equal(channel_take(session_channel(a.session, 0), 1000), 0);
    (void) engine_run(&w->machine, START + 4 * MS);
    free(a.ring);
    a.session->ring = NULL;
    session_end(a.session);
    assert_int_equal(w->page[0].memory_used, 0);
    assert_int_equal(w->page[0].clients, 0);
    assert_int_equal(engine_run(&w->machine, START + 4 * MS), START + 12 * MS);
    (void) engine_run(&w->machine, START + 12 * MS);
    assert_int_equal(b.ring->queue[0].done, 1);
}

static void a_device_that_goes_lets_nobody_wait(void **state) {
    struct world *w = *state;
    struct client c = connect_to(w);
    kernel(&c, 0, 1000 * MS, START);
    kernel(&c, 0, 1000 * MS, START);
    put(&c, SIM_WAIT, 1, 1, 0, 2, START);
    (void) engine_run(&w->machine, START);
    session_detach(c.session, 0);
    (void) engine_run(&w->machine, START);
    assert_int_equal(c.ring->queue[0].done, 2);
    assert_int_equal(c.ring->queue[1].done, 1);
}

static void memory_is_counted_to_the_byte(void **state) {
    struct world *w = *state;
    struct client a = connect_to(w), b = connect_to(w);
    struct sim_channel *ca = session_channel(a.session, 0), *cb = session_channel(b.session, 0);
    uint64_t total = w->page[0].memory_total;
    assert_int_equal(channel_take(ca, total - 1), 0);
    assert_int_equal(channel_take(cb, 2), -ENOMEM);
    assert_int_equal(channel_take(cb, UINT64_MAX), -ENOMEM);
    assert_int_equal(channel_take(cb, 1), 0);
    channel_give(cb, total); /* no more than it has */
    assert_int_equal(w->page[0].memory_used, total - 1);
    assert_int_equal(channel_context_destroy(cb), -EINVAL);
}

static uint32_t percent_at(struct meter *m, uint64_t now) {
    return meter_percent(m, now, meter_edge(m, now));
}

static void the_meter_shows_whole_periods(void **state) {
    (void) state;
    struct meter m = {.period_ns = 500 * MS};
    meter_add(&m, START, START + 250 * MS);
    assert_int_equal(percent_at(&m, START + 499 * MS), 0); /* the period is not over */
    assert_int_equal(percent_at(&m, START + 500 * MS), 50);
    assert_int_equal(percent_at(&m, START + 999 * MS), 50);
    assert_int_equal(percent_at(&m, START + 1000 * MS), 0);
    meter_add(&m, START + 10000 * MS, START + 30100 * MS);
    assert_int_equal(percent_at(&m, START + 30100 * MS), 100);
    assert_int_equal(percent_at(&m, START + 30500 * MS), 20);
    /* What is past stays to be asked for, as far back as there are periods. */
    assert_int_equal(meter_percent(&m, START + 30500 * MS, START + 20000 * MS), 100);
    assert_int_equal(meter_percent(&m, START + 30500 * MS, START + 500 * MS), 0);
    assert_int_equal(m.total, 20350 * MS);
}

static void going_from_one_process_to_another_costs(void **state) {
    struct world *w = *state;
    struct client a = connect_to(w), b = connect_to(w);
    w->machine.gpu[0].slice_ns = 10 * MS;
    w->machine.gpu[0].switch_ns = MS;
    kernel(&a, 0, 20 * MS, START);
    kernel(&b, 0, 20 * MS, START);
    put(&a, SIM_MARK, 0, 0, 0, 0, START);
    put(&b, SIM_MARK, 0, 0, 0, 0, START);
    (void) engine_run(&w->machine, START + 200 * MS);
    /* Four slices of 10 ms, and three times from one to the other. */
    uint64_t first = a.ring->marks[0] < b.ring->marks[0] ? a.ring->marks[0] : b.ring->marks[0];
    uint64_t second = a.ring->marks[0] + b.ring->marks[0] - first;
    assert_int_equal(first, START + 32 * MS);
    assert_int_equal(second, START + 43 * MS);
    assert_int_equal(w->page[0].busy_ns, 43 * MS);
    assert_int_equal(w->machine.gpu[0].switching, 3 * MS);
    assert_int_equal(a.session->channel[0]->meter.total, 20 * MS);
    /* The same process again: its context is still there. */
    struct client *last = a.ring->marks[0] > b.ring->marks[0] ? &a : &b;
    kernel(last, 0, MS, START + 300 * MS);
    (void) engine_run(&w->machine, START + 400 * MS);
    assert_int_equal(w->page[0].busy_ns, 44 * MS);
}

static void a_broken_process_waits_for_nothing(void **state) {
    struct world *w = *state;
    struct client a = connect_to(w), b = connect_to(w);
    uint64_t bytes;
    assert_int_equal(channel_context_create(session_channel(a.session, 0), &bytes), 0);
    assert_int_equal(channel_context_create(session_channel(b.session, 0), &bytes), 0);
    kernel(&a, 0, 1000 * MS, START);
    kernel(&b, 0, 10 * MS, START);
    (void) engine_run(&w->machine, START + MS);
    session_break(a.session, 0, 700, false);
    assert_int_equal(a.ring->queue[0].done, 1);
    assert_int_equal(a.ring->broken[0], 700);
    assert_int_equal(b.ring->broken[0], 0);
    kernel(&a, 0, 1000 * MS, START + 2 * MS);
    (void) engine_run(&w->machine, START + 20 * MS);
    assert_int_equal(a.ring->queue[0].done, 2);
    assert_int_equal(b.ring->queue[0].done, 1);
    assert_int_equal(w->page[0].memory_used, 2 * bytes);
    session_break(b.session, 0, 46, true); /* the card is gone, and what was on it */
    assert_int_equal(w->page[0].memory_used, bytes);
    assert_int_equal(w->page[0].clients, 1);
}

static void uuids_are_stable_and_differ(void **state) {
    (void) state;
    struct sim_page a = {0}, b = {0}, c = {0}, d = {0};
    machine_describe(&a, 0, model_find("t4"), "host");
    machine_describe(&b, 0, model_find("Tesla T4"), "host");
    machine_describe(&c, 1, model_find("T4"), "host");
    machine_describe(&d, 0, model_find("T4"), "another");
    assert_string_equal(a.uuid, b.uuid);
    assert_string_not_equal(a.uuid, c.uuid);
    assert_string_not_equal(a.uuid, d.uuid);
    assert_null(model_find("T5"));
}

/* At the turn of a second, where a clock that is read to the nanosecond is ahead of time(2). */
static void a_licence_that_has_expired_has_done_so_for_every_clock(void **state) {
    (void) state;
    struct sim_page page = {0};
    time_t begin = time(NULL);
    while ((time_t) (clock_ns(CLOCK_REALTIME) / 1000000000) == begin)
        ;
    machine_license(&page, SIM_LICENCE_EXPIRED, daemon_wall_s());
    assert_in_range(page.licence_end, begin, time(NULL));
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(one_kernel_ends_when_it_is_due),
        TEST(work_submitted_meanwhile_loses_no_time),
        TEST(two_processes_take_turns),
        TEST(cards_are_independent),
        TEST(a_divided_card_takes_no_kernel),
        TEST(a_wait_is_for_another_queue),
        TEST(a_hold_is_for_a_release),
        TEST(a_full_ring_is_taken_as_it_drains),
        TEST(a_process_that_ends_leaves_the_card_to_others),
        TEST(a_device_that_goes_lets_nobody_wait),
        TEST(memory_is_counted_to_the_byte),
        TEST(going_from_one_process_to_another_costs),
        TEST(a_broken_process_waits_for_nothing),
        cmocka_unit_test(the_meter_shows_whole_periods),
        cmocka_unit_test(uuids_are_stable_and_differ),
        cmocka_unit_test(a_licence_that_has_expired_has_done_so_for_every_clock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
