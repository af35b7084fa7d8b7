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
    /* The server's clock was set. */
    (void) server_time_heard("Sun, 06 Nov 1994 07:49:37 GMT");
    assert_about(server_time(), FIRST_S - 3600);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_as_it_is_heard)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
