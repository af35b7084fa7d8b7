/* SPDX-License-Identifier: Apache-2.0 */

/* An agent that speaks TLS: who trusts whom, and through a change of the authority. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "base/server_time.h"
#include "kube/objects/agent_certificate.h"
#include "scheduler/figures/agents.h"
#include "wire/certificate.h"
#include "wire/certificate_authority.h"
#include "wire/certificate_request.h"
#include "wire/client_trust.h"
#include "wire/http.h"
#include "wire/server_cert.h"
#include "wire/tls.h"

#define PAGE                                                                                       \
    "{\"gpus\":[{\"index\":0,\"holders\":[{\"podUID\":\"a\",\"core\":30,\"memory\":1,"             \
    "\"memoryLimit\":10,\"memoryUsed\":5,\"memoryDriver\":5}]}]}"

static uint64_t ahead_ns;

uint64_t __real_uv_hrtime(void);
uint64_t __wrap_uv_hrtime(void);
uint64_t __wrap_uv_hrtime(void) {
    return __real_uv_hrtime() + ahead_ns;
}

struct world {
    uv_loop_t loop;
    struct certificate_authority authority; /* of the agent's certificate, which it trusts */
    struct server_cert *served;
    struct client_trust *trust;
    struct http_server *server;
    struct agents *agents;
    struct buf bundle, cert, key; /* of the scheduler */
    bool ready;
    unsigned asked, refused, done;
    bool bearer; /* a token came */
};

static void new_authority(struct certificate_authority *a, int64_t now) {
    static const char *const names[] = {"x", NULL};
    struct err err;
    certificate_authority_init(a);
    assert_int_equal(certificate_authority_renew(a, names, now, &err), 1);
}

/* The certificate that the authority gives the agent of a node. */
static void give_agent(struct world *w, const struct certificate_authority *a, const char *node) {
    _cleanup_buf_ struct buf key = BUF_INIT(CERTIFICATE_PEM_MAX),
                             cert = BUF_INIT(CERTIFICATE_PEM_MAX),
                             request = BUF_INIT(CERTIFICATE_PEM_MAX);
    char own[300];
    const char *const names[] = {own, AGENT_SERVER_NAME, NULL};
    struct err err;
    (void) snprintf(own, sizeof(own), "%s." AGENT_SERVER_NAME, node);
    assert_int_equal(certificate_request_make(node, &key, &request, &err), 0);
    assert_int_equal(certificate_authority_sign(a, buf_str(&request), request.len, node, names,
                                                AGENT_CERTIFICATE_SECONDS, (int64_t) time(NULL),
                                                &cert, &err),
                     0);
    assert_int_equal(w->served ? server_cert_set(w->served, buf_str(&cert), buf_str(&key), &err)
                               : server_cert_new(buf_str(&cert), buf_str(&key), &w->served, &err),
                     0);
}

static void give_scheduler(struct world *w, const struct certificate_authority *a,
                           const char *name) {
    struct err err;
    buf_reset(&w->cert);
    buf_reset(&w->key);
    assert_int_equal(certificate_authority_issue_client(a, name, AGENT_CERTIFICATE_SECONDS,
                                                        (int64_t) time(NULL), &w->cert, &w->key,
                                                        &err),
                     0);
}

static void trust(struct world *w, const char *bundle) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json names;
    struct err err;
    assert_int_equal(json_open("[\"aliquot-scheduler\"]", 21, &parser, &names, &err), 0);
    assert_int_equal(client_trust_set(w->trust, bundle, names, &err), 0);
}

static void on_usage(struct http_exchange *x, void *userdata) {
    struct world *w = userdata;
    struct buf page = BUF_INIT(0);
    struct err err;
    w->asked++;
    w->bearer = w->bearer || http_header(x, "Authorization");
    if (client_trust_check(w->trust, http_tls_session(x), &err) < 0) {
        w->refused++;
        http_reply_text(x, 401, err.text);
        return;
    }
    buf_puts(&page, PAGE);
    http_reply(x, 200, "application/json", &page);
}

static const struct http_route routes[] = {{"GET", "/usage", on_usage}, HTTP_ROUTE_END};

static bool credentials(void *userdata, struct tls_client_options *ret) {
    struct world *w = userdata;
    ret->ca = buf_str(&w->bundle);
    ret->cert = buf_str(&w->cert);
    ret->key = buf_str(&w->key);
    return w->ready;
}

