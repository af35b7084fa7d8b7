/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "wire/http_answer.h"

#define BODY_MAX 64

/* The answer in pieces of so many bytes, and the end of the connection if `ends`. */
static int read_pieces(struct http_answer *a, const char *text, size_t piece, bool ends) {
    size_t len = strlen(text);
    int r = 0;

    http_answer_init(a, BODY_MAX);
    for (size_t at = 0; at < len && r == 0; at += piece)
        r = http_answer_feed(a, text + at, len - at < piece ? len - at : piece, NULL);
    return r == 0 && ends ? http_answer_end(a, NULL) : r;
}

static void check(const char *text, bool ends, int status, const char *body, bool keeps) {
    for (size_t piece = 1; piece <= strlen(text); piece++) {
        struct http_answer a;
        assert_int_equal(read_pieces(&a, text, piece, ends), 0);
        assert_int_equal(a.part, HTTP_ANSWER_COMPLETE);
        assert_int_equal(a.status, status);
        assert_string_equal(buf_str(&a.body), body);
        assert_int_equal(a.keeps, keeps);
        http_answer_done(&a);
    }
}

static void test_bodies(void **state) {
    (void) state;
    check("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", false, 200, "hello", true);
    check("HTTP/1.1 404 Not Found\r\ncontent-length:0 \r\nCONNECTION: x, Close\r\n\r\n", false, 404,
          "", false);
    check(
        "HTTP/1.1 200\r\nTransfer-Encoding: Chunked\r\n\r\n5;x\r\nhello\r\nA\r\n0123456789\r\n0\r\n"
        "T: x\r\n\r\n",
        false, 200, "hello0123456789", true);
    check("HTTP/1.1 500 No\r\n\r\nto the end", true, 500, "to the end", false);
    check("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", false, 204, "", true);
    check("HTTP/1.0 200 OK\nContent-Length: 1\n\nx", false, 200, "x", false);
}

static void test_retry_after(void **state) {
    static const struct {
        const char *value;
        uint32_t seconds;
    } rows[] = {{"1", 1},    {" 20 ", 20}, {"3600", 3600},
                {"3601", 0}, {"-1", 0},    {"Fri, 31 Dec 2027 23:59:59 GMT", 0},
                {"", 0}};
    (void) state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct http_answer a;
        char text[256];
        (void) snprintf(text, sizeof(text),
                        "HTTP/1.1 429 No\r\nRetry-After: %s\r\nContent-Length: 0\r\n\r\n",
                        rows[i].value);
        assert_int_equal(read_pieces(&a, text, 3, false), 0);
        assert_int_equal(a.status, 429);
        assert_int_equal(a.retry_s, rows[i].seconds);
        http_answer_done(&a);
    }
}

static void test_date(void **state) {
    static const struct {
        const char *field, *date;
    } rows[] = {
        {"date:  Sun, 06 Nov 1994 08:49:37 GMT \r\n", "Sun, 06 Nov 1994 08:49:37 GMT"},
        {"Date: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"},
        {"", ""}};
    (void) state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct http_answer a;
        char text[256];
        (void) snprintf(text, sizeof(text), "HTTP/1.1 200 OK\r\n%sContent-Length: 0\r\n\r\n",
                        rows[i].field);
        assert_int_equal(read_pieces(&a, text, 3, false), 0);
        assert_string_equal(a.date, rows[i].date);
        http_answer_done(&a);
    }
}

static void test_no_http(void **state) {
    static const char *const texts[] = {
        "SSH-2.0-OpenSSH\r\n\r\n",
        "HTTP/2 200\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 099 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n11111111111111111\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab",
    };

    (void) state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct http_answer a;
        for (size_t piece = 1; piece <= strlen(texts[i]); piece++) {
            if (read_pieces(&a, texts[i], piece, false) != -EBADMSG)
                fail_msg("taken: %s", texts[i]);
            http_answer_done(&a);
        }
    }
}

/* An answer that breaks off is an error, not a short answer. */
static void test_broken_off(void **state) {
    static const char *const texts[] = {
        "",
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nx",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n",
    };

    (void) state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct http_answer a;
        assert_int_equal(read_pieces(&a, texts[i], 3, true), -ECONNRESET);
        http_answer_done(&a);
    }
}

static void test_bounds(void **state) {
    static char text[2 * HTTP_ANSWER_HEAD_MAX];
    struct http_answer a;

    (void) state;
    memset(text, 'x', sizeof(text) - 1);
    memcpy(text, "HTTP/1.1 200 OK\r\nA: ", 20);
    assert_int_equal(read_pieces(&a, text, 1000, false), -EMSGSIZE);
    http_answer_done(&a);
    memcpy(text, "HTTP/1.1 200 OK\r\n\r\n", 19);
    assert_int_equal(read_pieces(&a, text, 1000, false), -EMSGSIZE);
    http_answer_done(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bodies),     cmocka_unit_test(test_retry_after),
        cmocka_unit_test(test_date),       cmocka_unit_test(test_no_http),
        cmocka_unit_test(test_broken_off), cmocka_unit_test(test_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
