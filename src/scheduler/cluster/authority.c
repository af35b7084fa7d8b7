/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/cluster/authority.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "base/log.h"
#include "base/server_time.h"
#include "kube/objects/agent_certificate.h"
#include "wire/certificate.h"
#include "wire/http_status.h"
#include "wire/json.h"
#include "wire/json_write.h"

#define REQUEST_TIMEOUT_MS 10000
#define BODY_MAX (CERTIFICATE_AUTHORITY_PEM_MAX * 8)
#define CONFIGURATIONS "/apis/admissionregistration.k8s.io/v1/"
#define API_SERVICES "/apis/apiregistration.k8s.io/v1/apiservices/"

/* ---- a round: Secret, then each place of the bundle ---- */

static void end_round(struct authority *a, uint64_t after_ms) {
    a->next_ms = uv_now(a->loop) + after_ms;
}

static void fail(struct authority *a, const char *what, const char *why) {
    if (!a->failing)
        log_warn("certificates: %s: %s; trying again", what, why);
    a->failing = true;
    end_round(a, AUTHORITY_RETRY_MS);
}

static void request(struct authority *a, const char *method, const char *path, const char *type,
                    const struct buf *body, kube_response_cb callback) {
    struct err err;
    if (a->api.request(a->api.context, method, path, type, body ? body->data : NULL,
                       body ? body->len : 0, REQUEST_TIMEOUT_MS, callback, a, &err) < 0)
        fail(a, "cannot ask the API server", err.text);
}

static const char *secret_path(const struct authority *a, const char *name, char path[static 512]) {
    (void) snprintf(path, 512, "/api/v1/namespaces/%s/secrets%s", a->options.name_space, name);
    return path;
}

/* -- where the bundle is written -- */

enum bundle_state {
    BUNDLE_GOOD,
    BUNDLE_STALE,
    BUNDLE_FOREIGN, /* the object is another product's */
};

enum place_kind { PLACE_WEBHOOK, PLACE_API_SERVICE, PLACE_CONFIG_MAP };

struct place {
    enum place_kind kind;
    const char *path;
    const char *patch; /* media type */
    enum bundle_state (*look)(const struct authority *a, struct json object, const char *bundle);
    void (*put)(const struct authority *a, struct json object, const char *bundle,
                struct json_writer *out);
};

static enum bundle_state look_at_webhooks(const struct authority *a, struct json object,
                                          const char *bundle) {
    struct json_iter it = json_iter(json_get(object, "webhooks"));
    struct json webhook;
    (void) a;
    while (json_next(&it, NULL, &webhook))
        if (!json_is_string(JSON_PATH(webhook, "clientConfig", "caBundle"), bundle))
            return BUNDLE_STALE;
    return BUNDLE_GOOD;
}

