/* SPDX-License-Identifier: Apache-2.0 */

/* The webhook's way from nothing to a server that the API server trusts, and through the years,
 * with a clock and an API server of the test's own. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "scheduler/cluster/endpoints.h"
#include "wire/http.h"
#include "wire/json.h"
#include "wire/json_write.h"

#define DAY INT64_C(86400)

static int64_t clock_now = INT64_C(1790000000);

static int64_t test_clock(void) {
    return clock_now;
}

/* What the API server keeps: the Secret's parts, and the caBundle of each configuration. */
struct server {
    uv_loop_t loop;
    struct endpoints endpoints;
    bool exists, refuse;
    unsigned version, conflicts;
    struct buf parts[4]; /* base64 */
    char *bundles[2];
    char *api_bundles[2];    /* of the APIServices */
    const char *services[2]; /* that they name; NULL: there is no such APIService */
    unsigned writes, patches, api_patches;
    char *config_map; /* its PEM; NULL: there is none */
    unsigned map_writes;
    struct json_parser *parser;
};

static const char *const keys[] = {"ca.crt", "ca.key", "tls.crt", "tls.key"};

static void take_secret(struct server *s, struct json body) {
    for (size_t i = 0; i < 4; i++) {
        const char *pem = json_string(JSON_PATH(body, "stringData", keys[i]));
        gnutls_datum_t data = {(unsigned char *) (uintptr_t) pem, (unsigned) strlen(pem)}, out;
        assert_int_equal(gnutls_base64_encode2(&data, &out), 0);
        buf_reset(&s->parts[i]);
        buf_append(&s->parts[i], out.data, out.size);
        gnutls_free(out.data);
    }
    s->exists = true;
    s->version++;
    s->writes++;
}

static void put_secret(const struct server *s, struct buf *out) {
    buf_printf(out, "{\"metadata\":{\"resourceVersion\":\"%u\"},\"data\":{", s->version);
    for (size_t i = 0; i < 4; i++)
        buf_printf(out, "%s\"%s\":\"%s\"", i ? "," : "", keys[i], buf_str(&s->parts[i]));
    buf_puts(out, "}}");
}

static void put_configuration(const struct server *s, size_t which, struct buf *out) {
    buf_puts(out, "{\"webhooks\":[");
    for (size_t i = 0; i <= which; i++) {
        buf_printf(out, "%s{\"name\":\"w%zu\",\"clientConfig\":{", i ? "," : "", i);
        if (s->bundles[which])
            buf_printf(out, "\"caBundle\":\"%s\"", s->bundles[which]);
        buf_puts(out, "}}");
    }
    buf_puts(out, "]}");
}

static int secret_request(struct server *s, const char *method, struct json body, struct buf *out) {
    if (strcmp(method, "GET") == 0) {
        if (!s->exists)
            return 404;
        put_secret(s, out);
        return 200;
    }
    const char *version = json_string(JSON_PATH(body, "metadata", "resourceVersion"));
    char own[16];
    snprintf(own, sizeof(own), "%u", s->version);
    if (s->conflicts > 0 && s->conflicts-- > 0)
        return 409;
    if (strcmp(method, "POST") == 0 ? s->exists : !version || strcmp(version, own) != 0)
        return 409;
    take_secret(s, body);
    return 200;
}

static int configuration_request(struct server *s, size_t which, const char *method,
                                 struct json body, struct buf *out) {
    if (strcmp(method, "GET") == 0) {
        put_configuration(s, which, out);
        return 200;
    }
    struct json webhooks = json_get(body, "webhooks"), first;
    struct json_iter it = json_iter(webhooks);
    assert_int_equal(json_size(webhooks), which + 1);
    assert_true(json_next(&it, NULL, &first));
    assert_string_equal(json_string(json_get(first, "name")), "w0");
    free(s->bundles[which]);
    s->bundles[which] = strdup(json_string(JSON_PATH(first, "clientConfig", "caBundle")));
    s->patches++;
    return 200;
}

