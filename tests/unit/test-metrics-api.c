/* SPDX-License-Identifier: Apache-2.0 */

/* The metrics APIs over TLS: the shapes that kube-apiserver and the HPA controller read, who is
 * answered, and what hostile requests get. The server has a thread, the test is the API server. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <arpa/inet.h>
#include <cmocka.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "fake-agents.h"
#include "kube/objects/assignment.h"
#include "scheduler/metrics_api/access.h"
#include "scheduler/metrics_api/metrics_api.h"
#include "wire/json_write.h"
#include "wire/server_cert.h"

struct pair {
    gnutls_x509_privkey_t key;
    gnutls_x509_crt_t cert;
};

struct world {
    uv_loop_t loop;
    uv_async_t stop;
    pthread_t thread;
    struct fake_agents fakes;
    struct agents *agents;
    struct state *state;
    struct quotas quotas;
    struct metrics_api *api;
    struct server_cert *cert;
    struct http_server *server;
    unsigned port, reviews;
    bool ready, silent; /* the API server answers no review */
    char review[4096];  /* the last one */
    struct pair authority, other;
    struct pair front, wrong_name, wrong_authority, of_server;
};

/* ---- certificates ---- */

static struct pair issue(const char *name, const struct pair *by, const char *purpose) {
    struct pair p;
    gnutls_x509_privkey_init(&p.key);
    gnutls_x509_crt_init(&p.cert);
    assert_int_equal(gnutls_x509_privkey_generate(p.key, GNUTLS_PK_ECDSA,
                                                  GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1),
                                                  0),
                     0);
    gnutls_x509_crt_set_version(p.cert, 3);
    gnutls_x509_crt_set_serial(p.cert, by ? "\2" : "\1", 1);
    gnutls_x509_crt_set_activation_time(p.cert, time(NULL) - 60);
    gnutls_x509_crt_set_expiration_time(p.cert, time(NULL) + 3600);
    gnutls_x509_crt_set_dn_by_oid(p.cert, GNUTLS_OID_X520_COMMON_NAME, 0, name,
                                  (unsigned) strlen(name));
    gnutls_x509_crt_set_key(p.cert, p.key);
    gnutls_x509_crt_set_basic_constraints(p.cert, by ? 0 : 1, -1);
    if (purpose)
        gnutls_x509_crt_set_key_purpose_oid(p.cert, purpose, 0);
    assert_int_equal(gnutls_x509_crt_sign2(p.cert, by ? by->cert : p.cert, by ? by->key : p.key,
                                           GNUTLS_DIG_SHA256, 0),
                     0);
    return p;
}

static void pair_done(struct pair *p) {
    gnutls_x509_crt_deinit(p->cert);
    gnutls_x509_privkey_deinit(p->key);
}

/* ---- the world ---- */

static int verify(const char *uid, const char *node, const char *text, const char *signature,
                  uint64_t *ret_signer, void *userdata) {
    (void) uid, (void) node, (void) text, (void) signature, (void) userdata;
    *ret_signer = 1;
    return 0;
}

static bool is_ready(void *userdata) {
    return ((struct world *) userdata)->ready;
}

/* The API server: "alice" may read what is in namespace "a". */
static int review(void *context, const char *method, const char *path, const char *content_type,
                  const char *body, size_t size, unsigned timeout_ms, kube_response_cb on_response,
                  void *userdata, struct err *err) {
    struct world *w = context;
    _cleanup_json_ struct json_parser *parser = NULL, *answer_parser = NULL;
    struct kube_response response = {.status = 201, .text = "", .reason = ""};
    struct json sent;
    (void) content_type, (void) timeout_ms;
    assert_string_equal(method, "POST");
    assert_string_equal(path, "/apis/authorization.k8s.io/v1/subjectaccessreviews");
    w->reviews++;
    if (w->silent)
        return err_set(err, EHOSTUNREACH, "away");
    (void) snprintf(w->review, sizeof(w->review), "%.*s", (int) size, body);
    assert_int_equal(json_open(body, size, &parser, &sent, NULL), 0);
    bool allowed = json_is_string(JSON_PATH(sent, "spec", "user"), "alice") &&
                   json_is_string(JSON_PATH(sent, "spec", "resourceAttributes", "namespace"), "a");
    const char *text =
        allowed ? "{\"status\":{\"allowed\":true}}" : "{\"status\":{\"allowed\":false}}";
    assert_int_equal(json_open(text, strlen(text), &answer_parser, &response.body, NULL), 0);
    on_response(&response, userdata);
    return 0;
}

