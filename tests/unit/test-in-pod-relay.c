/* SPDX-License-Identifier: Apache-2.0 */
/* What `aliquot-kubectl proxy` makes of what comes through its socket. The test is the API server's
 * transport. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "cli/in_pod/relay.h"

#define TURNS 20 /* of the loop; more than anything here needs */

int __wrap_kube_exchange_start(struct kube_transport *transport,
                               const struct kube_exchange_options *options,
                               const struct kube_exchange_handlers *handlers, void *user,
                               struct kube_exchange **ret, struct err *err);
void __wrap_kube_exchange_cancel(struct kube_exchange *exchange);

static struct {
    char asked[1024]; /* a line for each request */
    const struct kube_exchange_handlers *handlers;
    void *user; /* of the last one */
    const char *refusal;
    unsigned cancelled;
} api;

int __wrap_kube_exchange_start(struct kube_transport *transport,
                               const struct kube_exchange_options *options,
                               const struct kube_exchange_handlers *handlers, void *user,
                               struct kube_exchange **ret, struct err *err) {
    size_t len = strlen(api.asked);

    (void) transport;
    if (api.refusal)
        return err_set(err, EINVAL, "%s", api.refusal);
    (void) snprintf(api.asked + len, sizeof(api.asked) - len, "%s %s %s %s '%.*s'\n",
                    options->method, options->path, options->accept ? options->accept : "-",
                    options->content_type ? options->content_type : "-", (int) options->size,
                    options->body ? (const char *) options->body : "");
    api.handlers = handlers;
    api.user = user;
    *ret = (struct kube_exchange *) &api;
    return 0;
}

void __wrap_kube_exchange_cancel(struct kube_exchange *exchange) {
    (void) exchange;
    api.cancelled++;
}

/* ---- the relay and a client ---- */

struct world {
    uv_loop_t loop;
    struct relay *relay;
    char directory[64], path[80];
    int client;
};

static void turn(struct world *w) {
    for (int i = 0; i < TURNS; i++)
        (void) uv_run(&w->loop, UV_RUN_NOWAIT);
}

static int begin(void **state) {
    struct world *w = calloc(1, sizeof(*w));
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct err err;

    memset(&api, 0, sizeof(api));
    (void) snprintf(w->directory, sizeof(w->directory), "/tmp/test-relay-XXXXXX");
    assert_non_null(mkdtemp(w->directory));
    (void) snprintf(w->path, sizeof(w->path), "%s/api", w->directory);
    assert_int_equal(uv_loop_init(&w->loop), 0);
    assert_int_equal(relay_start(&w->loop, w->path, NULL, &w->relay, &err), 0);
    w->client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void) snprintf(address.sun_path, sizeof(address.sun_path), "%s", w->path);
    assert_int_equal(connect(w->client, (struct sockaddr *) &address, sizeof(address)), 0);
    turn(w);
    *state = w;
    return 0;
}

static int end(void **state) {
    struct world *w = *state;

    relay_stop(w->relay);
    (void) uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w->loop), 0);
    (void) close(w->client);
    (void) unlink(w->path);
    (void) rmdir(w->directory);
    free(w);
    return 0;
}

static void say(struct world *w, const char *text) {
    size_t len = strlen(text);

    assert_int_equal(write(w->client, text, len), (ssize_t) len);
    turn(w);
}

/* What the client hears; "": nothing, NULL: the connection has ended. */
static const char *hear(struct world *w) {
    static char text[4096];
    ssize_t n;

    turn(w);
    n = recv(w->client, text, sizeof(text) - 1, MSG_DONTWAIT);
    text[n > 0 ? n : 0] = '\0';
    return n == 0 ? NULL : text;
}

static void answer_in_time(struct world *w, int status, const char *body, uint32_t retry_s) {
    const struct kube_outcome well = {.retry_s = retry_s};

    api.handlers->on_status(status, api.user);
    assert_int_equal(api.handlers->on_data(body, strlen(body), api.user), 0);
    api.handlers->on_done(&well, api.user);
    turn(w);
}

static void answer(struct world *w, int status, const char *body) {
    answer_in_time(w, status, body, 0);
}

/* ---- tests ---- */

