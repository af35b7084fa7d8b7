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

#include "cli/web/guard.h"

#define HOST "127.0.0.1:8080"

static struct guard guard;

static int setup(void **state) {
    (void) state;
    return guard_init(&guard, 8080);
}

static unsigned check(struct guard_request request) {
    const char *text = NULL;
    unsigned status = guard_check(&guard, &request, &text);
    assert_true((status != 0) == (text != NULL));
    return status;
}

static void test_token(void **state) {
    struct guard other;
    char wrong[GUARD_TOKEN_LEN + 2];
    (void) state;
    assert_int_equal(strlen(guard.token), GUARD_TOKEN_LEN);
    assert_int_equal(guard_init(&other, 8080), 0);
    assert_string_not_equal(guard.token, other.token);
    assert_int_equal(check((struct guard_request){.host = HOST}), 401);
    assert_int_equal(check((struct guard_request){.host = HOST, .token = guard.token}), 0);
    assert_int_equal(check((struct guard_request){.host = HOST, .token = other.token}), 401);
    for (size_t i = 0; i < GUARD_TOKEN_LEN; i++) { /* each letter counts */
        memcpy(wrong, guard.token, sizeof(guard.token));
        wrong[i] = wrong[i] == 'A' ? 'B' : 'A';
        assert_int_equal(check((struct guard_request){.host = HOST, .token = wrong}), 401);
    }
    (void) snprintf(wrong, sizeof(wrong), "%sA", guard.token);
    assert_int_equal(check((struct guard_request){.host = HOST, .token = wrong}), 401);
    wrong[GUARD_TOKEN_LEN - 1] = '\0';
    assert_int_equal(check((struct guard_request){.host = HOST, .token = wrong}), 401);
    assert_int_equal(check((struct guard_request){.host = HOST, .token = ""}), 401);
}

/* It is taken once; the next one is another. */
static void test_code(void **state) {
    char code[GUARD_TOKEN_LEN + 1];
    (void) state;
    memcpy(code, guard.code, sizeof(code));
    assert_string_not_equal(code, guard.token);
    assert_int_equal(check((struct guard_request){.host = HOST, .token = code}), 401);
    assert_false(guard_take_code(&guard, NULL));
    assert_false(guard_take_code(&guard, ""));
    assert_false(guard_take_code(&guard, guard.token));
    code[GUARD_TOKEN_LEN - 1] = '\0';
    assert_false(guard_take_code(&guard, code));
    memcpy(code, guard.code, sizeof(code));
    assert_true(guard_take_code(&guard, code));
    assert_string_not_equal(code, guard.code);
    assert_false(guard_take_code(&guard, code));
    memcpy(code, guard.code, sizeof(code));
    assert_true(guard_take_code(&guard, code));
}

/* All bits of a token are random: no letter of many tokens is always the same. */
static void test_tokens_differ(void **state) {
    unsigned differ[GUARD_TOKEN_LEN] = {0};
    (void) state;
    for (int n = 0; n < 64; n++) {
        struct guard other;
        assert_int_equal(guard_init(&other, 1), 0);
        for (size_t i = 0; i < GUARD_TOKEN_LEN; i++)
            differ[i] |= (unsigned) (other.token[i] ^ guard.token[i]);
    }
    for (size_t i = 0; i < GUARD_TOKEN_LEN; i++)
        assert_int_not_equal(differ[i], 0);
}

/* The page and its files hold no secret; everything else is asked with the token. */
static void test_files(void **state) {
    (void) state;
    assert_int_equal(check((struct guard_request){.host = HOST}), 401);
    assert_int_equal(check((struct guard_request){.host = HOST, .is_page = true}), 0);
    assert_int_equal(check((struct guard_request){.host = HOST, .is_file = true}), 0);
    assert_int_equal(
        check((struct guard_request){.host = HOST, .site = "cross-site", .is_file = true}), 403);
}