/* A pod on a node (NULL: it waits), with a share of a card. */
static void show(struct world *w, const char *namespace, const char *name, const char *app,
                 const char *node) {
    _cleanup_buf_ struct buf text = BUF_INIT(0), share = BUF_INIT(0);
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json_writer out = {.out = &text};
    struct assigned_device device = {
        .uuid = "GPU-0", .core = 50, .memory = 1 << 30, .physical = 1 << 30};
    struct assigned_container container = {.name = "c", .ndevices = 1, .devices = &device};
    struct assignment assignment = {.ncontainers = 1, .containers = &container};
    struct json object;
    struct pod pod;
    struct err err;
    json_object_begin(&out, NULL);
    json_object_begin(&out, "metadata");
    json_put_string(&out, "name", name);
    json_put_string(&out, "namespace", namespace);
    json_put_stringf(&out, "uid", "%s-%s", namespace, name);
    json_object_begin(&out, "labels");
    json_put_string(&out, "app", app);
    json_object_end(&out);
    json_object_begin(&out, "annotations");
    if (node) {
        (void) snprintf(assignment.node, sizeof(assignment.node), "%s", node);
        assignment_encode(&assignment, &share);
        json_put_string(&out, ANNOTATION_ASSIGNMENT, buf_str(&share));
        json_put_string(&out, ANNOTATION_SIGNATURE, "s");
    }
    json_object_end(&out);
    json_object_end(&out);
    json_put_raw(&out, "spec",
                 "{\"containers\":[{\"name\":\"c\",\"resources\":{\"limits\":{"
                 "\"elasticgpu.io/gpu-core\":\"50\",\"elasticgpu.io/gpu-memory\":\"1Gi\"}}}]}");
    json_object_end(&out);
    assert_int_equal(json_open(buf_str(&text), text.len, &parser, &object, &err), 0);
    assert_int_equal(pod_parse(object, &pod, &err), 0);
    if (node)
        (void) snprintf(pod.node, sizeof(pod.node), "%s", node);
    assert_int_equal(state_pod_seen(w->state, &pod, 1), 0);
    pod_done(&pod);
}

static void trust(struct world *w, const struct pair *authority, const char *names) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json_writer out = {.out = &text};
    struct json data;
    gnutls_datum_t pem;
    json_object_begin(&out, NULL);
    if (authority) {
        assert_int_equal(gnutls_x509_crt_export2(authority->cert, GNUTLS_X509_FMT_PEM, &pem), 0);
        json_put_string(&out, "requestheader-client-ca-file", (const char *) pem.data);
        gnutls_free(pem.data);
    }
    json_put_string(&out, "requestheader-allowed-names", names);
    json_object_end(&out);
    assert_int_equal(json_open(buf_str(&text), text.len, &parser, &data, NULL), 0);
    metrics_api_trust(w->api, data);
}

static void on_stop(uv_async_t *async) {
    struct world *w = async->data;
    agents_close(w->agents);
    http_server_close(w->server);
    fake_agents_stop(&w->fakes);
    uv_close((uv_handle_t *) &w->stop, NULL);
}

static void *serve(void *userdata) {
    (void) uv_run(&((struct world *) userdata)->loop, UV_RUN_DEFAULT);
    return NULL;
}