static void requests_take_turns_on_a_connection(void **state) {
    struct world *w = *state;

    say(w,
        "GET /api/v1/pods?limit=1 HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n\r\n");
    assert_string_equal(api.asked, "GET /api/v1/pods?limit=1 application/json - ''\n");
    answer(w, 200, "{}");
    assert_string_equal(hear(w), "HTTP/1.1 200 -\r\nContent-Length: 2\r\n\r\n{}");
    api.asked[0] = '\0';
    say(w, "PATCH /x HTTP/1.1\r\nContent-Type: a/b\r\nContent-Length: 4\r\n\r\nab");
    assert_string_equal(api.asked, ""); /* two bytes are to come */
    say(w, "cdDELETE /y HTTP/1.1\r\n\r\n");
    assert_string_equal(api.asked, "PATCH /x - a/b 'abcd'\n");
    answer(w, 409, "no");
    assert_string_equal(hear(w), "HTTP/1.1 409 -\r\nContent-Length: 2\r\n\r\nno");
    assert_string_equal(api.asked, "PATCH /x - a/b 'abcd'\nDELETE /y - - ''\n");
    answer(w, 204, "");
    assert_string_equal(hear(w), "HTTP/1.1 204 -\r\nContent-Length: 0\r\n\r\n");
}

static void an_overloaded_api_server_says_when_to_ask_again(void **state) {
    struct world *w = *state;
    const struct kube_outcome failed = {.error = EHOSTUNREACH, .text = "no route"};

    say(w, "GET /x HTTP/1.1\r\n\r\n");
    answer_in_time(w, 429, "no", 7);
    assert_string_equal(hear(w), "HTTP/1.1 429 -\r\nContent-Length: 2\r\nRetry-After: 7\r\n\r\nno");
    say(w, "GET /x HTTP/1.1\r\n\r\n");
    api.handlers->on_done(&failed, api.user);
    assert_string_equal(hear(w), "HTTP/1.1 502 -\r\nContent-Length: 8\r\n\r\nno route");
}

static void what_does_not_reach_the_api_server(void **state) {
    struct world *w = *state;
    const struct kube_outcome failed = {.error = EHOSTUNREACH, .text = "no route"};

    say(w, "GET /x HTTP/1.1\r\n\r\n");
    api.handlers->on_status(200, api.user);
    assert_int_equal(api.handlers->on_data("{\"half", 6, api.user), 0);
    api.handlers->on_done(&failed, api.user);
    assert_string_equal(hear(w), "HTTP/1.1 502 -\r\nContent-Length: 8\r\n\r\nno route");
    api.refusal = "no path";
    say(w, "GET x HTTP/1.1\r\n\r\n");
    assert_string_equal(hear(w), "HTTP/1.1 502 -\r\nContent-Length: 7\r\n\r\nno path");
}

static void a_client_that_goes_ends_its_request(void **state) {
    struct world *w = *state;

    say(w, "GET /x HTTP/1.1\r\n\r\n");
    assert_int_equal(shutdown(w->client, SHUT_WR), 0);
    assert_null(hear(w));
    assert_int_equal(api.cancelled, 1);
}

static void other_things_end_the_connection(void **state) {
    static const char *const things[] = {"GET /x HTTP/1.0\r\n\r\n", "GET\r\n\r\n", "\r\n\r\n",
                                         "PUT /x HTTP/1.1\r\nContent-Length: 1e3\r\n\r\n",
                                         "PUT /x HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n"};

    for (size_t i = 0; i < sizeof(things) / sizeof(things[0]); i++) {
        struct world *w;
        void *own;

        (void) begin(&own);
        w = own;
        say(w, things[i]);
        assert_null(hear(w));
        assert_string_equal(api.asked, "");
        (void) end(&own);
    }
    (void) state;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(requests_take_turns_on_a_connection, begin, end),
        cmocka_unit_test_setup_teardown(an_overloaded_api_server_says_when_to_ask_again, begin,
                                        end),
        cmocka_unit_test_setup_teardown(what_does_not_reach_the_api_server, begin, end),
        cmocka_unit_test_setup_teardown(a_client_that_goes_ends_its_request, begin, end),
        cmocka_unit_test(other_things_end_the_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
