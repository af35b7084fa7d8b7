/* SPDX-License-Identifier: Apache-2.0 */
/* Times of the last hour: by clocks that begin a day or are set back, and in steps. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "cli/top/times.h"

#define BERLIN "CET-1CEST,M3.5.0,M10.5.0/3"
#define MIDNIGHT 1798761600 /* 2027-01-01 00:00 UTC */
#define SET_BACK 1792890000 /* 2026-10-25 01:00 UTC: 03:00 becomes 02:00 in Berlin */

static void in_zone(const char *zone) {
    assert_int_equal(setenv("TZ", zone, 1), 0);
    tzset();
}

static time_t parsed(const char *text, time_t now) {
    struct err err;
    time_t at = 0;

    assert_int_equal(times_parse(text, now, &at, &err), 0);
    return at;
}

static const char *refused(const char *text, time_t now) {
    static struct err err;
    time_t at;

    assert_int_equal(times_parse(text, now, &at, &err), -EINVAL);
    return err.text;
}

static void test_a_clock(void **state) {
    char text[TIMES_CLOCK_SIZE];

    (void) state;
    in_zone("IST-5:30");
    assert_string_equal(times_clock(MIDNIGHT + 5, true, text), "05:30:05");
    assert_string_equal(times_clock(MIDNIGHT + 5, false, text), "05:30");
    assert_int_equal(parsed("05:00", MIDNIGHT), MIDNIGHT - 1800);
    assert_int_equal(parsed("5:00:07", MIDNIGHT), MIDNIGHT - 1793);
}

static void test_after_midnight(void **state) {
    (void) state;
    in_zone("UTC0");
    assert_int_equal(parsed("23:50", MIDNIGHT + 1200), MIDNIGHT - 600);
    assert_int_equal(parsed("00:00", MIDNIGHT + 1200), MIDNIGHT);
}

/* Of an hour that clocks show twice it is the later one, unless that is still to come. */
static void test_clocks_set_back(void **state) {
    (void) state;
    in_zone(BERLIN);
    assert_int_equal(parsed("02:10", SET_BACK + 1200), SET_BACK + 600);
    assert_int_equal(parsed("02:30", SET_BACK + 1200), SET_BACK - 1800);
}

static void test_only_the_hour(void **state) {
    (void) state;
    in_zone("UTC0");
    time_t now = MIDNIGHT + 14 * 3600 + 5;
    assert_int_equal(parsed("13:00:05", now), now - 3600);
    assert_int_equal(parsed("13:59:55", now), now - 10);
    assert_string_equal(refused("13:00:04", now),
                        "--at 13:00:04 is not in the last hour: agents have 13:00:05 to 13:59:55");
    (void) refused("13:59:56", now); /* its step has not ended */
    (void) refused("14:01", now);
}

static void test_no_time(void **state) {
    static const char *const texts[] = {
        "", "14", "14:", "24:00", "12:60", "14:05:", "14:05 ", "x", "14:05:20Z", "-1:00", "2:05pm"};

    (void) state;
    in_zone("UTC0");
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        assert_non_null(strstr(refused(texts[i], MIDNIGHT), "takes a time such as 14:05"));
}

static void test_steps(void **state) {
    const time_t now = MIDNIGHT + 7, read = MIDNIGHT - 3, newest = MIDNIGHT - 20;

    (void) state;
    assert_int_equal(times_step(0, -10, read, now), newest);
    assert_int_equal(times_step(0, -300, read, now), newest - 290);
    assert_int_equal(times_step(newest, -10, read, now), newest - 10);
    assert_int_equal(times_step(newest - 10, 10, read, now), newest);
    assert_int_equal(times_step(newest, 10, read, now), 0);
    assert_int_equal(times_step(newest - 10, 300, read, now), 0);
    assert_int_equal(times_step(0, 10, read, now), 0);
    assert_int_equal(times_step(0, -10, 0, now), MIDNIGHT - 10); /* no history was read yet */
    /* The oldest: an hour before now, or just after. */
    assert_int_equal(times_step(MIDNIGHT - 3500, -300, read, now), MIDNIGHT - 3590);
    assert_int_equal(times_step(MIDNIGHT - 4000, -10, read, now), MIDNIGHT - 3590);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_clock),         cmocka_unit_test(test_after_midnight),
        cmocka_unit_test(test_clocks_set_back), cmocka_unit_test(test_only_the_hour),
        cmocka_unit_test(test_no_time),         cmocka_unit_test(test_steps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