static void start_server(struct world *w) {
    gnutls_datum_t cert, key;
    struct err err;
    assert_int_equal(gnutls_x509_crt_export2(w->of_server.cert, GNUTLS_X509_FMT_PEM, &cert), 0);
    assert_int_equal(gnutls_x509_privkey_export2(w->of_server.key, GNUTLS_X509_FMT_PEM, &key), 0);
    assert_int_equal(
        server_cert_new((const char *) cert.data, (const char *) key.data, &w->cert, &err), 0);
    gnutls_free(cert.data);
    gnutls_free(key.data);
    const struct http_options options = {.listen = "127.0.0.1:0",
                                         .server_cert = w->cert,
                                         .client_certs = true,
                                         .routes = metrics_api_routes,
                                         .userdata = w->api};
    assert_int_equal(http_server_start(&w->loop, &options, &w->server, &err), 0);
    w->port = http_server_port(w->server);
}

static void show_pods(struct world *w) {
    show(w, "a", "one", "w", "n0");
    show(w, "a", "two", "w", "n1");
    show(w, "a", "three", "x", "n0");
    show(w, "a", "waits", "w", NULL);
    show(w, "b", "one", "w", "n0");
    w->fakes.of[0].page = PAGE(HOLDER("a-one", 50, 212500, 100, 200, 400, 0) "," HOLDER(
        "a-three", 50, 100000, 100, 200, 400, 0) "," HOLDER("b-one", 50, 0, 1, 1, 1, 0));
    w->fakes.of[1].page = PAGE(HOLDER("a-two", 50, 500000, 3000, 1, 4000, 0));
}

static int setup(void **state) {
    struct world *w = calloc(1, sizeof(*w));
    assert_int_equal(uv_loop_init(&w->loop), 0);
    assert_int_equal(uv_async_init(&w->loop, &w->stop, on_stop), 0);
    w->stop.data = w;
    w->ready = true;
    w->authority = issue("authority", NULL, NULL);
    w->other = issue("authority", NULL, NULL);
    w->front = issue("front-proxy-client", &w->authority, GNUTLS_KP_TLS_WWW_CLIENT);
    w->wrong_name = issue("kubelet", &w->authority, GNUTLS_KP_TLS_WWW_CLIENT);
    w->wrong_authority = issue("front-proxy-client", &w->other, GNUTLS_KP_TLS_WWW_CLIENT);
    w->of_server = issue("front-proxy-client", &w->authority, GNUTLS_KP_TLS_WWW_SERVER);
    fake_agents_start(&w->fakes, &w->loop);
    const struct agents_options of_agents = {.loop = &w->loop, .port = w->fakes.port};
    w->agents = agents_new(&of_agents);
    assert_int_equal(agents_see(w->agents, "0", "n0", w->fakes.of[0].address, false), 0);
    assert_int_equal(agents_see(w->agents, "1", "n1", w->fakes.of[1].address, false), 0);
    w->state = state_new(verify, w);
    w->quotas = (struct quotas){.state = w->state};
    show_pods(w);
    const struct metrics_api_options options = {.api = {review, w},
                                                .state = w->state,
                                                .quotas = &w->quotas,
                                                .agents = w->agents,
                                                .ready = is_ready,
                                                .userdata = w};
    w->api = metrics_api_new(&options);
    trust(w, &w->authority, "[\"front-proxy-client\"]");
    start_server(w);
    *state = w;
    assert_int_equal(pthread_create(&w->thread, NULL, serve, w), 0);
    return 0;
}

static int teardown(void **state) {
    struct world *w = *state;
    uv_async_send(&w->stop);
    pthread_join(w->thread, NULL);
    assert_int_equal(uv_loop_close(&w->loop), 0);
    w->api = metrics_api_free(w->api);
    quotas_done(&w->quotas);
    w->state = state_free(w->state);
    w->cert = server_cert_free(w->cert);
    struct pair *const pairs[] = {&w->authority,  &w->other,           &w->front,
                                  &w->wrong_name, &w->wrong_authority, &w->of_server};
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
        pair_done(pairs[i]);
    free(w);
    return 0;
}

/* ---- the client ---- */

