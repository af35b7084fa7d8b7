/* SPDX-License-Identifier: Apache-2.0 */

/* Which CertificateSigningRequests get a certificate, and what the API server is told. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <errno.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "kube/objects/agent_certificate.h"
#include "scheduler/cluster/agent_signer.h"
#include "wire/certificate.h"
#include "wire/certificate_request.h"

#define BEGIN INT64_C(1790000000)
#define AGENT "system:serviceaccount:aliquot-system:aliquot-agent"
#define USAGES "\"digital signature\",\"server auth\""
#define OPEN_MAX 200

static int64_t now = BEGIN;

static int64_t test_clock(void) {
    return now;
}

struct world {
    struct agent_signer signer;
    struct certificate_authority authority;
    struct buf key, request;
    char *encoded;
    unsigned asked;
    char path[256], body[16384];
    kube_response_cb callbacks[OPEN_MAX];
};

static int ask(void *context, const char *method, const char *path, const char *content_type,
               const char *body, size_t size, unsigned timeout_ms, kube_response_cb on_response,
               void *userdata, struct err *err) {
    struct world *w = context;
    (void) timeout_ms, (void) userdata, (void) err;
    assert_string_equal(method, "PATCH");
    assert_string_equal(content_type, KUBE_MERGE_PATCH);
    assert_true(w->asked < OPEN_MAX);
    (void) snprintf(w->path, sizeof(w->path), "%s", path);
    (void) snprintf(w->body, sizeof(w->body), "%.*s", (int) size, body);
    w->callbacks[w->asked++] = on_response;
    return 0;
}

static int setup(void **state) {
    static const char *const names[] = {"x", NULL};
    struct world *w = calloc(1, sizeof(*w));
    gnutls_datum_t text;
    struct err err;
    now = BEGIN;
    certificate_authority_init(&w->authority);
    w->key = w->request = BUF_INIT(CERTIFICATE_PEM_MAX);
    w->signer = (struct agent_signer){.api = {ask, w},
                                      .name_space = "aliquot-system",
                                      .authority = &w->authority,
                                      .now = test_clock};
    assert_int_equal(certificate_authority_renew(&w->authority, names, BEGIN, &err), 1);
    assert_int_equal(certificate_request_make("node-a", &w->key, &w->request, &err), 0);
    const gnutls_datum_t pem = {(unsigned char *) w->request.data, (unsigned) w->request.len};
    assert_int_equal(gnutls_base64_encode2(&pem, &text), 0);
    w->encoded = (char *) text.data;
    *state = w;
    return 0;
}

static int teardown(void **state) {
    struct world *w = *state;
    certificate_authority_done(&w->authority);
    buf_done(&w->key);
    buf_done(&w->request);
    gnutls_free(w->encoded);
    free(w);
    return 0;
}

/* A request as the API server has it. */
struct sample {
    const char *signer, *user, *extra, *usages, *status, *request;
};

static const struct sample good = {
    AGENT_SIGNER, AGENT, "{\"authentication.kubernetes.io/node-name\":[\"node-a\"]}",
    USAGES,       "{}",  NULL};

static struct json_parser *parse(const struct world *w, const struct sample *s, struct json *ret) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    struct json_parser *parser = NULL;
    buf_printf(&text,
               "{\"metadata\":{\"name\":\"aliquot-agent-x1\",\"resourceVersion\":\"7\"},\"spec\":{"
               "\"signerName\":\"%s\",\"username\":\"%s\",\"extra\":%s,\"usages\":[%s],"
               "\"request\":\"%s\"},\"status\":%s}",
               s->signer, s->user, s->extra, s->usages, s->request ? s->request : w->encoded,
               s->status);
    assert_int_equal(json_open(text.data, text.len, &parser, ret, NULL), 0);
    return parser;
}

static void see(struct world *w, const struct sample *s) {
    struct json request;
    struct json_parser *parser = parse(w, s, &request);
    agent_signer_see(&w->signer, request);
    json_parser_free(parser);
}

static void answer(struct world *w, int status) {
    const struct kube_response response = {.status = status, .text = "no", .reason = ""};
    for (unsigned i = 0; i < w->asked; i++)
        w->callbacks[i](&response, &w->signer);
    w->asked = 0;
}

static void test_approved_then_signed(void **state) {
    struct world *w = *state;
    struct sample s = good;
    see(w, &s);
    assert_string_equal(w->path, CERTIFICATE_REQUESTS "/aliquot-agent-x1/approval");
    assert_non_null(strstr(w->body, "\"type\":\"Approved\""));
    assert_non_null(strstr(w->body, "\"resourceVersion\":\"7\""));
    assert_null(strstr(w->body, "certificate\""));
    answer(w, 200);
    s.status = "{\"conditions\":[{\"type\":\"Approved\",\"status\":\"True\"}]}";
    see(w, &s);
    assert_string_equal(w->path, CERTIFICATE_REQUESTS "/aliquot-agent-x1/status");
    assert_non_null(strstr(w->body, "\"certificate\":\"LS0t"));
    answer(w, 200);
    /* What is done is left alone. */
    s.status =
        "{\"conditions\":[{\"type\":\"Approved\",\"status\":\"True\"}],\"certificate\":\"LS0t\"}";
    see(w, &s);
    s.status = "{\"conditions\":[{\"type\":\"Denied\",\"status\":\"True\"}]}";
    see(w, &s);
    assert_int_equal(w->asked, 0);
    assert_false(w->signer.missed);
}

