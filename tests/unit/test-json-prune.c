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

#include "base/buf.h"
#include "fail-malloc.h"
#include "wire/json_prune.h"

static const char *const keep[] = {"Pod",
                                   "NodeNames",
                                   "Nodes/items/*/metadata/name",
                                   "Nodes/items/*/status/allocatable",
                                   "Victims/*/Pods/*/uid",
                                   NULL};

/* Reduces `text`, given in pieces of `piece` bytes. */
static int prune(const char *text, size_t len, size_t piece, struct buf *out) {
    struct json_prune *p = json_prune_new(keep, out);
    int r = p ? 0 : -ENOMEM;
    for (size_t i = 0; i < len && r == 0; i += piece)
        r = json_prune_feed(p, text + i, len - i < piece ? len - i : piece);
    if (r == 0)
        r = json_prune_end(p);
    json_prune_free(p);
    return r;
}

static const struct {
    const char *text, *left;
} documents[] = {
    {"{}", "{}"},
    {" [ 1 , 2 ] ", "[]"},
    {"17", "17"},
    {"{\"Pod\":{\"a\":[1,{\"b\":\"}\\\"\"}],\"c\":null},\"x\":1}",
     "{\"Pod\":{\"a\":[1,{\"b\":\"}\\\"\"}],\"c\":null}}"},
    {"{\"x\":{\"Pod\":1},\"pOD\":2,\"NODENAMES\":[\"a\",\"b\"]}",
     "{\"pOD\":2,\"NODENAMES\":[\"a\",\"b\"]}"},
    {"{\"Nodes\":null,\"NodeNames\":[ ]}", "{\"Nodes\":null,\"NodeNames\":[]}"},
    {"{\"Nodes\":{\"metadata\":{},\"items\":[{\"metadata\":{\"name\":\"n\",\"uid\":\"u\"},\"spec\":"
     "[[{\"name\":\"no\"}]],\"status\":{\"images\":[{\"names\":[\"i\"]}],\"allocatable\":{\"cpu\":"
     "\"4\"}}},{\"metadata\":{\"name\":\"m\"}}, 5]}}",
     "{\"Nodes\":{\"items\":[{\"metadata\":{\"name\":\"n\"},\"status\":{\"allocatable\":{\"cpu\":"
     "\"4\"}}},{\"metadata\":{\"name\":\"m\"}},5]}}"},
    {"{\"victims\":{\"a\":{\"Pods\":[{\"uid\":\"u\",\"spec\":{\"uid\":\"no\"}},{}],\"n\":1},\"b\":{"
     "\"pods\":null,\"x\":[1]},\"c\":2,\"\":{\"pods\":[{\"uid\":\"no\"}]}}}",
     "{\"victims\":{\"a\":{\"Pods\":[{\"uid\":\"u\"},{}]},\"b\":{\"pods\":null},\"c\":2}}"},
    /* Keys that are too long, or written in another way, match nothing. */
    {"{\"\\u0050od\":1,\"Pod \":2}", "{}"},
};

static void test_what_is_left(void **state) {
    (void) state;
    for (size_t d = 0; d < sizeof(documents) / sizeof(documents[0]); d++) {
        size_t len = strlen(documents[d].text);
        for (size_t piece = 1; piece <= len; piece++) {
            _cleanup_buf_ struct buf out = BUF_INIT(0);
            assert_int_equal(prune(documents[d].text, len, piece, &out), 0);
            assert_string_equal(buf_str(&out), documents[d].left);
        }
    }
}

static void test_cut_short(void **state) {
    (void) state;
    const char *text = documents[6].text;
    for (size_t len = 0; len < strlen(text); len++) {
        _cleanup_buf_ struct buf out = BUF_INIT(0);
        assert_int_equal(prune(text, len, 7, &out), -EBADMSG);
    }
}