static gnutls_session_t connect_as(const struct world *w, const struct pair *who,
                                   gnutls_certificate_credentials_t *ret) {
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t) w->port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    gnutls_session_t session;
    int fd = socket(AF_INET, SOCK_STREAM, 0), r;
    assert_int_equal(connect(fd, (struct sockaddr *) &to, sizeof(to)), 0);
    assert_int_equal(gnutls_certificate_allocate_credentials(ret), 0);
    if (who) {
        gnutls_x509_crt_t chain = who->cert;
        assert_int_equal(gnutls_certificate_set_x509_key(*ret, &chain, 1, who->key), 0);
    }
    assert_int_equal(gnutls_init(&session, GNUTLS_CLIENT), 0);
    assert_int_equal(gnutls_set_default_priority(session), 0);
    assert_int_equal(gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, *ret), 0);
    gnutls_transport_set_int(session, fd);
    while ((r = gnutls_handshake(session)) < 0)
        assert_int_equal(gnutls_error_is_fatal(r), 0);
    return session;
}

/* The status of GET; *ret is the body with times replaced. */
static unsigned get(const struct world *w, const struct pair *who, const char *path,
                    const char *headers, char ret[static 8192]) {
    gnutls_certificate_credentials_t credentials;
    gnutls_session_t session = connect_as(w, who, &credentials);
    char request[8192], answer[16384];
    size_t len = 0;
    ssize_t n;
    int size = snprintf(request, sizeof(request),
                        "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%s\r\n", path, headers);
    assert_int_equal(gnutls_record_send(session, request, (size_t) size), size);
    while ((n = gnutls_record_recv(session, answer + len, sizeof(answer) - 1 - len)) > 0 ||
           n == GNUTLS_E_AGAIN || n == GNUTLS_E_INTERRUPTED)
        len += n > 0 ? (size_t) n : 0;
    answer[len] = '\0';
    (void) close(gnutls_transport_get_int(session));
    gnutls_deinit(session);
    gnutls_certificate_free_credentials(credentials);
    const char *body = strstr(answer, "\r\n\r\n");
    (void) snprintf(ret, 8192, "%s", body ? body + 4 : "");
    for (char *at = ret; (at = strstr(at, "\"timestamp\":\"")); at++)
        memcpy(at + 13, "TTTT-TT-TTTTT:TT:TTZ", 20);
    unsigned status = 0;
    assert_int_equal(sscanf(answer, "HTTP/1.1 %u", &status), 1);
    return status;
}

#define ALICE "X-Remote-User: alice\r\nX-Remote-Group: system:authenticated\r\n"
#define CUSTOM "/apis/custom.metrics.k8s.io/v1beta2"
#define EXTERNAL "/apis/external.metrics.k8s.io/v1beta1"
#define PODS CUSTOM "/namespaces/a/pods/"

static void expect(const struct world *w, const char *path, unsigned status, const char *body) {
    char got[8192];
    unsigned r = get(w, &w->front, path, ALICE, got);
    assert_string_equal(got, body);
    assert_int_equal(r, status);
}

/* ---- shapes ---- */

#define RESOURCE(name, kind)                                                                       \
    "{\"name\":\"" name "\",\"singularName\":\"\",\"namespaced\":true,\"kind\":\"" kind            \
    "\",\"verbs\":[\"get\"]}"
#define KIND "MetricValueList"
#define EXTERNAL_KIND "ExternalMetricValueList"
static const char discovery[] =
    "{\"kind\":\"APIResourceList\",\"apiVersion\":\"v1\",\"groupVersion\":\"custom.metrics.k8s.io/"
    "v1beta2\",\"resources\":[" RESOURCE("pods/gpu_utilization", KIND) "," RESOURCE(
        "pods/gpu_memory_used_bytes", KIND) "," RESOURCE("pods/gpu_memory_used_ratio",
                                                         KIND) "," RESOURCE("pods/"
                                                                            "gpu_throttled_ratio",
                                                                            KIND) "]}\n";
static const char external_discovery[] =
    "{\"kind\":\"APIResourceList\",\"apiVersion\":\"v1\",\"groupVersion\":\"external.metrics.k8s."
    "io/v1beta1\",\"resources\":[" RESOURCE("gpu_waiting_pods", EXTERNAL_KIND) "," RESOURCE(
        "gpu_wanted_cards",
        EXTERNAL_KIND) "," RESOURCE("gpu_used_cards",
                                    EXTERNAL_KIND) "," RESOURCE("gpu_used_memory_bytes",
                                                                EXTERNAL_KIND) "]}\n";

