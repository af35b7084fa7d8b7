/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/cluster/certificate.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <uv.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/server_time.h"
#include "base/text.h"
#include "kube/api/client.h"
#include "kube/api/names.h"
#include "kube/objects/agent_certificate.h"
#include "wire/certificate.h"
#include "wire/certificate_request.h"
#include "wire/client_trust.h"
#include "wire/json_write.h"
#include "wire/server_cert.h"

#define PEM_MAX ((size_t) 64 << 10)
#define KEY_BEGIN "-----BEGIN PRIVATE KEY-----"
#define POLL_MIN_MS 1000
#define POLL_MAX_MS 60000
#define CHECK_MS 60000   /* the clock of the node may be set */
#define TROUBLE_MS 50000 /* what lasts longer is told the cluster */
#define MISTRUSTED_MAX 3
#define POLLS_MAX 30 /* of one request: some 25 minutes */
#define WASTED_MAX_MS 600000

struct agent_certificate {
    const char *node;
    char file[512];
    struct buf cert, key; /* served */
    struct server_cert *served;
    struct client_trust *clients;
    struct kube_client *client; /* NULL: not followed yet */
    struct map_watch *authority;
    struct kube_call *call;
    uv_timer_t timer;
    /* A request that the authority has not answered. */
    char request[KUBE_NAME_MAX]; /* its name; "": there is none */
    struct buf next_key;
    unsigned polls, mistrusted; /* readings of it; those with a certificate of no known authority */
    unsigned wasted;            /* requests in a row that have brought no certificate */
    uint64_t next_at;           /* loop time before which there is no other */
    char trouble[512];
    uint64_t troubled_at; /* loop time since when; 0: it has a certificate */
    bool in_order;        /* and on_state() was told so since */
    void (*on_state)(const char *trouble, void *userdata);
    void *userdata;
};

static const char *bundle(const struct agent_certificate *c) {
    const struct map_entries *e = c->authority ? map_watch_entries(c->authority) : NULL;
    const char *text = e ? map_entries_text(e, AUTHORITY_ENTRY) : NULL;

    return text ? text : "";
}

/* ---- what is served ---- */

/* Takes both over. */
static int serve(struct agent_certificate *c, struct buf *cert, struct buf *key, struct err *err) {
    int r = c->served ? server_cert_set(c->served, buf_str(cert), buf_str(key), err)
                      : server_cert_new(buf_str(cert), buf_str(key), &c->served, err);

    if (r < 0)
        return r;
    buf_done(&c->cert);
    buf_wipe(&c->key);
    c->cert = *cert;
    c->key = *key;
    *cert = *key = BUF_INIT(PEM_MAX);
    return 0;
}

/* The node may have been renamed since the file was written. */
static bool is_of_node(const struct buf *cert, const char *node) {
    char name[KUBE_NAME_MAX + sizeof(AGENT_SERVER_NAME)];
    gnutls_x509_crt_t loaded = certificate_load(cert);
    bool found;

    (void) snprintf(name, sizeof(name), "%s." AGENT_SERVER_NAME, node);
    found = loaded && gnutls_x509_crt_check_hostname(loaded, name);
    if (loaded)
        gnutls_x509_crt_deinit(loaded);
    return found;
}

/* The file has the certificate, then the key. */
static int load(struct agent_certificate *c, struct err *err) {
    _cleanup_wipe_ struct buf both = BUF_INIT(PEM_MAX), key = BUF_INIT(PEM_MAX);
    _cleanup_buf_ struct buf cert = BUF_INIT(PEM_MAX);
    const char *begin;
    int r = file_read(c->file, PEM_MAX, &both, err);

    if (r < 0)
        return r;
    begin = strstr(buf_str(&both), KEY_BEGIN);
    if (!begin)
        return err_set(err, EINVAL, "%s has no key", c->file);
    buf_append(&cert, both.data, (size_t) (begin - both.data));
    buf_puts(&key, begin);
    if (buf_error(&cert) < 0 || buf_error(&key) < 0)
        return err_errno(err, ENOMEM, "%s", c->file);
    if (!is_of_node(&cert, c->node))
        return err_set(err, EINVAL, "%s is not of node %s", c->file, c->node);
    return serve(c, &cert, &key, err);
}

