/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/cluster/keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/log.h"
#include "kube/api/client.h"
#include "kube/api/reflector.h"
#include "kube/objects/assignment.h"
#include "wire/json.h"

struct keys {
    struct kube_reflector *reflector;
    struct signing_verifier *verifier;
    uint64_t read_at;
    bool listing; /* a list is under way, or was asked for */
    bool seen;    /* by that list */
    void (*on_change)(void *userdata);
    void *userdata;
};

/* Keys that cannot be read are no keys: what was taken away must not count because of a mistake in
 * what was left. */
static void load_keys(struct keys *k, const char *pem) {
    struct signing_verifier *verifier = NULL;
    struct err err = {0};

    if (!pem || signing_verifier_load(pem, strlen(pem), &verifier, &err) < 0)
        log_error("ConfigMap aliquot-signing has no public key that can be used%s%s: containers "
                  "that have not started yet wait",
                  pem ? ": " : "", err.text);
    (void) signing_verifier_free(k->verifier);
    k->verifier = verifier;
}

static void on_sync_begin(void *userdata) {
    struct keys *k = userdata;

    k->listing = true;
    k->seen = false;
}

static void on_object(enum kube_event event, struct json object, void *userdata) {
    struct keys *k = userdata;

    k->seen = event != KUBE_DELETED;
    load_keys(k, k->seen ? json_string(JSON_PATH(object, "data", "public.pem")) : NULL);
    if (!k->listing)
        k->on_change(k->userdata);
}

static void on_sync_end(void *userdata) {
    struct keys *k = userdata;

    if (!k->seen && k->verifier)
        load_keys(k, NULL);
    k->listing = false;
    k->read_at = kube_reflector_list_began(k->reflector);
    k->on_change(k->userdata);
}

void keys_refresh(struct keys *k) {
    if (k->listing)
        return;
    k->listing = true;
    kube_reflector_relist(k->reflector);
}

int keys_start(struct kube_client *client, const char *namespace, void (*on_change)(void *userdata),
               void *userdata, struct keys **ret, struct err *err) {
    static const struct kube_reflector_handlers events = {
        .on_sync_begin = on_sync_begin, .on_object = on_object, .on_sync_end = on_sync_end};
    _cleanup_free_ struct keys *k = calloc(1, sizeof(*k));
    char path[192];
    const struct kube_reflector_options options = {
        .path = path, .query = "fieldSelector=metadata.name%3Daliquot-signing"};
    int r;

    if (!k)
        return err_set(err, ENOMEM, "out of memory");
    *k = (struct keys){.listing = true, .on_change = on_change, .userdata = userdata};
    (void) snprintf(path, sizeof(path), "/api/v1/namespaces/%.63s/configmaps", namespace);
    r = kube_reflector_start(client, &options, &events, k, &k->reflector, err);
    if (r == 0)
        *ret = take_ptr(k);
    return r;
}

void keys_stop(struct keys *k) {
    kube_reflector_stop(k->reflector);
    (void) signing_verifier_free(k->verifier);
    free(k);
}

const struct signing_verifier *keys_verifier(const struct keys *k) {
    return k->verifier;
}

uint64_t keys_read_at(const struct keys *k) {
    return k->read_at;
}