static void test_what_is_signed(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf cert = BUF_INIT(CERTIFICATE_PEM_MAX);
    struct json request;
    struct err err;
    struct json_parser *parser = parse(w, &good, &request);
    assert_int_equal(agent_signer_judge(&w->signer, request, &cert, &err), 0);
    json_parser_free(parser);
    gnutls_x509_crt_t crt = certificate_load(&cert);
    assert_true(gnutls_x509_crt_check_hostname(crt, "node-a." AGENT_SERVER_NAME));
    assert_true(gnutls_x509_crt_check_hostname(crt, AGENT_SERVER_NAME));
    assert_false(gnutls_x509_crt_check_hostname(crt, "node-b." AGENT_SERVER_NAME));
    assert_int_equal(gnutls_x509_crt_get_expiration_time(crt), BEGIN + AGENT_CERTIFICATE_SECONDS);
    gnutls_x509_crt_deinit(crt);
}

/* Each is denied, with its reason, and never signed, also where another client has approved it. */
static void test_denied(void **state) {
    struct world *w = *state;
    const struct {
        struct sample sample;
        const char *why;
    } rows[] = {
        {{"example.com/x", AGENT, good.extra, USAGES, "{}", NULL}, "another signer"},
        {{AGENT_SIGNER, "system:serviceaccount:team:aliquot-agent", good.extra, USAGES, "{}", NULL},
         "it is not of " AGENT},
        {{AGENT_SIGNER, "system:serviceaccount:aliquot-system:default", good.extra, USAGES, "{}",
          NULL},
         "it is not of " AGENT},
        {{AGENT_SIGNER, "system:admin", good.extra, USAGES, "{}", NULL}, "it is not of " AGENT},
        {{AGENT_SIGNER, AGENT, "{}", USAGES, "{}", NULL}, "not bound to a node"},
        {{AGENT_SIGNER, AGENT, "{\"authentication.kubernetes.io/node-name\":[\"a\",\"node-a\"]}",
          USAGES, "{}", NULL},
         "not bound to a node"},
        {{AGENT_SIGNER, AGENT, "{\"authentication.kubernetes.io/node-name\":[\"*\"]}", USAGES, "{}",
          NULL},
         "not bound to a node"},
        {{AGENT_SIGNER, AGENT, "{\"authentication.kubernetes.io/node-name\":[\"node-b\"]}", USAGES,
          "{}", NULL},
         "other names than the common name node-b"},
        {{AGENT_SIGNER, AGENT, good.extra, USAGES ",\"client auth\"", "{}", NULL},
         "the usage 'client auth'"},
        {{AGENT_SIGNER, AGENT, good.extra, "\"server auth\"", "{}", NULL}, "its usages"},
        {{AGENT_SIGNER, AGENT, good.extra, "\"cert sign\"", "{}", NULL}, "the usage 'cert sign'"},
        {{AGENT_SIGNER, AGENT, good.extra, USAGES, "{}", "garbage"}, "cannot be read"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct sample s = rows[i].sample;
        see(w, &s);
        assert_int_equal(w->asked, 1);
        assert_non_null(strstr(w->path, "/approval"));
        assert_non_null(strstr(w->body, "\"type\":\"Denied\""));
        assert_non_null(strstr(w->body, rows[i].why));
        answer(w, 200);
        s.status = "{\"conditions\":[{\"type\":\"Approved\",\"status\":\"True\"}]}";
        see(w, &s);
        assert_int_equal(w->asked, 0);
    }
}

static void test_later(void **state) {
    struct world *w = *state;
    see(w, &good);
    answer(w, 409); /* the watch shows what has changed */
    assert_false(w->signer.missed);
    see(w, &good);
    answer(w, 500);
    assert_true(w->signer.missed);
    w->signer.missed = false;
    buf_reset(&w->authority.ca_key); /* there is no authority yet: no request is denied for that */
    see(w, &good);
    assert_int_equal(w->asked, 0);
    assert_true(w->signer.missed);
}

static void test_bounded(void **state) {
    struct world *w = *state;
    for (unsigned i = 0; i < AGENT_SIGNER_AT_ONCE + 5; i++)
        see(w, &good);
    assert_int_equal(w->asked, AGENT_SIGNER_AT_ONCE);
    assert_true(w->signer.missed);
    answer(w, 200);
    assert_int_equal(w->signer.in_flight, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_approved_then_signed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_signed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_denied, setup, teardown),
        cmocka_unit_test_setup_teardown(test_later, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bounded, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