/* Also by a replica that knows nothing yet, and to a client that is not known. */
static void test_discovery(void **state) {
    struct world *w = *state;
    char got[8192];
    w->ready = false;
    expect(w, CUSTOM, 200, discovery);
    expect(w, CUSTOM "/", 200, discovery);
    expect(w, EXTERNAL, 200, external_discovery);
    assert_int_equal(get(w, NULL, CUSTOM, "", got), 200);
    assert_int_equal(w->reviews, 0);
}

#define ITEM(pod, metric, value)                                                                   \
    "{\"describedObject\":{\"kind\":\"Pod\",\"namespace\":\"a\",\"name\":\"" pod                   \
    "\",\"apiVersion\":\"/v1\"},\"metric\":{\"name\":\"" metric                                    \
    "\",\"selector\":null},\"timestamp\":\"TTTT-TT-TTTTT:TT:TTZ\",\"value\":\"" value "\"}"
#define LIST(items)                                                                                \
    "{\"kind\":\"MetricValueList\",\"apiVersion\":\"custom.metrics.k8s.io/"                        \
    "v1beta2\",\"metadata\":{},\"items\":[" items "]}\n"

static void test_pods(void **state) {
    const struct world *w = *state;
    expect(
        w, PODS "%2A/gpu_utilization?labelSelector=app%3Dw", 200,
        LIST(ITEM("one", "gpu_utilization", "42500m") "," ITEM("two", "gpu_utilization", "100")));
    expect(w, PODS "*/gpu_memory_used_bytes?labelSelector=app+in+%28w%29", 200,
           LIST(ITEM("one", "gpu_memory_used_bytes", "200") "," ITEM("two", "gpu_memory_used_bytes",
                                                                     "3000")));
    expect(w, PODS "two/gpu_memory_used_ratio", 200,
           LIST(ITEM("two", "gpu_memory_used_ratio", "750m")));
    expect(w, PODS "%2A/gpu_utilization?labelSelector=app%3Dnone", 200, LIST(""));
    expect(w, PODS "%2A/gpu_throttled_ratio", 200, LIST("")); /* one answer says nothing */
}

#define SUM(metric, value)                                                                         \
    "{\"kind\":\"ExternalMetricValueList\",\"apiVersion\":\"external.metrics.k8s.io/"              \
    "v1beta1\",\"metadata\":{},\"items\":[{\"metricName\":\"" metric                               \
    "\",\"metricLabels\":{},\"timestamp\":\"TTTT-TT-TTTTT:TT:TTZ\",\"value\":\"" value "\"}]}\n"

#define NO_SUM                                                                                     \
    "{\"kind\":\"ExternalMetricValueList\",\"apiVersion\":\"external.metrics.k8s.io/"              \
    "v1beta1\",\"metadata\":{},\"items\":[]}\n"

static void test_sums(void **state) {
    const struct world *w = *state;
    expect(w, EXTERNAL "/namespaces/a/gpu_waiting_pods", 200, SUM("gpu_waiting_pods", "1"));
    expect(w, EXTERNAL "/namespaces/a/gpu_waiting_pods?labelSelector=app%3Dx", 200,
           SUM("gpu_waiting_pods", "0"));
    expect(w, EXTERNAL "/namespaces/a/gpu_wanted_cards", 200, SUM("gpu_wanted_cards", "500m"));
    expect(w, EXTERNAL "/namespaces/a/gpu_used_cards?labelSelector=app%21%3Dx", 200,
           SUM("gpu_used_cards", "713m"));
    expect(w, EXTERNAL "/namespaces/a/gpu_used_memory_bytes", 200,
           SUM("gpu_used_memory_bytes", "3400"));
}

/* Figures of pods are left out where the agent does not answer, and nothing else is. There is no
 * sum then: it would be too small. */