static void save(const struct agent_certificate *c) {
    _cleanup_wipe_ struct buf both = BUF_INIT(2 * PEM_MAX);
    struct err err = {.text = "out of memory"};

    buf_append(&both, c->cert.data, c->cert.len);
    buf_append(&both, c->key.data, c->key.len);
    if (buf_error(&both) < 0 || file_replace(c->file, both.data, both.len, 0600, &err) < 0)
        log_warn("the certificate is not kept for a restart: %s", err.text);
}

int agent_certificate_new(const char *dir, const char *node, struct agent_certificate **ret,
                          struct err *err) {
    _cleanup_wipe_ struct buf key = BUF_INIT(PEM_MAX);
    _cleanup_buf_ struct buf cert = BUF_INIT(PEM_MAX);
    struct agent_certificate *c = calloc(1, sizeof(*c));
    int r = 0;

    if (!c || !(c->clients = client_trust_new())) {
        free(c);
        return err_errno(err, ENOMEM, "cannot set up TLS");
    }
    c->node = node;
    c->cert = c->key = c->next_key = BUF_INIT(PEM_MAX);
    (void) snprintf(c->file, sizeof(c->file), "%s/" CERTIFICATE_FILE, dir);
    if (load(c, err) < 0) {
        r = certificate_self_signed(node, server_time(), &key, &cert, err);
        if (r == 0)
            r = serve(c, &cert, &key, err);
        text_copy(c->trouble, sizeof(c->trouble), "it has not been requested yet");
    }
    if (r < 0)
        (void) agent_certificate_free(c);
    else
        *ret = c;
    return r;
}

/* ---- a new one ---- */

static void on_timer(uv_timer_t *timer);

static void after(struct agent_certificate *c, uint64_t ms) {
    (void) uv_timer_start(&c->timer, on_timer, ms, 0);
}

static void forget_request(struct agent_certificate *c) {
    c->request[0] = '\0';
    c->polls = c->mistrusted = 0;
    buf_wipe(&c->next_key);
}

/* The API server keeps what came of a request for an hour. So the more were in vain, the longer the
 * next one waits: 1, 2, 4 ... minutes; the second comes at once if `soon`. */
static void give_up(struct agent_certificate *c, bool soon) {
    uint64_t ms = (uint64_t) POLL_MAX_MS << (c->wasted < 4 ? c->wasted : 4);

    if (soon && c->wasted == 0)
        ms = POLL_MIN_MS;
    c->next_at = uv_now(c->timer.loop) + (ms < WASTED_MAX_MS ? ms : WASTED_MAX_MS);
    c->wasted++;
    forget_request(c);
}

static void trouble(struct agent_certificate *c, const char *what, const char *why) {
    char text[sizeof(c->trouble)];

    (void) snprintf(text, sizeof(text), "%s%s%.300s", what, why[0] ? ": " : "", why);
    if (strcmp(text, c->trouble) != 0)
        log_warn("no certificate of Aliquot's authority: %s", text);
    text_copy(c->trouble, sizeof(c->trouble), text);
    if (c->troubled_at == 0)
        c->troubled_at = uv_now(c->timer.loop);
    if (uv_now(c->timer.loop) - c->troubled_at < TROUBLE_MS)
        return;
    c->in_order = false;
    c->on_state(text, c->userdata);
}

static void calm(struct agent_certificate *c) {
    c->trouble[0] = '\0';
    c->troubled_at = c->next_at = 0;
    c->wasted = 0;
    if (!c->in_order)
        c->on_state("", c->userdata);
    c->in_order = true;
}

/* 1, 2, 4 ... seconds. */
static uint64_t pause_ms(const struct agent_certificate *c) {
    uint64_t ms = (uint64_t) POLL_MIN_MS << (c->polls < 6 ? c->polls : 6);

    return ms < POLL_MAX_MS ? ms : POLL_MAX_MS;
}

/* ConfigMap and certificate come by different ways: one that its authorities have not signed may be
 * of one that is about to be there. Or of one that has just been replaced, and another is
 * requested. */