static void test_host_and_origin(void **state) {
    static const struct {
        unsigned status;
        const char *host, *origin, *site;
        bool is_page;
    } rows[] = {
        {0, HOST, NULL, NULL, false},
        {0, "localhost:8080", "http://localhost:8080", "same-origin", false},
        {0, HOST, "http://" HOST, "none", false},
        {0, HOST, NULL, "cross-site", true}, /* a link */
        {403, HOST, NULL, "cross-site", false},
        {403, HOST, NULL, "same-site", false},
        {403, NULL, NULL, NULL, false},
        {403, "", NULL, NULL, false},
        {403, "127.0.0.1", NULL, NULL, false},
        {403, "127.0.0.1:80800", NULL, NULL, false},
        {403, "127.0.0.1:808", NULL, NULL, false},
        {403, "example.org:8080", NULL, NULL, true},
        {403, "127.0.0.1.example.org:8080", NULL, NULL, false},
        {403, HOST, "null", NULL, false},
        {403, HOST, "", NULL, false},
        {403, HOST, "http://example.org", NULL, true},
        {403, HOST, "https://" HOST, NULL, false},
        {403, HOST, "http://" HOST "0", NULL, false},
    };
    (void) state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct guard_request request = {.host = rows[i].host,
                                        .origin = rows[i].origin,
                                        .site = rows[i].site,
                                        .token = guard.token,
                                        .is_page = rows[i].is_page};
        if (check(request) != rows[i].status)
            fail_msg("row %zu", i);
    }
}

/* Rows with a token that the API server has to decide about. */
static void test_in_a_cluster(void **state) {
    static const struct {
        unsigned status;
        const char *host, *origin;
    } rows[] = {
        {0, "gpus.example.org", NULL},
        {0, "GPUS.example.org:8443", "https://gpus.example.org:8443"},
        {0, "inner:80", "http://inner:80"},
        {0, "localhost:1234", NULL},
        {0, "[::1]:1234", "http://[::1]:1234"},
        {0, "127.0.0.1", NULL},
        {403, "inner", NULL},
        {403, "inner:8", NULL},
        {403, "inner:800", NULL},
        {403, "gpus.example.org.", NULL},
        {403, "gpus.example.org:", NULL},
        {403, "gpus.example.org:x", NULL},
        {403, "agpus.example.org", NULL},
        {403, "gpus.example", NULL},
        {403, "", NULL},
        {403, NULL, NULL},
        {403, "inner:80", "http://inner"},
        {403, "inner:80", "inner:80"},
        {403, "inner:80", "null"},
        {403, "inner:80", "https://gpus.example.org"},
    };
    static const char *const wrong[] = {"a b", ",", "a,", ",a", "a,,b", "http://a", "a\n"};
    struct guard cluster;
    const char *text;
    (void) state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_int_equal(guard_init_cluster(&cluster, wrong[i]), -EINVAL);
    assert_int_equal(guard_init_cluster(&cluster, ""), 0);
    assert_int_equal(
        guard_check(&cluster, &(struct guard_request){.host = "localhost", .token = "x"}, &text),
        0);
    assert_int_equal(
        guard_check(&cluster, &(struct guard_request){.host = "a", .token = "x"}, &text), 403);
    assert_int_equal(guard_init_cluster(&cluster, "gpus.example.org,inner:80"), 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct guard_request request = {
            .host = rows[i].host, .origin = rows[i].origin, .token = "x"};
        if (guard_check(&cluster, &request, &text) != rows[i].status)
            fail_msg("row %zu", i);
        request.token = "";
        assert_int_equal(guard_check(&cluster, &request, &text), rows[i].status ? 403 : 401);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_token),           cmocka_unit_test(test_code),
        cmocka_unit_test(test_tokens_differ),   cmocka_unit_test(test_files),
        cmocka_unit_test(test_host_and_origin), cmocka_unit_test(test_in_a_cluster),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
