/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "cli/web/journal.h"
#include "fail-malloc.h"

static struct journal *j;

static int setup(void **state) {
    (void) state;
    j = journal_new(0);
    return j ? 0 : -1;
}

static int teardown(void **state) {
    (void) state;
    journal_free(j);
    return 0;
}

static void put(const char *key, const char *text) {
    assert_int_equal(journal_put(j, key, text), 0);
}

/* All that is new, read in pieces of so many bytes. */
static void expect(struct journal_reader *r, size_t piece, const char *text) {
    _cleanup_buf_ struct buf got = BUF_INIT(0);
    char part[256];
    size_t n;
    assert_true(piece <= sizeof(part));
    while ((n = journal_read(r, part, piece)) > 0) {
        assert_true(n <= piece);
        buf_append(&got, part, n);
    }
    assert_string_equal(buf_str(&got), text);
}

static void test_changes_in_their_order(void **state) {
    struct journal_reader *r = journal_reader_new(j);
    (void) state;
    expect(r, 100, "");
    put("a", "1");
    put("b", "2");
    expect(r, 100, "data: 1\ndata: 2\n\n");
    expect(r, 100, "");
    put("a", "1"); /* no change */
    expect(r, 100, "");
    put("b", "3");
    put("a", "4");
    put("b", "5"); /* the last one counts, once */
    for (size_t piece = 1; piece < 20; piece++) {
        struct journal_reader *late = journal_reader_new(j);
        expect(late, piece, "data: 4\ndata: 5\n\n");
        journal_reader_free(late);
    }
    expect(r, 1, "data: 4\ndata: 5\n\n");
    journal_reader_free(r);
}

/* A reader that is at an entry, or in the middle of its text, when it changes. */
static void test_changes_under_a_reader(void **state) {
    struct journal_reader *r = journal_reader_new(j);
    char part[8];
    (void) state;
    put("a", "1");
    put("b", "2");
    put("c", "3");
    assert_int_equal(journal_read(r, part, 7), 7); /* "data: 1" */
    put("a", "4");
    put("b", "5");
    expect(r, 100, "\ndata: 3\ndata: 4\ndata: 5\n\n");
    journal_reader_free(r);
}

static void test_what_is_gone(void **state) {
    struct journal_reader *r = journal_reader_new(j), *late;
    (void) state;
    put("x/a", "1");
    put("x/b\"", "2");
    put("y/c", "3");
    expect(r, 100, "data: 1\ndata: 2\ndata: 3\n\n");
    journal_begin(j, "x/");
    assert_false(journal_is_put(j, "x/a"));
    put("x/a", "1");
    assert_true(journal_is_put(j, "x/a"));
    journal_end(j, "x/");
    assert_int_equal(journal_keys(j), 3); /* the reader does not know yet */
    expect(r, 100, "data: {\"k\":\"x/b\\\"\",\"gone\":true}\n\n");
    journal_begin(j, "x/");
    put("x/a", "1");
    journal_end(j, "x/");
    assert_int_equal(journal_keys(j), 2);
    late = journal_reader_new(j);
    expect(late, 100, "data: 1\ndata: 3\n\n");
    expect(r, 100, "");
    journal_reader_free(late);
    journal_reader_free(r);
}

static void test_one_that_is_back(void **state) {
    struct journal_reader *r = journal_reader_new(j);
    (void) state;
    put("a", "1");
    journal_begin(j, "");
    journal_end(j, "");
    put("a", "1");
    expect(r, 100, "data: 1\n\n");
    journal_begin(j, "");
    put("a", "1");
    journal_end(j, "");
    assert_int_equal(journal_keys(j), 1);
    journal_reader_free(r);
}

/* One that begins while much is changing: the state comes when all else that there was has come. */
static void test_state_is_last(void **state) {
    struct journal_reader *r;
    char part[8];
    (void) state;
    put("a", "1");
    put("b", "2");
    put("state", "3");
    put("c", "4"); /* of a reading that is under way, as is the next line */
    put("a", "5");
    for (size_t piece = 1; piece < 40; piece++) {
        r = journal_reader_new(j);
        expect(r, piece, "data: 5\ndata: 2\ndata: 4\ndata: 3\n\n");
        expect(r, piece, "");
        journal_reader_free(r);
    }
    r = journal_reader_new(j);
    assert_int_equal(journal_read(r, part, 8), 8); /* "data: 5\n" */
    put("a", "6");
    put("b", "7"); /* as it is now, and then as a change */
    put("state", "8");
    expect(r, 100, "data: 7\ndata: 4\ndata: 8\ndata: 6\ndata: 7\ndata: 8\n\n");
    put("d", "9");
    expect(r, 100, "data: 9\n\n");
    journal_reader_free(r);
}

/* Keys that go while a reader has yet to come to them. */
static void test_what_goes_before_it_is_read(void **state) {
    struct journal_reader *r, *late;
    char part[8];
    (void) state;
    put("a", "1");
    put("b", "2");
    put("c", "3");
    put("state", "4");
    r = journal_reader_new(j);
    assert_int_equal(journal_read(r, part, 8), 8); /* "data: 1\n"; it is at b */
    journal_begin(j, "b");
    journal_end(j, "b");
    late = journal_reader_new(j);
    expect(late, 100, "data: 1\ndata: 3\ndata: 4\n\n");
    expect(r, 100, "data: 3\ndata: 4\ndata: {\"k\":\"b\",\"gone\":true}\n\n");
    put("d", "5");
    journal_reader_free(r);
    r = journal_reader_new(j); /* at a */
    journal_begin(j, "");
    journal_end(j, ""); /* all go, b for good */
    expect(r, 200,
           "data: {\"k\":\"a\",\"gone\":true}\ndata: {\"k\":\"c\",\"gone\":true}\n"
           "data: {\"k\":\"state\",\"gone\":true}\ndata: {\"k\":\"d\",\"gone\":true}\n\n");
    journal_reader_free(late);
    journal_reader_free(r);
}