static int api_service_request(struct server *s, size_t which, const char *method, struct json body,
                               struct buf *out) {
    if (!s->services[which])
        return 404;
    if (strcmp(method, "GET") == 0) {
        buf_printf(out,
                   "{\"metadata\":{\"resourceVersion\":\"7\"},\"spec\":{\"service\":{\"name\":"
                   "\"%s\",\"namespace\":\"aliquot-system\"},\"caBundle\":\"%s\"}}",
                   s->services[which], s->api_bundles[which] ? s->api_bundles[which] : "");
        return 200;
    }
    assert_string_equal(json_string(JSON_PATH(body, "metadata", "resourceVersion")), "7");
    free(s->api_bundles[which]);
    s->api_bundles[which] = strdup(json_string(JSON_PATH(body, "spec", "caBundle")));
    s->api_patches++;
    return 200;
}

static int config_map_request(struct server *s, const char *method, const char *type,
                              struct json body, struct buf *out) {
    if (strcmp(method, "GET") == 0) {
        struct json_writer w = {.out = out};
        if (!s->config_map)
            return 404;
        json_object_begin(&w, NULL);
        json_object_begin(&w, "data");
        json_put_string(&w, "ca.crt", s->config_map);
        json_object_end(&w);
        json_object_end(&w);
        return 200;
    }
    assert_string_equal(type, KUBE_APPLY_PATCH);
    assert_true(json_is_string(JSON_PATH(body, "metadata", "name"), "aliquot-authority"));
    free(s->config_map);
    s->config_map = strdup(json_string(JSON_PATH(body, "data", "ca.crt")));
    s->map_writes++;
    return s->map_writes == 1 ? 201 : 200;
}

/* Answers inside the call, which kube_request() does not; the webhook must stand both. */
static int serve(void *context, const char *method, const char *path, const char *content_type,
                 const char *body, size_t size, unsigned timeout_ms, kube_response_cb on_response,
                 void *userdata, struct err *err) {
    struct server *s = context;
    struct json sent = {0};
    _cleanup_buf_ struct buf answer = BUF_INIT(0);
    _cleanup_json_ struct json_parser *parser = NULL, *sent_parser = NULL;
    struct kube_response response = {.text = "", .reason = ""};
    (void) timeout_ms;
    if (s->refuse)
        return err_set(err, EHOSTUNREACH, "away");
    if (size > 0)
        assert_int_equal(json_open(body, size, &sent_parser, &sent, NULL), 0);
    if (strstr(path, "/secrets"))
        response.status = secret_request(s, method, sent, &answer);
    else if (strstr(path, "/namespaces/aliquot-system/configmaps/aliquot-authority"))
        response.status = config_map_request(s, method, content_type, sent, &answer);
    else if (strstr(path, "/apiservices/"))
        response.status =
            api_service_request(s, strstr(path, "external") != NULL, method, sent, &answer);
    else
        response.status =
            configuration_request(s, strstr(path, "validating") != NULL, method, sent, &answer);
    if (answer.len > 0)
        assert_int_equal(json_open(answer.data, answer.len, &parser, &response.body, NULL), 0);
    on_response(&response, userdata);
    return 0;
}

static int begin(void **state, const struct endpoints_options *options) {
    struct server *s = calloc(1, sizeof(*s));
    const struct api api = {serve, s};
    assert_int_equal(uv_loop_init(&s->loop), 0);
    assert_int_equal(endpoints_start(&s->endpoints, &s->loop, &api, options), 0);
    s->endpoints.authority.now = test_clock;
    *state = s;
    return 0;
}

static int setup(void **state) {
    const struct endpoints_options options = {.webhook_listen = "127.0.0.1:0",
                                              .name_space = "aliquot-system"};
    return begin(state, &options);
}

static const struct http_route no_routes[] = {HTTP_ROUTE_END};

