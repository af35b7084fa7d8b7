/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "wire/grpc.h"

/* ---- deframing ---- */

static void takes_messages_in_any_pieces(void **state) {
    static const uint8_t stream[] = "\0\0\0\0\3abc\0\0\0\0\0\0\0\0\0\5hello";
    static const char *const want[] = {"abc", "", "hello"};
    (void) state;
    for (size_t piece = 1; piece <= sizeof(stream); piece++) {
        struct grpc_deframer d;
        size_t n = 0;
        grpc_deframer_init(&d, 100);
        for (size_t at = 0; at < sizeof(stream) - 1;) {
            size_t size = sizeof(stream) - 1 - at, used = 0;
            int r = grpc_deframer_feed(&d, stream + at, size < piece ? size : piece, &used);
            assert_in_range(r, 0, 1);
            assert_in_range(used, 1, piece);
            at += used;
            if (r == 0) {
                assert_false(grpc_deframer_idle(&d));
                continue;
            }
            assert_true(grpc_deframer_idle(&d));
            assert_int_equal(d.want, strlen(want[n]));
            if (d.want > 0)
                assert_memory_equal(d.message, want[n], d.want);
            n++;
        }
        assert_int_equal(n, 3);
        grpc_deframer_done(&d);
    }
}

static int feed_once(size_t max, const char *bytes, size_t size, size_t *ret_capacity) {
    struct grpc_deframer d;
    size_t used;
    grpc_deframer_init(&d, max);
    int r = grpc_deframer_feed(&d, (const uint8_t *) bytes, size, &used);
    if (ret_capacity)
        *ret_capacity = d.capacity;
    grpc_deframer_done(&d);
    return r;
}

static void refuses_bad_frames(void **state) {
    size_t capacity;
    (void) state;
    assert_int_equal(feed_once(100, "\1\0\0\0\0", 5, NULL), -EOPNOTSUPP);
    assert_int_equal(feed_once(100, "\2\0\0\0\0", 5, NULL), -EPROTO);
    assert_int_equal(feed_once(100, "\xff", 1, NULL), 0);
    assert_int_equal(feed_once(100, "\0\0\0\0\x65", 5, NULL), -EMSGSIZE);
    assert_int_equal(feed_once(100, "\0\0\0\0\x64", 5, NULL), 0);
    assert_int_equal(feed_once(100, "\0\xff\xff\xff\xff", 5, NULL), -EMSGSIZE);
    /* A claim of 4 GiB costs nothing until the bytes come. */
    assert_int_equal(feed_once(UINT32_MAX,
                               "\0\xff\xff\xff\xff"
                               "abc",
                               8, &capacity),
                     0);
    assert_in_range(capacity, 3, 65536);
}

static void grows_to_large_messages(void **state) {
    enum { SIZE = 3000000 };
    struct grpc_deframer d;
    uint8_t prefix[GRPC_PREFIX_SIZE];
    size_t used = 0;
    (void) state;
    _cleanup_free_ uint8_t *block = malloc(1000);
    assert_non_null(block);
    memset(block, 'x', 1000);
    grpc_deframer_init(&d, SIZE);
    grpc_put_prefix(prefix, SIZE);
    assert_int_equal(grpc_deframer_feed(&d, prefix, sizeof(prefix), &used), 0);
    for (size_t i = 0; i < SIZE / 1000; i++)
        assert_int_equal(grpc_deframer_feed(&d, block, 1000, &used), i == SIZE / 1000 - 1);
    assert_int_equal(d.want, SIZE);
    assert_in_range(d.capacity, SIZE, SIZE);
    assert_int_equal(d.message[SIZE - 1], 'x');
    grpc_deframer_done(&d);
}

/* ---- texts ---- */

static void escapes_and_unescapes(void **state) {
    static const struct {
        const char *plain, *escaped;
    } rows[] = {
        {"", ""},
        {"plain text: ~!", "plain text: ~!"},
        {"100%", "100%25"},
        {"a\nb\x7f", "a%0Ab%7F"},
        {"\xc3\xa4", "%C3%A4"},
    };
    char out[64];
    (void) state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(grpc_message_escape(rows[i].plain, out, sizeof(out)),
                         strlen(rows[i].escaped));
        assert_string_equal(out, rows[i].escaped);
        assert_int_equal(
            grpc_message_unescape(rows[i].escaped, strlen(rows[i].escaped), out, sizeof(out)),
            strlen(rows[i].plain));
        assert_string_equal(out, rows[i].plain);
    }
    (void) grpc_message_unescape("%c3%A4%", 7, out, sizeof(out));
    assert_string_equal(out, "\xc3\xa4%");
    (void) grpc_message_unescape("%4%zz%00", 8, out, sizeof(out));
    assert_string_equal(out, "%4%zz ");
}

static void cuts_texts_to_fit(void **state) {
    char out[8];
    (void) state;
    assert_int_equal(grpc_message_escape("abcdef\n", out, sizeof(out)), 6); /* no half escape */
    assert_string_equal(out, "abcdef");
    assert_int_equal(grpc_message_unescape("0123456789", 10, out, sizeof(out)), 7);
    assert_string_equal(out, "0123456");
    assert_int_equal(grpc_message_escape("x", out, 1), 0);
    assert_string_equal(out, "");
}

static void reads_timeouts(void **state) {
    static const struct {
        const char *text;
        uint64_t ms;
    } good[] = {
        {"1H", 3600000},      {"2M", 120000}, {"30S", 30000}, {"99999999H", 359999996400000},
        {"250m", 250},        {"1500u", 2},   {"1n", 1},      {"0n", 0},
        {"29999999u", 30000},
    };
    static const char *const bad[] = {"", "1", "S", "123456789S", "1s", "-1S", "1 S", "0x1S"};
    uint64_t ms;
    char out[16];
    (void) state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_int_equal(grpc_timeout_parse(good[i].text, strlen(good[i].text), &ms), 0);
        assert_int_equal(ms, good[i].ms);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(grpc_timeout_parse(bad[i], strlen(bad[i]), &ms), -EINVAL);
    grpc_timeout_format(10000, out, sizeof(out));
    assert_string_equal(out, "10000m");
    grpc_timeout_format(100000000, out, sizeof(out));
    assert_string_equal(out, "100000S");
    grpc_timeout_format(UINT64_MAX, out, sizeof(out));
    assert_string_equal(out, "99999999S");
}

static void names_statuses(void **state) {
    (void) state;
    assert_string_equal(grpc_status_name(GRPC_OK), "OK");
    assert_string_equal(grpc_status_name(GRPC_UNAUTHENTICATED), "Unauthenticated");
    assert_string_equal(grpc_status_name(17), "Unknown");
    assert_string_equal(grpc_status_name(-1), "Unknown");
    assert_int_equal(grpc_status_of_http(404), GRPC_UNIMPLEMENTED);
    assert_int_equal(grpc_status_of_http(503), GRPC_UNAVAILABLE);
    assert_int_equal(grpc_status_of_http(0), GRPC_UNKNOWN);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_messages_in_any_pieces),
        cmocka_unit_test(refuses_bad_frames),
        cmocka_unit_test(grows_to_large_messages),
        cmocka_unit_test(escapes_and_unescapes),
        cmocka_unit_test(cuts_texts_to_fit),
        cmocka_unit_test(reads_timeouts),
        cmocka_unit_test(names_statuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