static void take(struct agent_certificate *c, const char *text) {
    _cleanup_wipe_ struct buf key = BUF_INIT(PEM_MAX);
    _cleanup_buf_ struct buf cert = BUF_INIT(PEM_MAX);
    const gnutls_datum_t encoded = {(unsigned char *) (uintptr_t) text, (unsigned) strlen(text)};
    gnutls_datum_t pem = {0};
    struct err err = {0};

    if (gnutls_base64_decode2(&encoded, &pem) == 0) {
        buf_append(&cert, pem.data, pem.size);
        gnutls_free(pem.data);
    }
    buf_append(&key, c->next_key.data, c->next_key.len);
    if (certificate_renewal(&cert, &key, bundle(c)) <= server_time()) {
        trouble(c,
                "what was signed is of no authority of ConfigMap " AUTHORITY_CONFIG_MAP
                ", or the clock of the node is wrong",
                "");
        if (++c->mistrusted >= MISTRUSTED_MAX)
            give_up(c, true);
        return;
    }
    if (serve(c, &cert, &key, &err) < 0) {
        trouble(c, "it cannot be used", err.text);
        return;
    }
    save(c);
    forget_request(c);
    c->in_order = false;
    calm(c);
    log_info("the certificate is signed by Aliquot's authority");
}

static void on_request(const struct kube_response *response, void *userdata) {
    struct agent_certificate *c = userdata;
    struct json denied =
        json_find(JSON_PATH(response->body, "status", "conditions"), "type", "Denied");
    const char *cert = json_string_or(JSON_PATH(response->body, "status", "certificate"), "");

    c->call = NULL;
    c->polls++;
    if (response->status == 404 || (response->status == 200 && json_valid(denied))) {
        trouble(c, "the request was denied", json_string_or(json_get(denied, "message"), "gone"));
        give_up(c, false);
        after(c, POLL_MIN_MS);
        return;
    }
    if (response->status != 200)
        trouble(c, "the request cannot be read", response->text);
    else if (cert[0])
        take(c, cert);
    else if (c->polls > 4)
        trouble(c, "aliquot-scheduler has not signed it (--agent-tls)", "");
    if (c->polls >= POLLS_MAX)
        give_up(c, true);
    after(c, c->request[0] ? pause_ms(c) : POLL_MIN_MS);
}

static void on_created(const struct kube_response *response, void *userdata) {
    struct agent_certificate *c = userdata;
    const char *name = json_string(JSON_PATH(response->body, "metadata", "name"));

    c->call = NULL;
    if (response->status == 201 && name && strlen(name) < sizeof(c->request)) {
        text_copy(c->request, sizeof(c->request), name);
        after(c, pause_ms(c));
        return;
    }
    trouble(c, "it cannot be requested", response->text);
    forget_request(c);
    after(c, POLL_MAX_MS);
}

static void ask(struct agent_certificate *c, const char *method, const char *path,
                const struct buf *body, kube_response_cb callback) {
    struct err err;

    if (kube_request(c->client, method, path, NULL, body ? body->data : NULL, body ? body->len : 0,
                     0, callback, c, &c->call, &err) == 0)
        return;
    c->call = NULL;
    trouble(c, "it cannot be requested", err.text);
    after(c, POLL_MAX_MS);
}

static void write_request(struct buf *pem, struct buf *out) {
    const gnutls_datum_t text = {(unsigned char *) pem->data, (unsigned) pem->len};
    gnutls_datum_t encoded = {0};
    struct json_writer w = {.out = out};

    if (gnutls_base64_encode2(&text, &encoded) < 0)
        return;
    json_object_begin(&w, NULL);
    json_put_string(&w, "apiVersion", "certificates.k8s.io/v1");
    json_put_string(&w, "kind", "CertificateSigningRequest");
    json_object_begin(&w, "metadata");
    json_put_string(&w, "generateName", "aliquot-agent-");
    json_object_end(&w);
    json_object_begin(&w, "spec");
    json_put_string(&w, "signerName", AGENT_SIGNER);
    json_put_u64(&w, "expirationSeconds", AGENT_CERTIFICATE_SECONDS);
    json_array_begin(&w, "usages");
    json_put_string(&w, NULL, "digital signature");
    json_put_string(&w, NULL, "server auth");
    json_array_end(&w);
    json_put_string(&w, "request", (const char *) encoded.data);
    json_object_end(&w);
    json_object_end(&w);
    gnutls_free(encoded.data);
}

