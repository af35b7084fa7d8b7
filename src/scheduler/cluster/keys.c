/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/cluster/keys.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/log.h"
#include "kube/api/object_write.h"
#include "wire/certificate.h"
#include "wire/http_status.h"
#include "wire/json.h"
#include "wire/json_write.h"

#define REQUEST_TIMEOUT_MS 10000
#define PEM_MAX ((size_t) 64 << 10)
#define CONFLICTS_MAX 5

struct keys {
    struct api api;
    const char *name_space;
    keys_is_old is_old;
    keys_done done;
    void *userdata;
    unsigned conflicts;
    struct signing_key *key;
    struct buf public_pem; /* of our key */
    struct buf bundle;     /* ours and the others that stay */
};

static void keys_free(struct keys *k) {
    signing_key_free(k->key);
    buf_done(&k->public_pem);
    buf_done(&k->bundle);
    free(k);
}

static void fail(struct keys *k, const char *what, const char *why) {
    struct err err;
    err_set(&err, EIO, "%s: %s", what, why);
    k->done(NULL, NULL, err.text, k->userdata);
    keys_free(k);
}

static void succeed(struct keys *k) {
    struct signing_verifier *verifier;
    struct err err;
    if (signing_verifier_load(buf_str(&k->bundle), k->bundle.len, &verifier, &err) < 0) {
        fail(k, "cannot use the public keys of ConfigMap " SIGNING_NAME, err.text);
        return;
    }
    k->done(take_ptr(k->key), verifier, NULL, k->userdata);
    keys_free(k);
}

static void request(struct keys *k, const char *method, const char *resource, const char *name,
                    const char *type, const struct buf *body, kube_response_cb callback) {
    char path[512];
    struct err err;
    snprintf(path, sizeof(path), "/api/v1/namespaces/%s/%s%s%s", k->name_space, resource,
             *name ? "/" : "", name);
    if (k->api.request(k->api.context, method, path, type, body ? body->data : NULL,
                       body ? body->len : 0, REQUEST_TIMEOUT_MS, callback, k, &err) < 0)
        fail(k, "cannot ask the API server", err.text);
}

/* ---- ConfigMap with the public keys ---- */

static void get_public(struct keys *k);

static void on_public_written(const struct kube_response *response, void *userdata) {
    struct keys *k = userdata;
    if (http_is_success(response->status))
        succeed(k);
    else if ((response->status == 409 || response->status == 404) && k->conflicts++ < CONFLICTS_MAX)
        get_public(k); /* another replica made or changed it in between */
    else
        fail(k, "cannot write ConfigMap " SIGNING_NAME, response->text);
}

static void write_public(struct keys *k, bool exists, const char *version) {
    _cleanup_buf_ struct buf body = BUF_INIT(PEM_MAX * 4);
    struct json_writer w = {.out = &body};
    object_begin(&w, "v1", "ConfigMap", SIGNING_NAME, k->name_space);
    json_object_end(&w);
    json_object_begin(&w, "data");
    json_put_string(&w, SIGNING_PUBLIC, buf_str(&k->bundle));
    json_object_end(&w);
    json_object_end(&w);
    if (!exists) {
        request(k, "POST", "configmaps", "", NULL, &body, on_public_written);
        return;
    }
    buf_reset(&body);
    w = (struct json_writer){.out = &body};
    json_object_begin(&w, NULL);
    json_object_begin(&w, "metadata");
    json_put_string(&w, "resourceVersion", version); /* a change in between is a conflict */
    json_object_end(&w);
    json_object_begin(&w, "data");
    json_put_string(&w, SIGNING_PUBLIC, buf_str(&k->bundle));
    json_object_end(&w);
    json_object_end(&w);
    request(k, "PATCH", "configmaps", SIGNING_NAME, KUBE_MERGE_PATCH, &body, on_public_written);
}

static bool drops(uint64_t id, void *userdata) {
    struct keys *k = userdata;
    if (id == signing_key_id(k->key) || !k->is_old || !k->is_old(id, k->userdata))
        return false;
    log_info("taking public key %016" PRIx64 " out of ConfigMap " SIGNING_NAME
             ": no pod is signed by it any more",
             id);
    return true;
}

/* The value for the ConfigMap, given its stored one, which may be NULL. */
static int build_bundle(struct keys *k, const char *stored) {
    _cleanup_buf_ struct buf all = BUF_INIT(PEM_MAX * 2);
    buf_reset(&k->bundle);
    if (!stored || !strstr(stored, buf_str(&k->public_pem)))
        buf_puts(&all, buf_str(&k->public_pem));
    buf_puts(&all, stored ? stored : "");
    if (buf_error(&all) < 0)
        return buf_error(&all);
    return signing_keys_without(buf_str(&all), all.len, drops, k, &k->bundle);
}