static int setup(void **state) {
    struct world *w = calloc(1, sizeof(*w));
    struct err err;
    assert_int_equal(uv_loop_init(&w->loop), 0);
    w->bundle = w->cert = w->key = BUF_INIT(CERTIFICATE_PEM_MAX);
    new_authority(&w->authority, (int64_t) time(NULL));
    w->trust = client_trust_new();
    trust(w, buf_str(&w->authority.bundle));
    give_agent(w, &w->authority, "n0");
    give_scheduler(w, &w->authority, AGENT_CLIENT_NAME);
    buf_append(&w->bundle, w->authority.bundle.data, w->authority.bundle.len);
    w->ready = true;
    const struct http_options http = {.listen = "127.0.0.1:0",
                                      .server_cert = w->served,
                                      .client_certs = true,
                                      .routes = routes,
                                      .userdata = w};
    assert_int_equal(http_server_start(&w->loop, &http, &w->server, &err), 0);
    const struct agents_options options = {.loop = &w->loop,
                                           .port = http_server_port(w->server),
                                           .token_file = "/proc/self/comm",
                                           .credentials = credentials,
                                           .userdata = w};
    w->agents = agents_new(&options);
    assert_int_equal(agents_see(w->agents, "u", "n0", "127.0.0.1", true), 0);
    *state = w;
    return 0;
}

static int teardown(void **state) {
    struct world *w = *state;
    agents_close(w->agents);
    http_server_close(w->server);
    (void) uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w->loop), 0);
    certificate_authority_done(&w->authority);
    w->served = server_cert_free(w->served);
    w->trust = client_trust_free(w->trust);
    buf_done(&w->bundle);
    buf_done(&w->cert);
    buf_done(&w->key);
    free(w);
    return 0;
}

static void on_done(void *userdata) {
    struct world *w = userdata;
    w->done++;
}

/* Whether an answer comes, without one from before. */
static bool answers(struct world *w) {
    static const char *const node[] = {"n0"};
    struct agents_figures figures;
    unsigned done = w->done;
    ahead_ns += (uint64_t) (AGENTS_OLD_MS + 1) * 1000000;
    assert_int_equal(agents_ask(w->agents, node, 1, on_done, w), 0);
    while (w->done == done)
        (void) uv_run(&w->loop, UV_RUN_ONCE);
    return agents_find(w->agents, "n0", "a", &figures) && figures.use->memory == 5;
}

static void test_answers(void **state) {
    struct world *w = *state;
    for (unsigned i = 0; i < 3; i++)
        assert_true(answers(w));
    assert_int_equal(w->asked, 3);
    assert_int_equal(w->refused, 0);
    assert_false(w->bearer); /* no token where a certificate does */
}

/* None of these is asked: a client that trusts them would be told by another node. */
static void test_wrong_agents(void **state) {
    struct world *w = *state;
    struct certificate_authority other;
    _cleanup_buf_ struct buf key = BUF_INIT(CERTIFICATE_PEM_MAX),
                             cert = BUF_INIT(CERTIFICATE_PEM_MAX);
    struct err err;
    give_agent(w, &w->authority, "n1");
    assert_false(answers(w));
    new_authority(&other, (int64_t) time(NULL) + 1);
    give_agent(w, &other, "n0");
    assert_false(answers(w));
    certificate_authority_done(&other);
    assert_int_equal(
        certificate_self_signed("n0." AGENT_SERVER_NAME, (int64_t) time(NULL), &key, &cert, &err),
        0);
    assert_int_equal(server_cert_set(w->served, buf_str(&cert), buf_str(&key), &err), 0);
    assert_false(answers(w));
    assert_int_equal(w->asked, 0);
    give_agent(w, &w->authority, "n0");
    assert_true(answers(w));
}

static void test_expired_agent(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf key = BUF_INIT(CERTIFICATE_PEM_MAX),
                             cert = BUF_INIT(CERTIFICATE_PEM_MAX),
                             request = BUF_INIT(CERTIFICATE_PEM_MAX);
    const char *const names[] = {"n0." AGENT_SERVER_NAME, NULL};
    struct err err;
    assert_int_equal(certificate_request_make("n0", &key, &request, &err), 0);
    assert_int_equal(certificate_authority_sign(
                         &w->authority, buf_str(&request), request.len, "n0", names,
                         AGENT_CERTIFICATE_SECONDS,
                         (int64_t) time(NULL) - AGENT_CERTIFICATE_SECONDS - 5, &cert, &err),
                     0);
    assert_int_equal(server_cert_set(w->served, buf_str(&cert), buf_str(&key), &err), 0);
    assert_false(answers(w));
    assert_int_equal(w->asked, 0);
}

