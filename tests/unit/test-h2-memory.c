/* SPDX-License-Identifier: Apache-2.0 */

/* Connections and requests of HTTP/2 that cannot be made for lack of memory. */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fail-malloc.h"
#include "h2-pair.h"
#include "wire/h2.h"

/* The object, the session and its settings. */
static void a_connection_without_memory_is_not_made(void **state) {
    const struct h2_options options = {.handlers = &h2_seen_handlers};
    size_t failures = 0;
    (void) state;
    for (int r = -ENOMEM; r < 0; failures += r < 0) {
        struct h2_conn *conn = NULL;
        fail_malloc_at(failures + 1);
        r = h2_conn_new(&options, &conn);
        assert_int_equal(r, fail_malloc_end() ? -ENOMEM : 0);
        assert_int_equal(conn != NULL, r == 0);
        h2_conn_free(conn);
    }
    assert_in_range(failures, 4, 100);
}

/* A request without memory for it on the server's side is reset; without memory for the session,
 * the connection ends. */
static void a_request_without_memory_is_reset(void **state) {
    static const struct h2_field request[] = {
        {":method", "GET"}, {":scheme", "https"}, {":path", "/"}, {":authority", "x"}};
    const struct h2_handlers handlers = {.on_wake = NULL};
    const struct h2_options near = {.handlers = &h2_seen_handlers};
    const struct h2_options far = {.server = true, .handlers = &handlers};
    unsigned reset = 0;
    bool failed = true;
    (void) state;
    for (size_t nth = 1; failed; nth++) {
        struct h2_seen seen = H2_SEEN_INIT;
        struct h2_conn *client, *server;
        struct h2_stream *stream;
        const uint8_t *bytes;
        assert_int_equal(h2_conn_new(&near, &client), 0);
        assert_int_equal(h2_conn_new(&far, &server), 0);
        assert_int_equal(h2_pair_pump(client, server), 0);
        assert_int_equal(h2_request(client, request, 4, NULL, 0, &seen, &stream), 0);
        ssize_t n = h2_conn_pull(client, &bytes);
        assert_true(n > 0);
        fail_malloc_at(nth);
        int r = h2_conn_feed(server, bytes, (size_t) n);
        failed = fail_malloc_end();
        assert_true(r == 0 || (failed && r == -ENOMEM));
        if (r == 0)
            assert_int_equal(h2_pair_pump(client, server), 0);
        assert_int_equal(seen.closed, r == 0 && failed);
        reset += seen.closed && seen.code == H2_INTERNAL_ERROR;
        h2_conn_free(client);
        h2_conn_free(server);
    }
    assert_int_equal(reset, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_connection_without_memory_is_not_made),
        cmocka_unit_test(a_request_without_memory_is_reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
