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
#define JSON_TYPE "application/json"
#define CONFIGURATIONS "/apis/admissionregistration.k8s.io/v1/"

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

/* What the authority has now is what the next client is shown. */
static int serve(struct webhook *w, struct err *err) {
    const char *cert = buf_str(&w->authority.cert), *key = buf_str(&w->authority.key);
    const struct http_options options = {.listen = w->listen,
                                         .share_port = true,
                                         .routes = routes,
                                         .userdata = w,
                                         .max_body = REVIEW_MAX};
    struct http_options https = options;
    if (w->server_cert)
        return server_cert_set(w->server_cert, cert, key, err);
    int r = server_cert_new(cert, key, &w->server_cert, err);
    if (r < 0)
        return r;
    https.server_cert = w->server_cert;
    r = http_server_start(w->loop, &https, &w->server, err);
    if (r < 0) {
        w->server_cert = server_cert_free(w->server_cert);
        return r;
    }
    log_info("the admission webhook listens on %s", w->listen);
    return 0;
}

/* ---- a round: Secret, then each configuration ---- */

static void end_round(struct webhook *w, uint64_t after_ms) {
    w->next_ms = uv_now(w->loop) + after_ms;
}

static void fail(struct webhook *w, const char *what, const char *why) {
    if (!w->failing)
        log_warn("admission webhook: %s: %s; trying again", what, why);
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
    (void) snprintf(path, 512, "/api/v1/namespaces/%s/secrets%s", w->name_space, name);
    return path;
}

/* -- the configurations -- */

static const char *const configurations[] = {
    CONFIGURATIONS "mutatingwebhookconfigurations/" WEBHOOK_CONFIGURATION,
    CONFIGURATIONS "validatingwebhookconfigurations/" WEBHOOK_CONFIGURATION,
};
#define CONFIGURATIONS_COUNT (sizeof(configurations) / sizeof(configurations[0]))

static void next_configuration(struct webhook *w);

static void configuration_is_done(struct webhook *w) {
    w->step++;
    next_configuration(w);
}

static void on_configuration_written(const struct kube_response *response, void *userdata) {
    struct webhook *w = userdata;
    if (response->status < 200 || response->status >= 300) {
        fail(w, configurations[w->step], response->text);
        return;
    }
    log_info("admission webhook: the API server is told whom to trust (%s)",
             configurations[w->step]);
    configuration_is_done(w);
}

/* The bundle as in a configuration: base64. */
static int encode_bundle(const struct webhook *w, gnutls_datum_t *ret) {
    gnutls_datum_t pem = {(unsigned char *) w->authority.bundle.data,
                          (unsigned) w->authority.bundle.len};
    return gnutls_base64_encode2(&pem, ret);
}

static bool has_bundle(struct json webhooks, const char *bundle) {
    struct json_iter it = json_iter(webhooks);
    struct json webhook;
    while (json_next(&it, NULL, &webhook)) {
        const char *there = json_string(JSON_PATH(webhook, "clientConfig", "caBundle"));
        if (!there || strcmp(there, bundle) != 0)
            return false;
    }
    return true;
}

static void write_configuration(struct webhook *w, struct json webhooks, const char *bundle) {
    _cleanup_buf_ struct buf body = BUF_INIT(BODY_MAX);
    struct json_writer out = {.out = &body};
    struct json_iter it = json_iter(webhooks);
    struct json webhook;
    json_object_begin(&out, NULL);
    json_array_begin(&out, "webhooks");
    while (json_next(&it, NULL, &webhook)) {
        json_object_begin(&out, NULL);
        json_put_string(&out, "name", json_string(json_get(webhook, "name")));
        json_object_begin(&out, "clientConfig");
        json_put_string(&out, "caBundle", bundle);
        json_object_end(&out);
        json_object_end(&out);
    }
    json_array_end(&out);
    json_object_end(&out);
    request(w, "PATCH", configurations[w->step], KUBE_STRATEGIC_PATCH, &body,
            on_configuration_written);
}

static void on_configuration(const struct kube_response *response, void *userdata) {
    struct webhook *w = userdata;
    struct json webhooks = json_get(response->body, "webhooks");
    gnutls_datum_t bundle = {0};
    if (response->status != 200)
        fail(w, configurations[w->step], response->text);
    else if (encode_bundle(w, &bundle) < 0)
        fail(w, "cannot write the bundle", "out of memory");
    else if (has_bundle(webhooks, (const char *) bundle.data))
        configuration_is_done(w);
    else
        write_configuration(w, webhooks, (const char *) bundle.data);
    gnutls_free(bundle.data);
}

static void next_configuration(struct webhook *w) {
    if (w->step < CONFIGURATIONS_COUNT) {
        request(w, "GET", configurations[w->step], NULL, NULL, on_configuration);
        return;
    }
    if (w->failing)
        log_info("the admission webhook is in order");
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
    next_configuration(w);
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
    const char *const names[] = {w->names[0], w->names[1], w->names[2], NULL};
    struct err err;
    if (response->status != 200 && response->status != 404) {
        fail(w, "cannot read Secret " WEBHOOK_SECRET, response->text);
        return;
    }
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

int webhook_start(struct webhook *w, uv_loop_t *loop, const struct api *api, const char *listen,
                  const char *name_space, const char *scheduler) {
    *w = (struct webhook){.loop = loop,
                          .api = *api,
                          .listen = listen,
                          .name_space = name_space,
                          .now = wall_clock,
                          .admission = admission_new(name_space)};
    certificate_authority_init(&w->authority);
    (void) snprintf(w->names[0], sizeof(w->names[0]), "%s.%s.svc", WEBHOOK_SECRET, name_space);
    (void) snprintf(w->names[1], sizeof(w->names[1]), "%s.%s", WEBHOOK_SECRET, name_space);
    (void) snprintf(w->names[2], sizeof(w->names[2]), "%s.%s.svc.cluster.local", WEBHOOK_SECRET,
                    name_space);
    if (!w->admission)
        return -ENOMEM;
    admission_place_by(w->admission, scheduler);
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
    w->server = NULL;
}

void webhook_done(struct webhook *w) {
    if (w->admission)
        certificate_authority_done(&w->authority);
    w->admission = admission_free(w->admission);
    w->server_cert = server_cert_free(w->server_cert);
}