static void test_an_agent_is_away(void **state) {
    struct world *w = *state;
    w->fakes.of[1].hangs = true;
    expect(w, PODS "%2A/gpu_utilization?labelSelector=app%3Dw", 200,
           LIST(ITEM("one", "gpu_utilization", "42500m")));
    char got[8192];
    assert_int_equal(get(w, &w->front, PODS "two/gpu_utilization", ALICE, got), 404);
    expect(w, EXTERNAL "/namespaces/a/gpu_used_cards?labelSelector=app%3Dw", 200, NO_SUM);
    expect(w, EXTERNAL "/namespaces/a/gpu_used_memory_bytes", 200, NO_SUM);
}

/* ---- who is answered ---- */

static void test_certificates(void **state) {
    struct world *w = *state;
    char got[8192];
    const struct pair *const strangers[] = {NULL, &w->wrong_name, &w->wrong_authority,
                                            &w->of_server};
    for (size_t i = 0; i < sizeof(strangers) / sizeof(strangers[0]); i++) {
        assert_int_equal(get(w, strangers[i], PODS "one/gpu_utilization", ALICE, got), 401);
        assert_non_null(strstr(got, "\"reason\":\"Unauthorized\""));
    }
    assert_int_equal(w->reviews, 0);
    assert_int_equal(get(w, &w->front, PODS "one/gpu_utilization", ALICE, got), 200);
}

/* What the ConfigMap says now counts for connections that come after. */
static void test_trust_changes(void **state) {
    struct world *w = *state;
    char got[8192];
    static const struct {
        bool other;
        const char *names;
        unsigned front, name, authority;
    } cases[] = {
        {false, "[]", 200, 200, 401},       {true, "[\"x\",\"front-proxy-client\"]", 401, 401, 200},
        {false, "not JSON", 401, 401, 401}, {false, "{}", 401, 401, 401},
        {false, "[1]", 401, 401, 401},      {false, "[\"front-proxy-client\"]", 200, 401, 401},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        trust(w, cases[i].other ? &w->other : &w->authority, cases[i].names);
        assert_int_equal(get(w, &w->front, PODS "one/gpu_utilization", ALICE, got), cases[i].front);
        assert_int_equal(get(w, &w->wrong_name, PODS "one/gpu_utilization", ALICE, got),
                         cases[i].name);
        assert_int_equal(get(w, &w->wrong_authority, PODS "one/gpu_utilization", ALICE, got),
                         cases[i].authority);
    }
    trust(w, NULL, "[]");
    assert_int_equal(get(w, &w->front, PODS "one/gpu_utilization", ALICE, got), 401);
    assert_non_null(strstr(got, "not known"));
}

static void test_users(void **state) {
    struct world *w = *state;
    char got[8192];
    static const char other[] = CUSTOM "/namespaces/b/pods/%2A/gpu_utilization";
    assert_int_equal(get(w, &w->front, PODS "one/gpu_utilization", "", got), 401);
    assert_int_equal(get(w, &w->front, PODS "one/gpu_utilization", "X-Remote-User: \r\n", got),
                     401);
    assert_int_equal(w->reviews, 0);
    assert_int_equal(get(w, &w->front, other, ALICE, got), 403);
    assert_null(strstr(got, "one"));
    assert_int_equal(get(w, &w->front, PODS "one/gpu_utilization", "X-Remote-User: bob\r\n", got),
                     403);
    assert_int_equal(w->reviews, 2);
    assert_int_equal(get(w, &w->front, other, ALICE, got), 403);
    assert_int_equal(w->reviews, 2); /* kept */
    w->silent = true;
    assert_int_equal(get(w, &w->front, PODS "two/gpu_utilization", ALICE, got), 503);
    w->silent = false;
    assert_int_equal(get(w, &w->front, PODS "two/gpu_utilization",
                         "X-Remote-User: alice\r\nX-Remote-Uid: 7\r\nX-Remote-Group: g\r\n"
                         "X-Remote-Group: h\"\r\nX-Remote-Extra-Acme.com%2Fid: v\r\n"
                         "X-Remote-Extra-Other: x\r\nX-Remote-Extra-Acme.com%2fID: u\r\n",
                         got),
                     200);
    assert_string_equal(
        w->review,
        "{\"apiVersion\":\"authorization.k8s.io/v1\",\"kind\":\"SubjectAccessReview\",\"spec\":{"
        "\"user\":\"alice\",\"groups\":[\"g\",\"h\\\"\"],\"extra\":{\"acme.com/id\":["
        "\"v\",\"u\"],\"other\":[\"x\"]},\"resourceAttributes\":{\"namespace\":\"a\",\"verb\":"
        "\"get\",\"group\":\"custom."
        "metrics.k8s.io\",\"version\":\"v1beta2\",\"resource\":\"pods\",\"subresource\":\"gpu_"
        "utilization\",\"name\":\"two\"}}}");
    assert_int_equal(get(w, &w->front, EXTERNAL "/namespaces/a/gpu_used_cards", ALICE, got), 200);
    assert_non_null(strstr(w->review, "\"verb\":\"list\",\"group\":\"external.metrics.k8s.io\","
                                      "\"version\":\"v1beta1\",\"resource\":\"gpu_used_cards\"}"));
}