/* Without a webhook. */
static int setup_apis(void **state) {
    const struct endpoints_options options = {
        .api_listen = "127.0.0.1:0", .routes = no_routes, .name_space = "aliquot-system"};
    return begin(state, &options);
}

/* With agents that speak TLS, and nothing that the API server calls. */
static int setup_agents(void **state) {
    const struct endpoints_options options = {.agents = true, .name_space = "aliquot-system"};
    return begin(state, &options);
}

static int teardown(void **state) {
    struct server *s = *state;
    endpoints_stop(&s->endpoints);
    (void) uv_run(&s->loop, UV_RUN_DEFAULT);
    endpoints_done(&s->endpoints);
    assert_int_equal(uv_loop_close(&s->loop), 0);
    for (size_t i = 0; i < 4; i++)
        buf_done(&s->parts[i]);
    free(s->bundles[0]);
    free(s->bundles[1]);
    free(s->api_bundles[0]);
    free(s->api_bundles[1]);
    free(s->config_map);
    free(s);
    return 0;
}

static void look(struct server *s) {
    authority_tick(&s->endpoints.authority, UINT64_MAX - 1);
}

static void test_from_nothing(void **state) {
    struct server *s = *state;
    look(s);
    assert_non_null(s->endpoints.webhook);
    assert_int_equal(s->writes, 1);
    assert_int_equal(s->patches, 2);
    assert_string_equal(s->bundles[0], s->bundles[1]);
    look(s); /* nothing is due */
    assert_int_equal(s->writes, 1);
    assert_int_equal(s->patches, 2);
}

static void test_what_somebody_breaks_is_repaired(void **state) {
    struct server *s = *state;
    look(s);
    free(s->bundles[1]); /* kubectl replace */
    s->bundles[1] = NULL;
    look(s);
    assert_string_equal(s->bundles[0], s->bundles[1]);
    s->exists = false; /* kubectl delete secret */
    char *before = strdup(s->bundles[0]);
    look(s);
    assert_int_equal(s->writes, 2);
    assert_string_not_equal(s->bundles[0], before);
    assert_string_equal(s->bundles[0], s->bundles[1]);
    free(before);
}

/* Another replica writes first: its authority counts, for both. */
static void test_another_replica_is_first(void **state) {
    struct server *s = *state;
    struct server *other;
    assert_int_equal(setup((void **) &other), 0);
    look(other);
    s->conflicts = 1;
    look(s);
    assert_null(s->endpoints.webhook);
    assert_int_equal(s->writes, 0);
    for (size_t i = 0; i < 4; i++)
        buf_puts(&s->parts[i], buf_str(&other->parts[i]));
    s->exists = true;
    look(s);
    assert_non_null(s->endpoints.webhook);
    assert_int_equal(s->writes, 0);
    assert_string_equal(s->bundles[0], other->bundles[0]);
    assert_int_equal(teardown((void **) &other), 0);
}

static void test_the_api_server_is_away(void **state) {
    struct server *s = *state;
    s->refuse = true;
    look(s);
    assert_null(s->endpoints.webhook);
    assert_true(s->endpoints.authority.next_ms != UINT64_MAX); /* tries again */
    s->refuse = false;
    look(s);
    assert_non_null(s->endpoints.webhook);
}

/* Over five years, looked at every five days and ten minutes later. */
static void test_renewal(void **state) {
    struct server *s = *state;
    int64_t begin = clock_now;
    look(s);
    char *first = strdup(s->bundles[0]);
    for (int64_t day = 0; day < 5 * 365; day += 5) {
        clock_now = begin + day * DAY;
        look(s);
        clock_now += CERTIFICATE_AUTHORITY_SETTLE_S;
        look(s);
        assert_string_equal(s->bundles[0], s->bundles[1]);
    }
    assert_in_range(s->writes, 28, 36); /* a certificate every sixty days */
    assert_int_equal(s->patches, 4);    /* one new authority, after four years */
    assert_string_not_equal(s->bundles[0], first);
    free(first);
}