static void begin_request(struct agent_certificate *c) {
    _cleanup_buf_ struct buf pem = BUF_INIT(PEM_MAX), body = BUF_INIT(PEM_MAX);
    struct err err;

    forget_request(c);
    if (certificate_request_make(c->node, &c->next_key, &pem, &err) < 0) {
        trouble(c, "it cannot be requested", err.text);
        after(c, POLL_MAX_MS);
        return;
    }
    write_request(&pem, &body);
    ask(c, "POST", CERTIFICATE_REQUESTS, &body, on_created);
}

/* ---- when ---- */

/* Whatever is due. */
static void act(struct agent_certificate *c) {
    int64_t due, now = server_time();
    char path[512];

    if (c->call)
        return;
    if (!bundle(c)[0]) {
        trouble(c,
                "there is no ConfigMap " AUTHORITY_CONFIG_MAP
                ": aliquot-scheduler makes it (--agent-tls)",
                "");
        after(c, CHECK_MS);
        return;
    }
    due = certificate_renewal(&c->cert, &c->key, bundle(c));
    if (due > now) {
        calm(c);
        after(c, CHECK_MS);
    } else if (c->request[0]) {
        (void) snprintf(path, sizeof(path), CERTIFICATE_REQUESTS "/%s", c->request);
        ask(c, "GET", path, NULL, on_request);
    } else if (uv_now(c->timer.loop) < c->next_at) {
        after(c, c->next_at - uv_now(c->timer.loop));
    } else {
        begin_request(c);
    }
}

static void on_timer(uv_timer_t *timer) {
    act(timer->data);
}

static void on_authority(void *userdata) {
    struct agent_certificate *c = userdata;
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json names = {0};
    struct err err;
    static const char only[] = "[\"" AGENT_CLIENT_NAME "\"]";

    if (!map_watch_is_known(c->authority)) {
        trouble(c, "the authority is not known", map_watch_trouble(c->authority));
        return;
    }
    if (json_open(only, sizeof(only) - 1, &parser, &names, &err) < 0 ||
        client_trust_set(c->clients, bundle(c), names, &err) < 0)
        log_warn("no client is known by a certificate: %s", err.text);
    act(c);
}

int agent_certificate_follow(struct agent_certificate *c, struct kube_client *client,
                             const char *namespace,
                             void (*on_state)(const char *trouble, void *userdata), void *userdata,
                             struct err *err) {
    c->client = client;
    c->on_state = on_state;
    c->userdata = userdata;
    (void) uv_timer_init(kube_client_loop(client), &c->timer);
    c->timer.data = c;
    return map_watch_start(client, namespace, AUTHORITY_CONFIG_MAP, on_authority, c, &c->authority,
                           err);
}

/* ---- its users ---- */

struct server_cert *agent_certificate_served(const struct agent_certificate *c) {
    return c->served;
}

int agent_certificate_check_client(const struct agent_certificate *c,
                                   struct gnutls_session_int *session, struct err *err) {
    return client_trust_check(c->clients, session, err);
}

const char *agent_certificate_trouble(const struct agent_certificate *c) {
    return c->trouble;
}

void agent_certificate_stop(struct agent_certificate *c) {
    if (!c || !c->client)
        return;
    kube_call_cancel(c->call);
    c->call = NULL;
    map_watch_stop(c->authority);
    c->authority = NULL;
    uv_close((uv_handle_t *) &c->timer, NULL);
}

struct agent_certificate *agent_certificate_free(struct agent_certificate *c) {
    if (!c)
        return NULL;
    c->served = server_cert_free(c->served);
    c->clients = client_trust_free(c->clients);
    forget_request(c);
    buf_done(&c->cert);
    buf_wipe(&c->key);
    free(c);
    return NULL;
}