static void test_no_json(void **state) {
    (void) state;
    static const char *const texts[] = {
        "}",     "{]",   "[}",         "{\"a\" 1}", "{\"a\":}",  "{,}",       "[1 2]",
        "{1:2}", "[1]]", "{\"a\":1}{", "hello",     "{\"a\":?}", "{\"a\":1,}"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        _cleanup_buf_ struct buf out = BUF_INIT(0);
        assert_int_equal(prune(texts[i], strlen(texts[i]), 3, &out), -EBADMSG);
    }
    _cleanup_buf_ struct buf out = BUF_INIT(0);
    assert_int_equal(prune("{\"a\":\0}", 7, 7, &out), -EBADMSG); /* a NUL is no number */
}

static void test_too_deep(void **state) {
    (void) state;
    char text[1000];
    _cleanup_buf_ struct buf out = BUF_INIT(0);
    memset(text, '[', sizeof(text));
    assert_int_equal(prune(text, sizeof(text), 100, &out), -EBADMSG);
}

/* 75 MB of nodes as kube-scheduler sends them, of which a few hundred KB are left. */
static void test_a_long_document(void **state) {
    (void) state;
    enum { NODES = 5000, PADDING = 15000 };
    static char padding[PADDING + 1];
    char head[200];
    _cleanup_buf_ struct buf out = BUF_INIT(1 << 20);
    struct json_prune *p = json_prune_new(keep, &out);
    size_t total = 0;
    memset(padding, 'x', PADDING);
    assert_int_equal(json_prune_feed(p, "{\"Nodes\":{\"items\":[", 19), 0);
    for (int i = 0; i < NODES; i++) {
        int n = snprintf(head, sizeof(head),
                         "%s{\"metadata\":{\"name\":\"node-%d\"},\"status\":{\"images\":\"",
                         i ? "," : "", i);
        assert_int_equal(json_prune_feed(p, head, (size_t) n), 0);
        assert_int_equal(json_prune_feed(p, padding, PADDING), 0);
        assert_int_equal(json_prune_feed(p, "\"}}", 3), 0);
        total += (size_t) n + PADDING + 3;
    }
    assert_int_equal(json_prune_feed(p, "]}}", 3), 0);
    assert_int_equal(json_prune_end(p), 0);
    assert_true(total > (size_t) 75000000 && out.len < (size_t) 300000);
    assert_non_null(strstr(buf_str(&out), "{\"metadata\":{\"name\":\"node-4999\"},\"status\":{}}"));
    json_prune_free(p);
}

/* Of a key that is too long nothing is kept, also where any key will do. */
static void test_long_keys(void **state) {
    (void) state;
    for (size_t len = 250; len < 262; len++) {
        char name[300], text[500];
        _cleanup_buf_ struct buf out = BUF_INIT(0);
        memset(name, 'n', len);
        name[len] = '\0';
        int n =
            snprintf(text, sizeof(text), "{\"Victims\":{\"%s\":{\"Pods\":[{\"uid\":1}]}}}", name);
        assert_int_equal(prune(text, (size_t) n, 11, &out), 0);
        assert_string_equal(buf_str(&out), len <= 256 ? text : "{\"Victims\":{}}");
    }
}

static void test_the_bound_of_what_is_kept(void **state) {
    (void) state;
    _cleanup_buf_ struct buf out = BUF_INIT(20);
    const char *text = "{\"x\":\"0123456789012345678901234567890\",\"Pod\":\"0123456789012345\"}";
    assert_int_equal(prune(text, strlen(text), 10, &out), -EMSGSIZE);
}

static void test_memory_runs_out(void **state) {
    (void) state;
    const char *text = documents[6].text;
    for (size_t nth = 1;; nth++) {
        _cleanup_buf_ struct buf out = BUF_INIT(0);
        fail_malloc_at(nth);
        int r = prune(text, strlen(text), 5, &out);
        if (!fail_malloc_end()) {
            assert_int_equal(r, 0);
            break;
        }
        assert_int_equal(r, -ENOMEM);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_left),    cmocka_unit_test(test_cut_short),
        cmocka_unit_test(test_no_json),         cmocka_unit_test(test_too_deep),
        cmocka_unit_test(test_a_long_document), cmocka_unit_test(test_the_bound_of_what_is_kept),
        cmocka_unit_test(test_memory_runs_out), cmocka_unit_test(test_long_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