/* An APIService of ours is kept right, one that is absent or of another product is left alone. */
static void test_api_services(void **state) {
    struct server *s = *state;
    s->services[1] = METRICS_API_SERVICE;
    look(s);
    assert_null(s->endpoints.webhook);
    assert_non_null(s->endpoints.api);
    assert_int_equal(s->patches, 0);
    assert_int_equal(s->api_patches, 1);
    s->services[0] = "keda-operator-metrics-apiserver";
    look(s);
    assert_int_equal(s->api_patches, 1);
    assert_true(s->endpoints.authority.foreign[2]);
    s->services[0] = METRICS_API_SERVICE; /* the other product has been removed */
    look(s);
    assert_int_equal(s->api_patches, 2);
    assert_false(s->endpoints.authority.foreign[2]);
    assert_string_equal(s->api_bundles[0], s->api_bundles[1]);
    look(s);
    assert_int_equal(s->api_patches, 2);
    free(s->api_bundles[0]); /* kubectl replace */
    s->api_bundles[0] = NULL;
    look(s);
    assert_string_equal(s->api_bundles[0], s->api_bundles[1]);
}

/* The authorities for agents and their clients: made, mended, and the old one beside the new. */
static void test_config_map(void **state) {
    struct server *s = *state;
    look(s);
    assert_null(s->endpoints.webhook);
    assert_int_equal(s->patches, 0);
    assert_int_equal(s->map_writes, 1);
    assert_string_equal(s->config_map, buf_str(&s->endpoints.authority.own.bundle));
    look(s);
    assert_int_equal(s->map_writes, 1);
    char *first = s->config_map;
    s->config_map = NULL; /* kubectl delete configmap */
    look(s);
    assert_string_equal(s->config_map, first);
    clock_now += (CERTIFICATE_AUTHORITY_CA_DAYS - CERTIFICATE_AUTHORITY_CA_SPARE) * DAY + DAY;
    look(s);
    assert_int_equal(s->map_writes, 3);
    assert_non_null(strstr(s->config_map, first)); /* rotation: both */
    assert_string_not_equal(s->config_map, first);
    s->exists = false; /* kubectl delete secret: none of the old ones */
    look(s);
    assert_null(strstr(s->config_map, first));
    free(first);
}

/* Another replica may have replaced it: before it signs, it is read again. */
static void test_fresh(void **state) {
    struct server *s = *state;
    struct authority *a = &s->endpoints.authority;
    assert_false(authority_is_fresh(a));
    look(s);
    assert_true(authority_is_fresh(a));
    assert_int_equal(a->next_ms, uv_now(&s->loop) + AUTHORITY_CHECK_MS);
    a->read_ms = uv_now(&s->loop) - AUTHORITY_FRESH_MS;
    assert_false(authority_is_fresh(a));
    assert_int_equal(a->next_ms, uv_now(&s->loop));
}

/* The Secret is gone, and the authority made anew cannot be stored. */
static void test_not_fresh_before_it_is_stored(void **state) {
    struct server *s = *state;
    struct authority *a = &s->endpoints.authority;
    look(s);
    assert_true(authority_is_fresh(a));
    s->exists = false;
    s->conflicts = 1;
    look(s);
    assert_false(s->exists);
    assert_false(authority_is_fresh(a));
    look(s);
    assert_true(s->exists);
    assert_true(authority_is_fresh(a));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_from_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_somebody_breaks_is_repaired, setup, teardown),
        cmocka_unit_test_setup_teardown(test_another_replica_is_first, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_api_server_is_away, setup, teardown),
        cmocka_unit_test_setup_teardown(test_renewal, setup, teardown),
        cmocka_unit_test_setup_teardown(test_api_services, setup_apis, teardown),
        cmocka_unit_test_setup_teardown(test_config_map, setup_agents, teardown),
        cmocka_unit_test_setup_teardown(test_fresh, setup_agents, teardown),
        cmocka_unit_test_setup_teardown(test_not_fresh_before_it_is_stored, setup_agents, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