/* ---- hostile requests ---- */

static void test_paths(void **state) {
    struct world *w = *state;
    static const struct {
        const char *path;
        unsigned status;
    } cases[] = {
        {"/", 404},
        {"/apis", 404},
        {"/openapi/v2", 404},
        {"/apis/custom.metrics.k8s.io/v1beta1", 404},
        {"/apis/custom.metrics.k8s.io/v1beta22", 404},
        {CUSTOM "/namespaces", 404},
        {CUSTOM "/namespaces/a/pods/one", 404},
        {CUSTOM "/namespaces/a/services/one/gpu_utilization", 404},
        {CUSTOM "/namespaces/a/pods/one/gpu_utilization/more", 404},
        {CUSTOM "/namespaces/%2A/pods/%2A/gpu_utilization", 404},
        {CUSTOM "/namespaces/../pods/%2A/gpu_utilization", 404},
        {CUSTOM "/namespaces/b%2F..%2Fa/pods/%2A/gpu_utilization", 404},
        {CUSTOM "/namespaces/A/pods/%2A/gpu_utilization", 404},
        {PODS "%2A%2A/gpu_utilization", 404},
        {PODS "one%22/gpu_utilization", 404},
        {PODS "one/gpu_speed", 404},
        {PODS "one/pods_gpu_utilization", 404},
        {PODS "one/gpu_utilization?labelSelector=app%3D%3D%3D", 400},
        {PODS "one/gpu_utilization?labelSelector=%2C", 400},
        {PODS "one/gpu_utilization?labelSelector=a+in+%28b", 400},
        {PODS "one/gpu_utilization?metricLabelSelector=a%3Db", 400},
        {EXTERNAL "/namespaces/a/gpu_used_cards/x", 404},
        {EXTERNAL "/namespaces/a/gpu_utilization", 404},
    };
    char got[8192], path[8192];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        unsigned status = get(w, &w->front, cases[i].path, ALICE, got);
        if (status != cases[i].status)
            fail_msg("%s: %u %s", cases[i].path, status, got);
    }
    assert_int_equal(w->reviews, 0);
    (void) snprintf(path, sizeof(path), PODS "%0300d/gpu_utilization", 0);
    assert_int_equal(get(w, &w->front, path, ALICE, got), 404);
    size_t len = (size_t) snprintf(path, sizeof(path), PODS "one/gpu_utilization?labelSelector=a");
    for (unsigned i = 0; i < 100; i++)
        len += (size_t) snprintf(path + len, sizeof(path) - len, ",a");
    assert_int_equal(get(w, &w->front, path, ALICE, got), 400); /* more terms than are read */
}

static void test_knows_nothing_yet(void **state) {
    struct world *w = *state;
    char got[8192];
    w->ready = false;
    assert_int_equal(get(w, &w->front, PODS "one/gpu_utilization", ALICE, got), 503);
    w->ready = true;
    assert_int_equal(get(w, &w->front, PODS "one/gpu_utilization", ALICE, got), 200);
}

