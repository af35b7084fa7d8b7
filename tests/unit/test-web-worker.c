/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "base/clock.h"
#include "cli/cluster/agent_token.h"
#include "cli/cluster/api.h"
#include "cli/web/reading.h"
#include "cli/web/worker.h"

#define PATIENCE_MS 30000
#define BEGINS 4 /* readings whose begin is noted */

/* The test is the readings, and the clocks of what they and others take of a processor. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static unsigned cost, cost_of_others; /* milliseconds of a reading, and meanwhile */
static atomic_uint cpu;
static _Thread_local unsigned own_cpu;
static struct readings {
    struct journal *journal; /* of the worker, which names it */
    unsigned n;
    uint64_t begun[BEGINS];
} readings[2];

int __real_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret) {
    unsigned ms = clock == CLOCK_THREAD_CPUTIME_ID ? own_cpu : cpu;
    if (clock != CLOCK_THREAD_CPUTIME_ID && clock != CLOCK_PROCESS_CPUTIME_ID)
        return __real_clock_gettime(clock, ret);
    *ret = (struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    return 0;
}

int reading_run(const struct reading *reading) {
    struct readings *of = reading->journal == readings[0].journal ? &readings[0] : &readings[1];
    uint64_t begun = clock_ms(CLOCK_MONOTONIC);

    own_cpu += cost;
    cpu += cost + cost_of_others;
    (void) pthread_mutex_lock(&lock);
    if (of->n < BEGINS)
        of->begun[of->n] = begun;
    of->n++;
    (void) pthread_cond_broadcast(&changed);
    (void) pthread_mutex_unlock(&lock);
    return 0;
}

void api_cancel_by(int fd) {
    (void) fd;
}

void api_close(void) {
}

void agent_token_forget(void) {
}

static void on_news(void *userdata) {
    (void) userdata;
}

/* Until there are so many more; false: not in time. */
static bool await_more(const struct readings *of, unsigned more) {
    uint64_t end = clock_ms(CLOCK_MONOTONIC) + PATIENCE_MS;
    struct timespec at = {.tv_sec = (time_t) (end / 1000)};
    int r = 0;

    (void) pthread_mutex_lock(&lock);
    const unsigned n = of->n + more;
    while (of->n < n && r == 0)
        r = pthread_cond_timedwait(&changed, &lock, &at);
    bool are_there = of->n >= n;
    (void) pthread_mutex_unlock(&lock);
    return are_there;
}

static struct worker *start(size_t which) {
    static const struct worker_source source = {.system = "aliquot-system", .rest_ms = 1};
    static char names[2];
    struct worker *worker;
    struct err err;

    readings[which] = (struct readings){.journal = (struct journal *) (void *) &names[which]};
    assert_int_equal(worker_start(&source, readings[which].journal, on_news, NULL, &worker, &err),
                     0);
    worker_viewers(worker, 1);
    return worker;
}

static void test_rest(void **state) {
    static const struct {
        uint64_t took, cpu;
        unsigned readers;
        uint64_t least, rest;
    } rows[] = {
        {10, 1, 1, 2000, 2000},      /* it costs little */
        {3000, 1, 1, 2000, 3000},    /* the API server is slow */
        {1000, 500, 1, 2000, 11000}, /* a 24th of a processor */
        {1000, 500, 3, 2000, 35000}, /* of three, each a third of that */
        {1000, 500, 32, 2000, 60000},    {1000, 1000000, 32, 2000, 60000},
        {90000, 60000, 32, 2000, 90000}, {10, 1000, 32, 3600000, 3600000}, /* as --interval says */
    };
    (void) state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(worker_rest(rows[i].took, rows[i].cpu, rows[i].readers, rows[i].least),
                         rows[i].rest);
}

/* Of other threads, which anyone can keep busy. */
static void test_what_others_take_delays_nothing(void **state) {
    (void) state;
    cost = 0;
    cost_of_others = 10000;
    struct worker *worker = start(0);
    assert_true(await_more(&readings[0], 2));
    worker_stop(worker);
    cost_of_others = 0;
}

static void test_what_a_reading_takes_delays_the_next(void **state) {
    (void) state;
    cost = 10;
    struct worker *worker = start(0);
    assert_true(await_more(&readings[0], 3));
    worker_stop(worker);
    for (size_t i = 1; i < 3; i++)
        assert_true(readings[0].begun[i] - readings[0].begun[i - 1] >= cost * 24);
}

static void test_two_have_half_each(void **state) {
    (void) state;
    cost = 10;
    struct worker *first = start(0), *second = start(1);
    assert_true(await_more(&readings[0], 4) && await_more(&readings[1], 4));
    worker_stop(first);
    worker_stop(second);
    /* by their third readings both are there */
    for (size_t i = 0; i < 2; i++)
        assert_true(readings[i].begun[3] - readings[i].begun[2] >= cost * 48);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rest),
        cmocka_unit_test(test_what_others_take_delays_nothing),
        cmocka_unit_test(test_what_a_reading_takes_delays_the_next),
        cmocka_unit_test(test_two_have_half_each),
    };
    pthread_condattr_t attr;
    (void) pthread_condattr_init(&attr);
    (void) pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void) pthread_cond_init(&changed, &attr);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