/* A time from another server by which no certificate is valid holds for one handshake only. */
static void test_a_time_before_all_certificates(void **state) {
    struct world *w = *state;
    give_agent(w, &w->authority, "n0");
    (void) server_time_heard("Sun, 06 Nov 1994 08:49:37 GMT");
    gnutls_global_set_time_function(server_time_as_time);
    assert_false(answers(w));
    assert_true(answers(w));
    gnutls_global_set_time_function(time);
}

/* The agent does not know them. */
static void test_wrong_clients(void **state) {
    struct world *w = *state;
    struct certificate_authority other;
    give_scheduler(w, &w->authority, "someone");
    assert_false(answers(w));
    new_authority(&other, (int64_t) time(NULL) + 1);
    give_scheduler(w, &other, AGENT_CLIENT_NAME);
    assert_false(answers(w));
    certificate_authority_done(&other);
    assert_int_equal(w->refused, 2);
    w->ready = false; /* no certificate yet: it is not asked without one */
    assert_false(answers(w));
    assert_int_equal(w->asked, 2);
}

/* A new authority in front of the old one: each side goes over in its own time. */
static void test_rotation(void **state) {
    struct world *w = *state;
    struct certificate_authority next;
    new_authority(&next, (int64_t) time(NULL) + 1);
    buf_append(&next.bundle, w->authority.bundle.data, w->authority.bundle.len);
    trust(w, buf_str(&next.bundle));
    assert_true(answers(w));
    buf_reset(&w->bundle);
    buf_append(&w->bundle, next.bundle.data, next.bundle.len);
    assert_true(answers(w));
    give_scheduler(w, &next, AGENT_CLIENT_NAME);
    assert_true(answers(w));
    give_agent(w, &next, "n0");
    assert_true(answers(w));
    certificate_authority_done(&next);
}

/* An authority in place of the old one: what that has signed is worth nothing. */
static void test_revocation(void **state) {
    struct world *w = *state;
    struct certificate_authority next;
    new_authority(&next, (int64_t) time(NULL) + 1);
    buf_reset(&w->bundle);
    buf_append(&w->bundle, next.bundle.data, next.bundle.len);
    give_scheduler(w, &next, AGENT_CLIENT_NAME);
    assert_false(answers(w));
    assert_int_equal(w->asked, 0);
    trust(w, buf_str(&next.bundle));
    give_agent(w, &next, "n0");
    assert_true(answers(w));
    give_scheduler(w, &w->authority, AGENT_CLIENT_NAME);
    assert_false(answers(w));
    assert_int_equal(w->refused, 1);
    certificate_authority_done(&next);
}

/* The pod says that it speaks TLS, and does not: no question, and no token, goes to it. */
static void test_plain_agent(void **state) {
    struct world *w = *state;
    struct http_server *plain;
    struct err err;
    const struct http_options http = {.listen = "127.0.0.2:0", .routes = routes, .userdata = w};
    assert_int_equal(http_server_start(&w->loop, &http, &plain, &err), 0);
    agents_close(w->agents);
    const struct agents_options options = {.loop = &w->loop,
                                           .port = http_server_port(plain),
                                           .token_file = "/proc/self/comm",
                                           .credentials = credentials,
                                           .userdata = w};
    w->agents = agents_new(&options);
    assert_int_equal(agents_see(w->agents, "u", "n0", "127.0.0.2", true), 0);
    assert_false(answers(w));
    assert_int_equal(w->asked, 0);
    http_server_close(plain);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_answers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_wrong_agents, setup, teardown),
        cmocka_unit_test_setup_teardown(test_expired_agent, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_time_before_all_certificates, setup, teardown),
        cmocka_unit_test_setup_teardown(test_wrong_clients, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rotation, setup, teardown),
        cmocka_unit_test_setup_teardown(test_revocation, setup, teardown),
        cmocka_unit_test_setup_teardown(test_plain_agent, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
