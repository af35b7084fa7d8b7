/* SPDX-License-Identifier: Apache-2.0 */

/* Replicas that answer, refuse and are silent, on nodes that renew their Leases or do not. The time
 * between probes is the test's, that of a probe is real. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <arpa/inet.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/err.h"
#include "base/text.h"
#include "scheduler/cluster/peers.h"
#include "wire/http.h"
#include "wire/json.h"

struct world {
    uv_loop_t loop;
    uv_timer_t timer;
    struct peers *peers;
    struct http_server *answers; /* at 127.0.0.2; NULL: a socket that accepts no connection is */
    unsigned port;
    int silent, fallen; /* 127.0.0.3, which accepts no connection; and what 127.0.0.2 becomes */
    uint64_t now;
    uint64_t renewed; /* every 10 s while kubelet lives */
    bool alive, away; /* the kubelet; the API server */
    unsigned leases, patches;
    char path[256], body[1024];
};

static int request(void *context, const char *method, const char *path, const char *content_type,
                   const char *body, size_t size, unsigned timeout_ms, kube_response_cb on_response,
                   void *userdata, struct err *err) {
    struct world *w = context;
    struct kube_response response = {.status = 200, .text = "", .reason = ""};
    struct json_parser *parser = NULL;
    char lease[128];
    (void) timeout_ms;
    if (w->away)
        return err_set(err, EHOSTUNREACH, "away");
    if (strcmp(method, "PATCH") == 0) {
        assert_string_equal(content_type, KUBE_STRATEGIC_PATCH);
        w->patches++;
        text_copy(w->path, sizeof(w->path), path);
        (void) snprintf(w->body, sizeof(w->body), "%.*s", (int) size, body);
    } else {
        assert_string_equal(
            path, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-b");
        w->leases++;
        if (w->alive)
            w->renewed = w->now / 10000;
        (void) snprintf(lease, sizeof(lease), "{\"spec\":{\"renewTime\":\"%llu\"}}",
                        (unsigned long long) w->renewed);
        assert_int_equal(json_open(lease, strlen(lease), &parser, &response.body, NULL), 0);
    }
    on_response(&response, userdata);
    json_parser_free(parser);
    return 0;
}

static const struct http_route no_routes[] = {HTTP_ROUTE_END};

static int listen_only(const char *address, unsigned port) {
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t) port),
                             .sin_addr.s_addr = inet_addr(address)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
    assert_int_equal(bind(fd, (struct sockaddr *) &at, sizeof(at)), 0);
    assert_int_equal(listen(fd, 64), 0);
    return fd;
}

static int setup(void **state) {
    struct world *w = calloc(1, sizeof(*w));
    const struct http_options options = {.listen = "127.0.0.2:0", .routes = no_routes};
    struct err err;
    assert_int_equal(uv_loop_init(&w->loop), 0);
    assert_int_equal(uv_timer_init(&w->loop, &w->timer), 0);
    assert_int_equal(http_server_start(&w->loop, &options, &w->answers, &err), 0);
    w->port = http_server_port(w->answers);
    w->silent = listen_only("127.0.0.3", w->port);
    w->fallen = -1;
    const struct peers_options o = {
        .loop = &w->loop, .api = {request, w}, .name_space = "system", .own = "a", .port = w->port};
    w->peers = peers_new(&o);
    w->now = 1000;
    assert_int_equal(peers_see(w->peers, "a", "node-a", "127.0.0.3", true), 0);
    *state = w;
    return 0;
}

static int teardown(void **state) {
    struct world *w = *state;
    peers_close(w->peers);
    if (w->answers)
        http_server_close(w->answers);
    uv_close((uv_handle_t *) &w->timer, NULL);
    (void) uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w->loop), 0);
    (void) close(w->silent);
    (void) close(w->fallen);
    free(w);
    return 0;
}

static void on_timer(uv_timer_t *timer) {
    (void) timer;
}

/* A probe, answered or not, and then so many seconds of ticks. */
static void pass(struct world *w, unsigned seconds) {
    peers_tick(w->peers, w->now);
    (void) uv_timer_start(&w->timer, on_timer, PEERS_PROBE_MS + 200, 0);
    while (uv_is_active((uv_handle_t *) &w->timer))
        (void) uv_run(&w->loop, UV_RUN_ONCE);
    for (unsigned i = 0; i < seconds; i++) {
        w->now += 1000;
        peers_tick(w->peers, w->now);
    }
}

/* A replica that answers a probe, and then none. */
static void fall_silent(struct world *w) {
    assert_int_equal(peers_see(w->peers, "b", "node-b", "127.0.0.2", true), 0);
    pass(w, 1);
    assert_int_equal(w->leases, 0);
    http_server_close(w->answers);
    w->answers = NULL;
    (void) uv_run(&w->loop, UV_RUN_NOWAIT);
    w->fallen = listen_only("127.0.0.2", w->port);
    pass(w, 1); /* what was under way ends */
    pass(w, 0);
}

static void test_a_silent_node(void **state) {
    struct world *w = *state;
    fall_silent(w);
    pass(w, PEERS_LEASE_MS / 1000 - 1);
    assert_int_equal(w->patches, 0);
    pass(w, 2);
    assert_int_equal(w->patches, 1);
    assert_string_equal(w->path, "/api/v1/namespaces/system/pods/b/status");
    assert_non_null(strstr(w->body, "{\"status\":{\"conditions\":[{\"type\":\"Ready\",\"status\":"
                                    "\"False\",\"reason\":\"NodeSilent\""));
    assert_int_equal(peers_see(w->peers, "b", "node-b", "127.0.0.2", false), 0);
    pass(w, 30);
    assert_int_equal(w->patches, 1);
}

static void test_who_is_left_alone(void **state) {
    struct world *w = *state;
    assert_int_equal(peers_see(w->peers, "b", "node-b", "127.0.0.2", true), 0);
    pass(w, 30); /* it answers */
    assert_int_equal(w->leases, 0);
    assert_int_equal(peers_see(w->peers, "b", "node-b", "127.0.0.4", true), 0);
    pass(w, 30); /* it refuses: kubelet's matter */
    assert_int_equal(w->leases, 0);
    assert_int_equal(peers_see(w->peers, "b", "node-b", "127.0.0.3", false), 0);
    pass(w, 30); /* it is no endpoint */
    assert_int_equal(w->leases, 0);
    assert_int_equal(peers_see(w->peers, "b", "node-b", "127.0.0.3", true), 0);
    pass(w, 60); /* it has never answered: a firewall may be between them */
    assert_int_equal(w->leases, 0);
    assert_int_equal(w->patches, 0);
}

static void test_a_kubelet_that_lives(void **state) {
    struct world *w = *state;
    w->alive = true;
    fall_silent(w);
    pass(w, 60);
    assert_true(w->leases > 10);
    assert_int_equal(w->patches, 0);
}

/* One that cannot ask knows nothing of others. */
static void test_without_the_api_server(void **state) {
    struct world *w = *state;
    fall_silent(w);
    w->away = true;
    pass(w, 60);
    w->away = false;
    pass(w, PEERS_LEASE_MS / 1000 - 1);
    assert_int_equal(w->patches, 0);
    peers_gone(w->peers, "b");
    pass(w, 60);
    assert_int_equal(w->patches, 0);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_a_silent_node),
        TEST(test_who_is_left_alone),
        TEST(test_a_kubelet_that_lives),
        TEST(test_without_the_api_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