static void send_get(gnutls_session_t session, const char *path, const char *headers) {
    char request[1024];
    int size =
        snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\nHost: x\r\n%s\r\n", path, headers);
    assert_int_equal(gnutls_record_send(session, request, (size_t) size), size);
}

/* The status of an answer that is one JSON document with a line end. */
static unsigned read_answer(gnutls_session_t session) {
    char answer[4096] = "";
    size_t len = 0;
    unsigned status = 0;
    while (!strstr(answer, "}\n")) {
        ssize_t n = gnutls_record_recv(session, answer + len, sizeof(answer) - 1 - len);
        assert_true(n > 0 || n == GNUTLS_E_AGAIN || n == GNUTLS_E_INTERRUPTED);
        len += n > 0 ? (size_t) n : 0;
        answer[len] = '\0';
    }
    assert_int_equal(sscanf(answer, "HTTP/1.1 %u", &status), 1);
    return status;
}

static unsigned get_again(gnutls_session_t session, const char *path, const char *headers) {
    send_get(session, path, headers);
    return read_answer(session);
}

static void end_session(gnutls_session_t session, gnutls_certificate_credentials_t credentials) {
    (void) close(gnutls_transport_get_int(session));
    gnutls_deinit(session);
    gnutls_certificate_free_credentials(credentials);
}

/* One user's questions that wait for an agent leave room for another's. */
static void test_questions_of_one_user_are_bounded(void **state) {
    struct world *w = *state;
    gnutls_certificate_credentials_t credentials[METRICS_VALUES_OF_USER + 4];
    gnutls_session_t sessions[METRICS_VALUES_OF_USER + 4];
    unsigned refused = 0, late = 0;
    char got[8192];
    w->fakes.of[0].hangs = true;
    for (unsigned i = 0; i < METRICS_VALUES_OF_USER + 4; i++)
        sessions[i] = connect_as(w, &w->front, &credentials[i]);
    for (unsigned i = 0; i < METRICS_VALUES_OF_USER + 4; i++)
        send_get(sessions[i], PODS "one/gpu_utilization", ALICE);
    assert_int_equal(get(w, &w->front, CUSTOM, "", got), 200);
    assert_int_equal(get(w, &w->front, PODS "one/gpu_utilization", "X-Remote-User: bob\r\n", got),
                     403);
    for (unsigned i = 0; i < METRICS_VALUES_OF_USER + 4; i++) {
        unsigned status = read_answer(sessions[i]);
        refused += status == 429;
        late += status == 404;
        end_session(sessions[i], credentials[i]);
    }
    assert_int_equal(late, METRICS_VALUES_OF_USER);
    assert_int_equal(refused, 4);
}

/* As many users as there are answers that are kept, and more. */
static void test_answers_are_bounded(void **state) {
    struct world *w = *state;
    gnutls_certificate_credentials_t credentials;
    gnutls_session_t session = connect_as(w, &w->front, &credentials);
    size_t before = mallinfo2().uordblks;
    char headers[128];
    for (unsigned i = 0; i < 20 * ACCESS_MAX; i++) {
        (void) snprintf(headers, sizeof(headers), "X-Remote-User: user%u\r\n", i);
        assert_int_equal(get_again(session, PODS "one/gpu_utilization", headers), 403);
    }
    assert_int_equal(w->reviews, 20 * ACCESS_MAX);
    assert_in_range(mallinfo2().uordblks, 0, before + ((size_t) 1 << 20));
    assert_int_equal(get_again(session, PODS "one/gpu_utilization", ALICE), 200);
    end_session(session, credentials);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_discovery),
        TEST(test_pods),
        TEST(test_sums),
        TEST(test_an_agent_is_away),
        TEST(test_certificates),
        TEST(test_trust_changes),
        TEST(test_users),
        TEST(test_paths),
        TEST(test_knows_nothing_yet),
        TEST(test_questions_of_one_user_are_bounded),
        TEST(test_answers_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
