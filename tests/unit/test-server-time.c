/* SPDX-License-Identifier: Apache-2.0 */

/* The time that the answers of a server tell. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>

#include "base/server_time.h"

#define FIRST "Sun, 06 Nov 1994 08:49:37 GMT"
#define FIRST_S INT64_C(784111777)

static void assert_about(int64_t is, int64_t begin) {
    assert_in_range(is - begin + 1, 0, 2); /* of two clocks one may be in the next second */
}

/* In place of waiting. */
static time_t later;

int __real_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret) {
    int r = __real_clock_gettime(clock, ret);
    if (clock == CLOCK_BOOTTIME)
        ret->tv_sec += later;
    return r;
}

static void hear(int64_t told) {
    char date[64];
    time_t t = (time_t) told;
    struct tm tm;
    assert_non_null(gmtime_r(&t, &tm));
    assert_true(strftime(date, sizeof(date), "%a, %d %b %Y %H:%M:%S GMT", &tm) > 0);
    (void) server_time_heard(date);
}

static int forget(void **state) {
    (void) state;
    server_time_forget();
    return 0;
}

static void test_as_it_is_heard(void **state) {
    (void) state;
    static const char *const none[] = {"", "yesterday", "Sun, 06 Nov 1994 08:49:37 CET", FIRST "!",
                                       "1994-11-06T08:49:37Z"};
    int64_t now = (int64_t) time(NULL);
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
        assert_int_equal(server_time_heard(none[i]), 0);
    assert_about(server_time(), now);
    assert_int_equal(server_time_ahead(), 0);

    assert_about(server_time_heard(FIRST), now - FIRST_S);
    assert_about(server_time(), FIRST_S);
    assert_about(server_time_ahead(), now - FIRST_S);
    time_t same, told = server_time_as_time(&same);
    assert_int_equal(told, same);
    assert_about((int64_t) server_time_as_time(NULL), FIRST_S);

    /* An answer that was on its way for longer changes nothing. */
    (void) server_time_heard("Sun, 06 Nov 1994 08:49:36 GMT");
    assert_about(server_time(), FIRST_S);
    (void) server_time_heard("Sun, 06 Nov 1994 08:49:39 GMT");
    assert_about(server_time(), FIRST_S + 2);
}

/* The clock of the server was set. */
static void test_another_time_counts_when_it_is_confirmed(void **state) {
    (void) state;
    hear(FIRST_S);
    hear(FIRST_S - 3600);
    assert_about(server_time(), FIRST_S);
    later += SERVER_TIME_AGREED_S - 2;
    hear(FIRST_S - 3600 + SERVER_TIME_AGREED_S - 2);
    assert_about(server_time(), FIRST_S + SERVER_TIME_AGREED_S - 2);
    later += 3;
    hear(FIRST_S - 3600 + SERVER_TIME_AGREED_S + 1);
    assert_about(server_time(), FIRST_S - 3600 + SERVER_TIME_AGREED_S + 1);
}

/* Of two servers one has a wrong clock. */
static void test_one_of_several_servers_is_wrong(void **state) {
    (void) state;
    hear(FIRST_S);
    for (int64_t s = 0; s < 60; s += 4) {
        hear(FIRST_S + s - 86400);
        hear(FIRST_S + s);
        assert_about(server_time(), FIRST_S + s);
        later += 4;
    }
}

/* Each tells another time: none is confirmed. */
static void test_times_that_contradict_each_other(void **state) {
    (void) state;
    hear(FIRST_S);
    for (int64_t s = 0; s < 60; s += 4) {
        hear(FIRST_S + s + 3600 * (1 + s));
        assert_about(server_time(), FIRST_S + s);
        later += 4;
    }
}

static void test_forgotten(void **state) {
    (void) state;
    hear(FIRST_S);
    hear(FIRST_S + 3600);
    server_time_forget();
    assert_about(server_time(), (int64_t) time(NULL));
    hear(FIRST_S + 7200);
    assert_about(server_time(), FIRST_S + 7200);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_as_it_is_heard, forget),
        cmocka_unit_test_teardown(test_another_time_counts_when_it_is_confirmed, forget),
        cmocka_unit_test_teardown(test_one_of_several_servers_is_wrong, forget),
        cmocka_unit_test_teardown(test_times_that_contradict_each_other, forget),
        cmocka_unit_test_teardown(test_forgotten, forget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