static void put_webhooks(const struct authority *a, struct json object, const char *bundle,
                         struct json_writer *out) {
    struct json_iter it = json_iter(json_get(object, "webhooks"));
    struct json webhook;
    (void) a;
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

static enum bundle_state look_at_api_service(const struct authority *a, struct json object,
                                             const char *bundle) {
    struct json service = JSON_PATH(object, "spec", "service");
    if (!json_is_string(json_get(service, "name"), METRICS_API_SERVICE) ||
        !json_is_string(json_get(service, "namespace"), a->options.name_space))
        return BUNDLE_FOREIGN;
    return json_is_string(JSON_PATH(object, "spec", "caBundle"), bundle) ? BUNDLE_GOOD
                                                                         : BUNDLE_STALE;
}

/* With the version that was looked at: meanwhile it may have become another product's. */
static void put_api_service(const struct authority *a, struct json object, const char *bundle,
                            struct json_writer *out) {
    (void) a;
    json_object_begin(out, "metadata");
    json_put_string(out, "resourceVersion",
                    json_string(JSON_PATH(object, "metadata", "resourceVersion")));
    json_object_end(out);
    json_object_begin(out, "spec");
    json_put_string(out, "caBundle", bundle);
    json_object_end(out);
}

static enum bundle_state look_at_config_map(const struct authority *a, struct json object,
                                            const char *bundle) {
    (void) bundle;
    return json_is_string(json_get(json_get(object, "data"), AUTHORITY_ENTRY),
                          buf_str(&a->own.bundle))
               ? BUNDLE_GOOD
               : BUNDLE_STALE;
}

/* By server-side apply, which makes what is not there. */
static void put_config_map(const struct authority *a, struct json object, const char *bundle,
                           struct json_writer *out) {
    (void) object, (void) bundle;
    json_put_string(out, "apiVersion", "v1");
    json_put_string(out, "kind", "ConfigMap");
    json_object_begin(out, "metadata");
    json_put_string(out, "name", AUTHORITY_CONFIG_MAP);
    json_object_end(out);
    json_object_begin(out, "data");
    json_put_string(out, AUTHORITY_ENTRY, buf_str(&a->own.bundle));
    json_object_end(out);
}

static const struct place places[AUTHORITY_PLACES] = {
    {PLACE_WEBHOOK, CONFIGURATIONS "mutatingwebhookconfigurations/" WEBHOOK_CONFIGURATION,
     KUBE_STRATEGIC_PATCH, look_at_webhooks, put_webhooks},
    {PLACE_WEBHOOK, CONFIGURATIONS "validatingwebhookconfigurations/" WEBHOOK_CONFIGURATION,
     KUBE_STRATEGIC_PATCH, look_at_webhooks, put_webhooks},
    {PLACE_API_SERVICE, API_SERVICES "v1beta2.custom.metrics.k8s.io", KUBE_MERGE_PATCH,
     look_at_api_service, put_api_service},
    {PLACE_API_SERVICE, API_SERVICES "v1beta1.external.metrics.k8s.io", KUBE_MERGE_PATCH,
     look_at_api_service, put_api_service},
    {PLACE_CONFIG_MAP, AUTHORITY_CONFIG_MAP, KUBE_APPLY_PATCH, look_at_config_map, put_config_map},
};

static const char *place_path(const struct authority *a, const struct place *place, bool write,
                              char path[static 512]) {
    if (place->kind != PLACE_CONFIG_MAP)
        return place->path;
    (void) snprintf(path, 512, "/api/v1/namespaces/%s/configmaps/%s%s", a->options.name_space,
                    place->path, write ? "?fieldManager=aliquot-scheduler&force=true" : "");
    return path;
}

static void next_place(struct authority *a);

static void place_is_done(struct authority *a) {
    a->step++;
    next_place(a);
}

static void on_place_written(const struct kube_response *response, void *userdata) {
    struct authority *a = userdata;
    if (response->status == 409) {
        end_round(a, 0); /* another replica was first, it seems */
        return;
    }
    if (response->status < 200 || response->status >= 300) {
        fail(a, places[a->step].path, response->text);
        return;
    }
    log_info("clients are told whom to trust (%s)", places[a->step].path);
    place_is_done(a);
}

/* The bundle as in a configuration: base64. */
static int encode_bundle(const struct authority *a, gnutls_datum_t *ret) {
    gnutls_datum_t pem = {(unsigned char *) a->own.bundle.data, (unsigned) a->own.bundle.len};
    return gnutls_base64_encode2(&pem, ret);
}

static void write_place(struct authority *a, struct json object, const char *bundle) {
    const struct place *place = &places[a->step];
    _cleanup_buf_ struct buf body = BUF_INIT(BODY_MAX);
    struct json_writer out = {.out = &body};
    char path[512];
    json_object_begin(&out, NULL);
    place->put(a, object, bundle, &out);
    json_object_end(&out);
    request(a, "PATCH", place_path(a, place, true, path), place->patch, &body, on_place_written);
}

static void leave_foreign(struct authority *a, struct json object) {
    struct json service = JSON_PATH(object, "spec", "service");
    if (!a->foreign[a->step])
        log_warn("%s is of Service %s/%s: Aliquot stays away from it, and its metrics are not to "
                 "be had by this API (docs/autoscaling.md)",
                 places[a->step].path, json_string_or(json_get(service, "namespace"), "-"),
                 json_string_or(json_get(service, "name"), "-"));
    a->foreign[a->step] = true;
}

static void on_place(const struct kube_response *response, void *userdata) {
    struct authority *a = userdata;
    const struct place *place = &places[a->step];
    gnutls_datum_t bundle = {0};
    if (response->status == 404 && place->kind == PLACE_API_SERVICE) {
        place_is_done(a);
        return;
    }
    if (response->status != 200 && (response->status != 404 || place->kind != PLACE_CONFIG_MAP)) {
        fail(a, place->path, response->text);
        return;
    }
    if (encode_bundle(a, &bundle) < 0) {
        fail(a, "cannot write the bundle", "out of memory");
        return;
    }
    enum bundle_state state = place->look(a, response->body, (const char *) bundle.data);
    if (state == BUNDLE_FOREIGN)
        leave_foreign(a, response->body);
    else
        a->foreign[a->step] = false;
    if (state == BUNDLE_STALE)
        write_place(a, response->body, (const char *) bundle.data);
    else
        place_is_done(a);
    gnutls_free(bundle.data);
}

static bool is_wanted(const struct authority *a, const struct place *place) {
    switch (place->kind) {
    case PLACE_WEBHOOK:
        return a->options.webhook;
    case PLACE_API_SERVICE:
        return a->options.metrics_api;
    default:
        return a->options.agents;
    }
}

static void next_place(struct authority *a) {
    char path[512];
    while (a->step < AUTHORITY_PLACES && !is_wanted(a, &places[a->step]))
        a->step++;
    if (a->step < AUTHORITY_PLACES) {
        request(a, "GET", place_path(a, &places[a->step], false, path), NULL, NULL, on_place);
        return;
    }
    if (a->failing)
        log_info("certificates are in order");
    a->failing = false;
    end_round(a, AUTHORITY_CHECK_MS);
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

static struct buf *part(struct certificate_authority *of, size_t i) {
    return (struct buf *) (void *) ((char *) of + parts[i].at);
}

static void have_authority(struct authority *a) {
    struct err err;
    a->read_ms = uv_now(a->loop) + 1;
    if (a->options.on_certificate(a->options.userdata, &err) < 0) {
        fail(a, "cannot serve", err.text);
        return;
    }
    a->step = 0;
    next_place(a);
}

static void on_secret_written(const struct kube_response *response, void *userdata) {
    struct authority *a = userdata;
    if (http_is_success(response->status))
        have_authority(a);
    else if (response->status == 409)
        end_round(a, 0); /* another replica was first: what it wrote counts */
    else
        fail(a, "cannot write Secret " AUTHORITY_SECRET, response->text);
}

static void write_secret(struct authority *a, const char *version) {
    _cleanup_wipe_ struct buf body = BUF_INIT(BODY_MAX);
    struct json_writer out = {.out = &body};
    char path[512];
    a->read_ms = 0;
    json_object_begin(&out, NULL);
    json_object_begin(&out, "metadata");
    json_put_string(&out, "name", AUTHORITY_SECRET);
    if (version)
        json_put_string(&out, "resourceVersion", version); /* a change in between is a conflict */
    json_object_end(&out);
    json_object_begin(&out, "stringData");
    for (size_t i = 0; i < PARTS; i++)
        json_put_string(&out, parts[i].key, buf_str(part(&a->own, i)));
    json_object_end(&out);
    json_object_end(&out);
    if (version)
        request(a, "PATCH", secret_path(a, "/" AUTHORITY_SECRET, path), KUBE_MERGE_PATCH, &body,
                on_secret_written);
    else
        request(a, "POST", secret_path(a, "", path), NULL, &body, on_secret_written);
}

/* A missing or invalid value is empty and is created again. */
static void read_secret(struct authority *a, struct json data) {
    certificate_authority_done(&a->own);
    certificate_authority_init(&a->own);
    for (size_t i = 0; i < PARTS; i++) {
        const char *text = json_string(json_get(data, parts[i].key));
        gnutls_datum_t encoded = {(unsigned char *) (uintptr_t) text,
                                  text ? (unsigned) strnlen(text, BODY_MAX) : 0};
        gnutls_datum_t pem = {0};
        if (!text || gnutls_base64_decode2(&encoded, &pem) < 0)
            continue;
        buf_append(part(&a->own, i), pem.data, pem.size);
        certificate_free_secret(&pem);
    }
}

static void on_secret(const struct kube_response *response, void *userdata) {
    struct authority *a = userdata;
    const char *version = json_string(JSON_PATH(response->body, "metadata", "resourceVersion"));
    const char *names[AUTHORITY_NAMES + 1] = {NULL};
    struct err err;
    if (response->status != 200 && response->status != 404) {
        fail(a, "cannot read Secret " AUTHORITY_SECRET, response->text);
        return;
    }
    for (size_t i = 0; i < AUTHORITY_NAMES && a->names[i][0]; i++)
        names[i] = a->names[i];
    read_secret(a, response->status == 200 ? json_get(response->body, "data") : (struct json){0});
    int r = certificate_authority_renew(&a->own, names, a->now(), &err);
    if (r < 0)
        fail(a, "cannot renew them", err.text);
    else if (r == 0)
        have_authority(a);
    else
        write_secret(a, response->status == 200 && version ? version : NULL);
}

static void get_secret(struct authority *a) {
    char path[512];
    request(a, "GET", secret_path(a, "/" AUTHORITY_SECRET, path), NULL, NULL, on_secret);
}

/* ---- life ---- */

/* The names by which the API server calls the Service. */
static void name_service(struct authority *a, size_t first, const char *service) {
    static const char *const endings[] = {".svc", "", ".svc.cluster.local"};
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++)
        (void) snprintf(a->names[first + i], sizeof(a->names[0]), "%s.%s%s", service,
                        a->options.name_space, endings[i]);
}

void authority_start(struct authority *a, uv_loop_t *loop, const struct api *api,
                     const struct authority_options *options) {
    *a = (struct authority){.loop = loop, .api = *api, .options = *options, .now = server_time};
    certificate_authority_init(&a->own);
    name_service(a, 0, WEBHOOK_SERVICE);
    if (options->metrics_api)
        name_service(a, AUTHORITY_NAMES / 2, METRICS_API_SERVICE);
}

bool authority_is_stored(const struct authority *a) {
    return a->read_ms > 0;
}

bool authority_is_fresh(struct authority *a) {
    uint64_t now = uv_now(a->loop);
    if (authority_is_stored(a) && now - (a->read_ms - 1) <= AUTHORITY_FRESH_MS)
        return true;
    if (a->next_ms != UINT64_MAX && !a->failing)
        a->next_ms = now;
    return false;
}

void authority_tick(struct authority *a, uint64_t now_ms) {
    if (!a->loop || a->next_ms == UINT64_MAX || now_ms < a->next_ms)
        return;
    a->next_ms = UINT64_MAX;
    get_secret(a);
}

void authority_done(struct authority *a) {
    if (a->loop)
        certificate_authority_done(&a->own);
}