static void on_public(const struct kube_response *response, void *userdata) {
    struct keys *k = userdata;
    const char *stored = json_string(JSON_PATH(response->body, "data", SIGNING_PUBLIC));
    const char *version = json_string(JSON_PATH(response->body, "metadata", "resourceVersion"));
    bool exists = response->status == 200;
    if (!exists && response->status != 404) {
        fail(k, "cannot read ConfigMap " SIGNING_NAME, response->text);
        return;
    }
    if (!exists)
        stored = NULL;
    int r = build_bundle(k, stored);
    if (r < 0)
        fail(k, "cannot use the public keys of ConfigMap " SIGNING_NAME, strerror(-r));
    else if (stored && strcmp(stored, buf_str(&k->bundle)) == 0)
        succeed(k);
    else
        write_public(k, exists, version ? version : "");
}

static void get_public(struct keys *k) {
    request(k, "GET", "configmaps", SIGNING_NAME, NULL, NULL, on_public);
}

/* ---- Secret with the private key ---- */

static void get_private(struct keys *k);

static void have_private(struct keys *k) {
    struct err err;
    if (signing_key_public(k->key, &k->public_pem, &err) < 0)
        fail(k, "cannot use the signing key", err.text);
    else
        get_public(k);
}

static void on_private_written(const struct kube_response *response, void *userdata) {
    struct keys *k = userdata;
    if (http_is_success(response->status))
        have_private(k);
    else if (response->status == 409 && k->conflicts++ < CONFLICTS_MAX) {
        k->key = signing_key_free(k->key);
        get_private(k); /* another scheduler was first: its key counts */
    } else
        fail(k, "cannot write Secret " SIGNING_NAME, response->text);
}

static void make_private(struct keys *k) {
    _cleanup_wipe_ struct buf pem = BUF_INIT(PEM_MAX), body = BUF_INIT(PEM_MAX * 4);
    struct err err;
    if (signing_key_generate(&k->key, &err) < 0 || signing_key_save(k->key, &pem, &err) < 0) {
        fail(k, "cannot make a signing key", err.text);
        return;
    }
    struct json_writer w = {.out = &body};
    object_begin(&w, "v1", "Secret", SIGNING_NAME, k->name_space);
    json_object_end(&w);
    json_put_string(&w, "type", "Opaque");
    json_object_begin(&w, "stringData");
    json_put_string(&w, SIGNING_PRIVATE, buf_str(&pem));
    json_object_end(&w);
    json_object_end(&w);
    request(k, "POST", "secrets", "", NULL, &body, on_private_written);
}

static int load_private(struct keys *k, const char *base64, struct err *err) {
    union {
        const char *in;
        unsigned char *out;
    } text = {.in = base64};
    gnutls_datum_t encoded = {text.out, (unsigned) strnlen(base64, PEM_MAX)}, pem = {0};
    int r = gnutls_base64_decode2(&encoded, &pem);
    if (r < 0)
        return err_set(err, EINVAL, "%s is not base64", SIGNING_PRIVATE);
    r = signing_key_load((const char *) pem.data, pem.size, &k->key, err);
    certificate_free_secret(&pem);
    return r;
}

static void on_private(const struct kube_response *response, void *userdata) {
    struct keys *k = userdata;
    const char *base64 = json_string(JSON_PATH(response->body, "data", SIGNING_PRIVATE));
    struct err err;
    if (response->status == 404)
        make_private(k);
    else if (response->status != 200)
        fail(k, "cannot read Secret " SIGNING_NAME, response->text);
    else if (!base64)
        fail(k, "Secret " SIGNING_NAME,
             "has no " SIGNING_PRIVATE "; delete it and a new one will be made");
    else if (load_private(k, base64, &err) < 0)
        fail(k, "Secret " SIGNING_NAME, err.text);
    else
        have_private(k);
}

static void get_private(struct keys *k) {
    request(k, "GET", "secrets", SIGNING_NAME, NULL, NULL, on_private);
}

void keys_start(const struct api *api, const char *name_space, keys_is_old is_old, keys_done done,
                void *userdata) {
    struct keys *k = calloc(1, sizeof(*k));
    if (!k) {
        done(NULL, NULL, "out of memory", userdata);
        return;
    }
    *k = (struct keys){.api = *api,
                       .name_space = name_space,
                       .is_old = is_old,
                       .done = done,
                       .userdata = userdata,
                       .public_pem = BUF_INIT(PEM_MAX),
                       .bundle = BUF_INIT(PEM_MAX * 2)};
    get_private(k);
}
