/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "kube/assignment.h"
#include "kube/client.h"
#include "wire/json.h"

#define RETRY_MS 1000

struct keys {
    struct kube_client *client;
    uv_loop_t *loop;
    char path[192];
    struct kube_call *call;
    uv_timer_t timer;
    struct signing_verifier *verifier;
    uint64_t read_at;
    bool wanted; /* a refresh was asked for and has not been begun */
    void (*on_change)(void *userdata);
    void *userdata;
    void (*on_closed)(void *userdata);
    void *closed_userdata;
};

static void read_keys(struct keys *k);

static void on_timer(uv_timer_t *timer) {
    struct keys *k = timer->data;

    if (k->wanted || !k->verifier)
        read_keys(k);
}

static void on_response(const struct kube_response *response, void *userdata) {
    struct keys *k = userdata;
    const char *pem = NULL;
    struct signing_verifier *verifier = NULL;

    k->call = NULL;
    if (response->status == 200)
        pem = json_string(JSON_PATH(response->body, "data", "public.pem"));
    if (pem && signing_verifier_load(pem, strlen(pem), &verifier, NULL) == 0) {
        (void) signing_verifier_free(k->verifier);
        k->verifier = verifier;
        k->read_at = uv_now(k->loop);
    }
    (void) uv_timer_start(&k->timer, on_timer, RETRY_MS, 0);
    k->on_change(k->userdata);
}

static void read_keys(struct keys *k) {
    if (k->call)
        return;
    k->wanted = false;
    if (kube_request(k->client, "GET", k->path, NULL, NULL, 0, 10000, on_response, k, &k->call,
                     NULL) < 0)
        (void) uv_timer_start(&k->timer, on_timer, RETRY_MS, 0);
}

void keys_refresh(struct keys *k) {
    k->wanted = true;
    if (!uv_is_active((uv_handle_t *) &k->timer))
        read_keys(k);
}

int keys_start(struct kube_client *client, const char *namespace, void (*on_change)(void *userdata),
               void *userdata, struct keys **ret, struct err *err) {
    struct keys *k = calloc(1, sizeof(*k));

    if (!k)
        return err_set(err, ENOMEM, "out of memory");
    k->client = client;
    k->loop = kube_client_loop(client);
    k->on_change = on_change;
    k->userdata = userdata;
    (void) snprintf(k->path, sizeof(k->path), "/api/v1/namespaces/%.63s/configmaps/aliquot-signing",
                    namespace);
    (void) uv_timer_init(k->loop, &k->timer);
    k->timer.data = k;
    read_keys(k);
    *ret = k;
    return 0;
}

static void on_handle_closed(uv_handle_t *handle) {
    struct keys *k = handle->data;
    void (*on_closed)(void *) = k->on_closed;
    void *userdata = k->closed_userdata;

    (void) signing_verifier_free(k->verifier);
    free(k);
    if (on_closed)
        on_closed(userdata);
}

void keys_stop(struct keys *k, void (*on_closed)(void *userdata), void *userdata) {
    if (k->call)
        kube_call_cancel(k->call);
    k->on_closed = on_closed;
    k->closed_userdata = userdata;
    uv_close((uv_handle_t *) &k->timer, on_handle_closed);
}

const struct signing_verifier *keys_verifier(const struct keys *k) {
    return k->verifier;
}

uint64_t keys_read_at(const struct keys *k) {
    return k->read_at;
}
