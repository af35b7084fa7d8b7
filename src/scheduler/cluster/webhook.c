/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/cluster/webhook.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "admission/admission.h"
#include "base/err.h"
#include "base/log.h"
#include "wire/http.h"
#include "wire/json.h"
#include "wire/json_write.h"
#include "wire/server_cert.h"

#define REQUEST_TIMEOUT_MS 10000
#define REVIEW_MAX ((size_t) 8 << 20) /* two versions of a pod; etcd takes 1.5 MB of each */
#define BODY_MAX (CERTIFICATE_AUTHORITY_PEM_MAX * 8)
/* An API server uses a connection for each request under way: more than METRICS_VALUES_MAX of them,
 * so that its checks of availability are answered beside them. */
#define API_CONNECTIONS 512
#define API_CONNECTIONS_OF_ONE 192
#define JSON_TYPE "application/json"
#define CONFIGURATIONS "/apis/admissionregistration.k8s.io/v1/"
#define API_SERVICES "/apis/apiregistration.k8s.io/v1/apiservices/"

/* ---- the server ---- */

typedef int (*review_verb)(struct admission *a, const char *body, size_t len, struct buf *out,
                           struct err *err);

static void reply_review(struct http_exchange *exchange, struct webhook *w, review_verb review) {
    struct buf out = BUF_INIT(REVIEW_MAX * 2);
    struct err err;
    size_t len;
    const char *body = http_body(exchange, &len);
    if (review(w->admission, body, len, &out, &err) == 0) {
        http_reply(exchange, 200, JSON_TYPE, &out);
        return;
    }
    buf_done(&out);
    http_reply_text(exchange, 400, err.text);
}

static void on_mutate(struct http_exchange *exchange, void *userdata) {
    reply_review(exchange, userdata, admission_mutate);
}

static void on_validate(struct http_exchange *exchange, void *userdata) {
    reply_review(exchange, userdata, admission_validate);
}

static const struct http_route routes[] = {
    {"POST", "/mutate", on_mutate},
    {"POST", "/validate", on_validate},
    HTTP_ROUTE_END,
};

static int listen_for(struct webhook *w, const struct http_options *options, const char *what,
                      struct http_server **server, struct err *err) {
    if (!options->listen || *server)
        return 0;
    int r = http_server_start(w->loop, options, server, err);
    if (r == 0)
        log_info("%s on %s", what, options->listen);
    return r;
}

/* What the authority has now is what the next client is shown. */
static int serve(struct webhook *w, struct err *err) {
    const char *cert = buf_str(&w->authority.cert), *key = buf_str(&w->authority.key);
    int r = w->server_cert ? server_cert_set(w->server_cert, cert, key, err)
                           : server_cert_new(cert, key, &w->server_cert, err);
    const struct http_options webhook = {.listen = w->options.listen,
                                         .server_cert = w->server_cert,
                                         .share_port = true,
                                         .routes = routes,
                                         .userdata = w,
                                         .max_body = REVIEW_MAX};
    const struct http_options apis = {.listen = w->options.api_listen,
                                      .server_cert = w->server_cert,
                                      .client_certs = true,
                                      .share_port = true,
                                      .routes = w->options.routes,
                                      .userdata = w->options.userdata,
                                      .max_connections = API_CONNECTIONS,
                                      .max_per_client = API_CONNECTIONS_OF_ONE};
    if (r == 0)
        r = listen_for(w, &webhook, "the admission webhook listens", &w->server, err);
    if (r == 0)
        r = listen_for(w, &apis, "the metrics APIs are served", &w->api_server, err);
    return r;
}

/* ---- a round: Secret, then each place of the bundle ---- */

static void end_round(struct webhook *w, uint64_t after_ms) {
    w->next_ms = uv_now(w->loop) + after_ms;
}

static void fail(struct webhook *w, const char *what, const char *why) {
    if (!w->failing)
        log_warn("what the API server calls: %s: %s; trying again", what, why);
    w->failing = true;
    end_round(w, WEBHOOK_RETRY_MS);
}

static void request(struct webhook *w, const char *method, const char *path, const char *type,
                    const struct buf *body, kube_response_cb callback) {
    struct err err;
    if (w->api.request(w->api.context, method, path, type, body ? body->data : NULL,
                       body ? body->len : 0, REQUEST_TIMEOUT_MS, callback, w, &err) < 0)
        fail(w, "cannot ask the API server", err.text);
}