/* Events end in time: a browser shows one when it has all of it. */
static void test_events_end(void **state) {
    struct journal_reader *r = journal_reader_new(j);
    char text[1001] = "", key[16];
    static char all[300000];
    size_t len = 0, n, longest = 0;
    (void) state;
    memset(text, 'x', sizeof(text) - 1);
    for (int i = 0; i < 200; i++) {
        (void) snprintf(key, sizeof(key), "%d", i);
        put(key, text);
    }
    while ((n = journal_read(r, all + len, 1000)) > 0)
        len += n;
    all[len] = '\0';
    for (char *at = all, *end; (end = strstr(at, "\n\n")); at = end + 2)
        longest = (size_t) (end - at) > longest ? (size_t) (end - at) : longest;
    assert_true(longest < 70000 && longest > 60000);
    assert_int_equal(strcmp(all + len - 2, "\n\n"), 0);
    journal_reader_free(r);
}

/* A long text is kept in a shorter form, and is the same for readers. */
static void test_long_texts(void **state) {
    struct journal_reader *r = journal_reader_new(j);
    char text[3][2001] = {"", "", ""}, expected[3 * 2010] = "";
    unsigned random = 1;
    (void) state;
    for (size_t i = 0; i + 1 < sizeof(text[0]); i++) {
        random = random * 1103515245 + 12345;
        text[0][i] = "abc"[i % 3];
        text[1][i] = (char) ('!' + (random >> 16) % 90); /* it hardly gets shorter */
        text[2][i] = i < 1000 ? 'x' : text[1][i];
    }
    for (int i = 0; i < 3; i++) {
        char key[2] = {(char) ('a' + i), '\0'};
        put(key, text[i]);
        put(key, text[i]);
        (void) strncat(expected, "data: ", sizeof(expected) - strlen(expected) - 1);
        (void) strncat(expected, text[i], sizeof(expected) - strlen(expected) - 1);
        (void) strncat(expected, "\n", sizeof(expected) - strlen(expected) - 1);
    }
    (void) strncat(expected, "\n", sizeof(expected) - strlen(expected) - 1);
    expect(r, 256, expected);
    text[0][1000] = 'X'; /* of the same length */
    put("a", text[0]);
    (void) snprintf(expected, sizeof(expected), "data: %s\n\n", text[0]);
    expect(r, 7, expected);
    journal_reader_free(r);
}

/* A reader that never reads: texts that change under it are not kept. */
static void test_slow_reader(void **state) {
    struct journal_reader *slow = journal_reader_new(j);
    char text[16];
    (void) state;
    put("first", "0");
    for (int i = 0; i < 100000; i++) {
        (void) snprintf(text, sizeof(text), "%d", i);
        put("a", text);
        if (i % 1000 == 0) {
            journal_begin(j, "gone");
            (void) snprintf(text, sizeof(text), "gone%d", i % 3000);
            put(text, "1");
            journal_end(j, "gone");
        }
    }
    assert_true(journal_keys(j) < 10);
    journal_reader_free(slow);
}

/* Whichever allocation fails: the key has its text, or what it had before. */
static void test_without_memory(void **state) {
    bool failed = true;
    (void) state;
    for (size_t n = 1; failed; n++) {
        journal_free(j);
        j = journal_new(0);
        fail_malloc_at(n);
        int result = journal_put(j, "k", "1");
        failed = fail_malloc_end();
        assert_true(result == 0 || (failed && result == -ENOMEM));
        struct journal_reader *r = journal_reader_new(j);
        expect(r, 100, result == 0 ? "data: 1\n\n" : "");
        journal_reader_free(r);
    }
    fail_malloc_at(1);
    int result = journal_put(j, "k", "2");
    assert_true(fail_malloc_end());
    assert_int_equal(result, -ENOMEM);
    struct journal_reader *r = journal_reader_new(j);
    expect(r, 100, "data: 1\n\n");
    journal_reader_free(r);
}

static void test_bound(void **state) {
    struct journal *small = journal_new(2000);
    char text[1000];
    (void) state;
    assert_non_null(small);
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    assert_int_equal(journal_put(small, "a", text), 0);
    text[0] = 'y';
    assert_int_equal(journal_put(small, "b", text), 0); /* it is kept deflated */
    size_t n = 0;
    for (char key = 'c'; key <= 'z'; key++) {
        int r = journal_put(small, (char[]){key, '\0'}, text);
        assert_true(r == 0 || r == -ENOSPC);
        n += r < 0;
    }
    assert_in_range(n, 10, 23);
    assert_int_equal(journal_refused(small), n);
    assert_int_equal(journal_refused(small), 0);
    assert_int_equal(journal_put(small, "state", text), 0); /* which says so */
    journal_begin(small, "");
    assert_int_equal(journal_put(small, "a", text), -ENOSPC); /* what it was is gone, not old */
    journal_end(small, "");
    assert_int_equal(journal_put(small, "c", text), 0); /* there is room again */
    journal_free(small);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_changes_in_their_order),
        TEST(test_changes_under_a_reader),
        TEST(test_what_is_gone),
        TEST(test_one_that_is_back),
        TEST(test_state_is_last),
        TEST(test_what_goes_before_it_is_read),
        TEST(test_events_end),
        TEST(test_long_texts),
        TEST(test_slow_reader),
        TEST(test_without_memory),
        TEST(test_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
