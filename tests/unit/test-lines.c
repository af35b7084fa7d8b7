/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "wire/lines.h"

struct seen {
    char text[256];
    int answer;
};

static int on_line(const char *line, size_t size, void *user) {
    struct seen *seen = user;
    size_t len = strlen(seen->text);
    assert_true(len + size + 2 < sizeof(seen->text));
    memcpy(seen->text + len, line, size);
    memcpy(seen->text + len + size, "|", 2);
    return seen->answer;
}

static void cuts_lines_in_any_pieces(void **state) {
    static const char text[] = "one\n\nthree\nfour, which is longer\nrest";
    (void) state;
    for (size_t piece = 1; piece <= sizeof(text); piece++) {
        struct line_splitter s;
        struct seen seen = {0};
        line_splitter_init(&s, 100);
        for (size_t at = 0; at < sizeof(text) - 1; at += piece) {
            size_t left = sizeof(text) - 1 - at;
            assert_int_equal(
                line_splitter_feed(&s, text + at, left < piece ? left : piece, on_line, &seen), 0);
        }
        assert_string_equal(seen.text, "one||three|four, which is longer|");
        assert_int_equal(line_splitter_feed(&s, "\n", 1, on_line, &seen), 0);
        assert_string_equal(seen.text, "one||three|four, which is longer|rest|");
        line_splitter_done(&s);
    }
}

static void refuses_long_lines(void **state) {
    struct line_splitter s;
    struct seen seen = {0};
    (void) state;
    line_splitter_init(&s, 4);
    assert_int_equal(line_splitter_feed(&s, "1234\n", 5, on_line, &seen), 0);
    assert_int_equal(line_splitter_feed(&s, "12345\n", 6, on_line, &seen), -EMSGSIZE);
    assert_int_equal(line_splitter_feed(&s, "123", 3, on_line, &seen), 0);
    assert_int_equal(line_splitter_feed(&s, "45", 2, on_line, &seen), -EMSGSIZE);
    line_splitter_reset(&s);
    assert_int_equal(line_splitter_feed(&s, "ok\n", 3, on_line, &seen), 0);
    assert_string_equal(seen.text, "1234|ok|");
    line_splitter_done(&s);
}

static void stops_when_told(void **state) {
    struct line_splitter s;
    struct seen seen = {.answer = -ECANCELED};
    (void) state;
    line_splitter_init(&s, 100);
    assert_int_equal(line_splitter_feed(&s, "a\nb\n", 4, on_line, &seen), -ECANCELED);
    assert_string_equal(seen.text, "a|");
    line_splitter_done(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_lines_in_any_pieces),
        cmocka_unit_test(refuses_long_lines),
        cmocka_unit_test(stops_when_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