static const char *secret_path(const struct webhook *w, const char *name, char path[static 512]) {
    (void) snprintf(path, 512, "/api/v1/namespaces/%s/secrets%s", w->options.name_space, name);
    return path;
}

/* -- where the bundle is written -- */

enum bundle_state {
    BUNDLE_GOOD,
    BUNDLE_STALE,
    BUNDLE_FOREIGN, /* the object is another product's */
};

struct place {
    const char *path;
    const char *patch; /* media type */
    bool api;          /* of the metrics APIs, and may be absent; else of the webhook */
    enum bundle_state (*look)(const struct webhook *w, struct json object, const char *bundle);
    void (*put)(struct json object, const char *bundle, struct json_writer *out);
};

static enum bundle_state look_at_webhooks(const struct webhook *w, struct json object,
                                          const char *bundle) {
    struct json_iter it = json_iter(json_get(object, "webhooks"));
    struct json webhook;
    (void) w;
    while (json_next(&it, NULL, &webhook))
        if (!json_is_string(JSON_PATH(webhook, "clientConfig", "caBundle"), bundle))
            return BUNDLE_STALE;
    return BUNDLE_GOOD;
}

static void put_webhooks(struct json object, const char *bundle, struct json_writer *out) {
    struct json_iter it = json_iter(json_get(object, "webhooks"));
    struct json webhook;
    json_array_begin(out, "webhooks");
    while (json_next(&it, NULL, &webhook)) {
        json_object_begin(out, NULL);
        json_put_string(out, "name", json_string(json_get(webhook, "name")));
        json_object_begin(out, "clientConfig");
        json_put_string(out, "caBundle", bundle);
        json_object_end(out);
        json_object_end(out);
    }
    json_array_end(out);
}

static enum bundle_state look_at_api_service(const struct webhook *w, struct json object,
                                             const char *bundle) {
    struct json service = JSON_PATH(object, "spec", "service");
    if (!json_is_string(json_get(service, "name"), METRICS_API_SERVICE) ||
        !json_is_string(json_get(service, "namespace"), w->options.name_space))
        return BUNDLE_FOREIGN;
    return json_is_string(JSON_PATH(object, "spec", "caBundle"), bundle) ? BUNDLE_GOOD
                                                                         : BUNDLE_STALE;
}

/* With the version that was looked at: meanwhile it may have become another product's. */
static void put_api_service(struct json object, const char *bundle, struct json_writer *out) {
    json_object_begin(out, "metadata");
    json_put_string(out, "resourceVersion",
                    json_string(JSON_PATH(object, "metadata", "resourceVersion")));
    json_object_end(out);
    json_object_begin(out, "spec");
    json_put_string(out, "caBundle", bundle);
    json_object_end(out);
}

static const struct place places[WEBHOOK_PLACES] = {
    {CONFIGURATIONS "mutatingwebhookconfigurations/" WEBHOOK_CONFIGURATION, KUBE_STRATEGIC_PATCH,
     false, look_at_webhooks, put_webhooks},
    {CONFIGURATIONS "validatingwebhookconfigurations/" WEBHOOK_CONFIGURATION, KUBE_STRATEGIC_PATCH,
     false, look_at_webhooks, put_webhooks},
    {API_SERVICES "v1beta2.custom.metrics.k8s.io", KUBE_MERGE_PATCH, true, look_at_api_service,
     put_api_service},
    {API_SERVICES "v1beta1.external.metrics.k8s.io", KUBE_MERGE_PATCH, true, look_at_api_service,
     put_api_service},
};

static void next_place(struct webhook *w);

static void place_is_done(struct webhook *w) {
    w->step++;
    next_place(w);
}

static void on_place_written(const struct kube_response *response, void *userdata) {
    struct webhook *w = userdata;
    if (response->status == 409) {
        end_round(w, 0); /* another replica was first, it seems */
        return;
    }
    if (response->status < 200 || response->status >= 300) {
        fail(w, places[w->step].path, response->text);
        return;
    }
    log_info("the API server is told whom to trust (%s)", places[w->step].path);
    place_is_done(w);
}

/* The bundle as in a configuration: base64. */
static int encode_bundle(const struct webhook *w, gnutls_datum_t *ret) {
    gnutls_datum_t pem = {(unsigned char *) w->authority.bundle.data,
                          (unsigned) w->authority.bundle.len};
    return gnutls_base64_encode2(&pem, ret);
}

static void write_place(struct webhook *w, struct json object, const char *bundle) {
    const struct place *place = &places[w->step];
    _cleanup_buf_ struct buf body = BUF_INIT(BODY_MAX);
    struct json_writer out = {.out = &body};
    json_object_begin(&out, NULL);
    place->put(object, bundle, &out);
    json_object_end(&out);
    request(w, "PATCH", place->path, place->patch, &body, on_place_written);
}

static void leave_foreign(struct webhook *w, struct json object) {
    struct json service = JSON_PATH(object, "spec", "service");
    if (!w->foreign[w->step])
        log_warn("%s is of Service %s/%s: Aliquot stays away from it, and its metrics are not to "
                 "be had by this API (docs/autoscaling.md)",
                 places[w->step].path, json_string_or(json_get(service, "namespace"), "-"),
                 json_string_or(json_get(service, "name"), "-"));
    w->foreign[w->step] = true;
}

static void on_place(const struct kube_response *response, void *userdata) {
    struct webhook *w = userdata;
    const struct place *place = &places[w->step];
    gnutls_datum_t bundle = {0};
    if (response->status == 404 && place->api) {
        place_is_done(w);
        return;
    }
    if (response->status != 200) {
        fail(w, place->path, response->text);
        return;
    }
    if (encode_bundle(w, &bundle) < 0) {
        fail(w, "cannot write the bundle", "out of memory");
        return;
    }
    enum bundle_state state = place->look(w, response->body, (const char *) bundle.data);
    if (state == BUNDLE_FOREIGN)
        leave_foreign(w, response->body);
    else
        w->foreign[w->step] = false;
    if (state == BUNDLE_STALE)
        write_place(w, response->body, (const char *) bundle.data);
    else
        place_is_done(w);
    gnutls_free(bundle.data);
}

static bool is_wanted(const struct webhook *w, const struct place *place) {
    return place->api ? w->options.api_listen != NULL : w->options.listen != NULL;
}

static void next_place(struct webhook *w) {
    while (w->step < WEBHOOK_PLACES && !is_wanted(w, &places[w->step]))
        w->step++;
    if (w->step < WEBHOOK_PLACES) {
        request(w, "GET", places[w->step].path, NULL, NULL, on_place);
        return;
    }
    if (w->failing)
        log_info("what the API server calls is in order");
    w->failing = false;
    end_round(w, WEBHOOK_CHECK_MS);
}

/* -- the Secret -- */

static const struct {
    const char *key;
    size_t at; /* of the buffer in struct certificate_authority */
} parts[] = {
    {"ca.crt", offsetof(struct certificate_authority, bundle)},
    {"ca.key", offsetof(struct certificate_authority, ca_key)},
    {"tls.crt", offsetof(struct certificate_authority, cert)},
    {"tls.key", offsetof(struct certificate_authority, key)},
};
#define PARTS (sizeof(parts) / sizeof(parts[0]))

static struct buf *part(struct certificate_authority *a, size_t i) {
    return (struct buf *) (void *) ((char *) a + parts[i].at);
}

static void have_authority(struct webhook *w) {
    struct err err;
    if (serve(w, &err) < 0) {
        fail(w, "cannot serve", err.text);
        return;
    }
    w->step = 0;
    next_place(w);
}

static void on_secret_written(const struct kube_response *response, void *userdata) {
    struct webhook *w = userdata;
    if (response->status >= 200 && response->status < 300)
        have_authority(w);
    else if (response->status == 409)
        end_round(w, 0); /* another replica was first: what it wrote counts */
    else
        fail(w, "cannot write Secret " WEBHOOK_SECRET, response->text);
}

static void write_secret(struct webhook *w, const char *version) {
    _cleanup_buf_ struct buf body = BUF_INIT(BODY_MAX);
    struct json_writer out = {.out = &body};
    char path[512];
    json_object_begin(&out, NULL);
    json_object_begin(&out, "metadata");
    json_put_string(&out, "name", WEBHOOK_SECRET);
    if (version)
        json_put_string(&out, "resourceVersion", version); /* a change in between is a conflict */
    json_object_end(&out);
    json_object_begin(&out, "stringData");
    for (size_t i = 0; i < PARTS; i++)
        json_put_string(&out, parts[i].key, buf_str(part(&w->authority, i)));
    json_object_end(&out);
    json_object_end(&out);
    if (version)
        request(w, "PATCH", secret_path(w, "/" WEBHOOK_SECRET, path), KUBE_MERGE_PATCH, &body,
                on_secret_written);
    else
        request(w, "POST", secret_path(w, "", path), NULL, &body, on_secret_written);
    if (body.data)
        explicit_bzero(body.data, body.len);
}

/* A missing or invalid value is empty and is created again. */
static void read_secret(struct webhook *w, struct json data) {
    certificate_authority_done(&w->authority);
    certificate_authority_init(&w->authority);
    for (size_t i = 0; i < PARTS; i++) {
        const char *text = json_string(json_get(data, parts[i].key));
        gnutls_datum_t encoded = {(unsigned char *) (uintptr_t) text,
                                  text ? (unsigned) strnlen(text, BODY_MAX) : 0};
        gnutls_datum_t pem = {0};
        if (!text || gnutls_base64_decode2(&encoded, &pem) < 0)
            continue;
        buf_append(part(&w->authority, i), pem.data, pem.size);
        if (pem.size > 0)
            explicit_bzero(pem.data, pem.size);
        gnutls_free(pem.data);
    }
}

static void on_secret(const struct kube_response *response, void *userdata) {
    struct webhook *w = userdata;
    const char *version = json_string(JSON_PATH(response->body, "metadata", "resourceVersion"));
    const char *names[WEBHOOK_NAMES + 1] = {NULL};
    struct err err;
    if (response->status != 200 && response->status != 404) {
        fail(w, "cannot read Secret " WEBHOOK_SECRET, response->text);
        return;
    }
    for (size_t i = 0; i < WEBHOOK_NAMES && w->names[i][0]; i++)
        names[i] = w->names[i];
    read_secret(w, response->status == 200 ? json_get(response->body, "data") : (struct json){0});
    int r = certificate_authority_renew(&w->authority, names, w->now(), &err);
    if (r < 0)
        fail(w, "certificates", err.text);
    else if (r > 0)
        write_secret(w, response->status == 200 && version ? version : NULL);
    else
        have_authority(w);
}

static void get_secret(struct webhook *w) {
    char path[512];
    request(w, "GET", secret_path(w, "/" WEBHOOK_SECRET, path), NULL, NULL, on_secret);
}

/* ---- life ---- */

static int64_t wall_clock(void) {
    return (int64_t) time(NULL);
}

/* The names by which the API server calls the Service. */
static void name_service(struct webhook *w, size_t first, const char *service) {
    static const char *const endings[] = {".svc", "", ".svc.cluster.local"};
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++)
        (void) snprintf(w->names[first + i], sizeof(w->names[0]), "%s.%s%s", service,
                        w->options.name_space, endings[i]);
}

int webhook_start(struct webhook *w, uv_loop_t *loop, const struct api *api,
                  const struct webhook_options *options) {
    *w = (struct webhook){.loop = loop,
                          .api = *api,
                          .options = *options,
                          .now = wall_clock,
                          .admission = admission_new(options->name_space)};
    certificate_authority_init(&w->authority);
    name_service(w, 0, WEBHOOK_SECRET);
    if (options->api_listen)
        name_service(w, WEBHOOK_NAMES / 2, METRICS_API_SERVICE);
    if (!w->admission)
        return -ENOMEM;
    admission_place_by(w->admission, options->scheduler);
    return 0;
}

void webhook_tick(struct webhook *w, uint64_t now_ms) {
    if (!w->admission || w->next_ms == UINT64_MAX || now_ms < w->next_ms)
        return;
    w->next_ms = UINT64_MAX;
    get_secret(w);
}

void webhook_stop(struct webhook *w) {
    http_server_close(w->server);
    http_server_close(w->api_server);
    w->server = w->api_server = NULL;
}

void webhook_done(struct webhook *w) {
    if (w->admission)
        certificate_authority_done(&w->authority);
    w->admission = admission_free(w->admission);
    w->server_cert = server_cert_free(w->server_cert);
}
