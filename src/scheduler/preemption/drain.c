/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/preemption/drain.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/text.h"
#include "kube/api/event_writer.h"
#include "kube/api/field.h"
#include "kube/api/object_write.h"
#include "wire/http_status.h"
#include "wire/json_write.h"

#define IN_FLIGHT_MAX 8
#define REQUEST_TIMEOUT_MS 10000
#define REFUSED_MS 15000 /* after a refusal, by a disruption budget as a rule */
#define RETRY_MS 5000
#define RETRY_DOUBLINGS 6 /* after failures one after the other */
#define EVICTED_MS 60000  /* a pod that is still named then is evicted again */
#define KEY_MAX (KUBE_NAME_MAX + KUBE_UID_MAX)

/* A pod that a GPU object names. Entries of different objects are independent: an agent has no
 * influence on what the object of another node says of the same pod. */
struct drain_pod {
    UT_hash_handle hh;
    char key[KEY_MAX]; /* "<GPU object>/<UID>" */
    char uid[KUBE_UID_MAX];
    char namespace[KUBE_LABEL_MAX];
    char name[KUBE_NAME_MAX];
    char gpu[KUBE_NAME_MAX]; /* the object that names it */
    char node[KUBE_NAME_MAX];
    uint64_t next_ms;  /* nothing is sent before */
    unsigned failures; /* one after the other */
    bool named;        /* by the object as it is now */
    bool in_flight;
};

/* A request in flight. The entry may be gone when the response arrives. */
struct sent {
    struct drainer *drainer;
    char key[KEY_MAX];
};

/* ---- what is named ---- */

static struct drain_pod *find(struct drainer *d, const char *key) {
    struct drain_pod *pod;

    HASH_FIND_STR(d->pods, key, pod);
    return pod;
}

static void drop(struct drainer *d, struct drain_pod *pod) {
    HASH_DEL(d->pods, pod);
    free(pod);
}

/* "namespace/name/uid"; other texts are ignored. */
static bool parse(const char *text, size_t len, struct drain_pod *ret) {
    char copy[KUBE_LABEL_MAX + KUBE_NAME_MAX + KUBE_UID_MAX];
    char *name, *uid;

    if (len >= sizeof(copy))
        return false;
    text_copy(copy, len + 1, text);
    name = strchr(copy, '/');
    uid = name ? strchr(name + 1, '/') : NULL;
    if (!uid)
        return false;
    *name++ = 0;
    *uid++ = 0;
    if (strlen(copy) >= sizeof(ret->namespace) || strlen(name) >= sizeof(ret->name) || !uid[0] ||
        strlen(uid) >= sizeof(ret->uid) || !field_is_name(copy) || !field_is_name(name))
        return false;
    text_copy(ret->namespace, sizeof(ret->namespace), copy);
    text_copy(ret->name, sizeof(ret->name), name);
    text_copy(ret->uid, sizeof(ret->uid), uid);
    return true;
}

static bool is_of(const struct drain_pod *pod, const char *gpu) {
    return !gpu || strcmp(pod->gpu, gpu) == 0;
}

/* `gpu` NULL: all objects. */
static void begin_names(struct drainer *d, const char *gpu) {
    for (struct drain_pod *pod = d->pods; pod; pod = pod->hh.next)
        if (is_of(pod, gpu))
            pod->named = false;
}

static void end_names(struct drainer *d, const char *gpu) {
    struct drain_pod *pod, *next;

    HASH_ITER(hh, d->pods, pod, next)
        if (is_of(pod, gpu) && !pod->named)
            drop(d, pod);
}

static int see_pod(struct drainer *d, const struct gpu_object *gpu, const char *text, size_t len) {
    struct drain_pod named = {.named = true}, *pod;

    if (!parse(text, len, &named))
        return 0;
    (void) snprintf(named.key, sizeof(named.key), "%s/%s", gpu->name, named.uid);
    pod = find(d, named.key);
    if (!pod) {
        pod = malloc(sizeof(*pod));
        if (!pod)
            return -ENOMEM;
        *pod = named;
        text_copy(pod->gpu, sizeof(pod->gpu), gpu->name);
        pod->next_ms = d->now(d->userdata);
        HASH_ADD_STR(d->pods, key, pod);
        if (!hash_added_or_freed(pod))
            return -ENOMEM;
    }
    text_copy(pod->namespace, sizeof(pod->namespace), named.namespace);
    text_copy(pod->name, sizeof(pod->name), named.name);
    text_copy(pod->node, sizeof(pod->node), gpu->node);
    pod->named = true;
    return 0;
}

int drainer_see(struct drainer *d, const struct gpu_object *gpu) {
    int r = 0;

    begin_names(d, gpu->name);
    for (const char *at = gpu->evict; *at && r == 0;) {
        size_t len = strcspn(at, " ");

        r = see_pod(d, gpu, at, len);
        at += len + (at[len] == ' ');
    }
    end_names(d, gpu->name);
    return r;
}

void drainer_gone(struct drainer *d, const char *gpu) {
    begin_names(d, gpu);
    end_names(d, gpu);
}

void drainer_sync_begin(struct drainer *d) {
    begin_names(d, NULL);
}

void drainer_sync_end(struct drainer *d) {
    end_names(d, NULL);
}

void drainer_done(struct drainer *d) {
    hash_drop_all(d, d->pods, drop);
}

/* ---- requests ---- */

static bool submit(struct drainer *d, const struct drain_pod *pod, const char *method,
                   const char *subresource, const struct buf *body, kube_response_cb on_response) {
    struct sent *sent = calloc(1, sizeof(*sent));
    char path[512];

    if (!sent || (body && buf_error(body) < 0)) {
        free(sent);
        return false;
    }
    sent->drainer = d;
    text_copy(sent->key, sizeof(sent->key), pod->key);
    (void) snprintf(path, sizeof(path), "/api/v1/namespaces/%s/pods/%s%s", pod->namespace,
                    pod->name, subresource);
    if (d->api.request(d->api.context, method, path, NULL, body ? body->data : NULL,
                       body ? body->len : 0, REQUEST_TIMEOUT_MS, on_response, sent, NULL) == 0) {
        d->in_flight++;
        return true;
    }
    free(sent);
    return false;
}

/* The entry, of which a request has been answered; NULL: it is gone. */
static struct drain_pod *answered(struct sent *sent) {
    struct drain_pod *pod = find(sent->drainer, sent->key);

    sent->drainer->in_flight--;
    if (pod)
        pod->in_flight = false;
    return pod;
}

static void tell(struct drainer *d, const struct drain_pod *pod, const char *reason,
                 const char *message) {
    log_info("pod %s/%s: %s: %s", pod->namespace, pod->name, reason, message);
    if (d->events) {
        const struct event event =
            event_on_pod(pod->namespace, pod->name, pod->uid, reason, message);

        event_writer_note(d->events, &event, 0, false, d->now(d->userdata));
    }
}

static void tell_evicted(struct drainer *d, const struct drain_pod *pod) {
    char message[1024];

    (void) snprintf(message, sizeof(message), "GPU %s of node %s is drained", pod->gpu, pod->node);
    tell(d, pod, "GPUDrained", message);
}

static void tell_delayed(struct drainer *d, const struct drain_pod *pod, const char *what,
                         const char *why) {
    char message[1024];

    (void) snprintf(message, sizeof(message), "The eviction from drained GPU %s of node %s %s: %s",
                    pod->gpu, pod->node, what, why);
    tell(d, pod, "GPUDrainDelayed", message);
}

static uint64_t retry_after(struct drain_pod *pod) {
    unsigned doublings = pod->failures < RETRY_DOUBLINGS ? pod->failures : RETRY_DOUBLINGS;

    pod->failures++;
    return (uint64_t) RETRY_MS << doublings;
}

static void on_evicted(const struct kube_response *response, void *userdata) {
    _cleanup_free_ struct sent *sent = userdata;
    struct drainer *d = sent->drainer;
    struct drain_pod *pod = answered(sent);
    bool ok = http_is_success(response->status);
    bool refused = response->status == 429;
    bool failed = !ok && !refused && response->status != 404;

    d->evicted += ok;
    d->refused += refused;
    d->failed += failed;
    if (!pod)
        return;
    if (ok || refused)
        pod->failures = 0;
    pod->next_ms = d->now(d->userdata) + (ok        ? EVICTED_MS
                                          : refused ? REFUSED_MS
                                                    : retry_after(pod));
    if (ok)
        tell_evicted(d, pod);
    else if (refused)
        tell_delayed(d, pod, "was refused", response->text);
    else if (failed)
        tell_delayed(d, pod, "failed", response->text);
}

static bool evict(struct drainer *d, const struct drain_pod *pod) {
    _cleanup_buf_ struct buf body = BUF_INIT(4096);
    struct json_writer w = {.out = &body};

    eviction_write(&w, pod->name, pod->namespace, pod->uid);
    return submit(d, pod, "POST", "/eviction", &body, on_evicted);
}

/* An agent can name any pod; the pod itself says where it is. */
static void on_pod(const struct kube_response *response, void *userdata) {
    _cleanup_free_ struct sent *sent = userdata;
    struct drainer *d = sent->drainer;
    struct drain_pod *pod = answered(sent);
    struct json body = response->body;
    bool ok = http_is_success(response->status);

    if (!pod)
        return;
    pod->next_ms = d->now(d->userdata) + (ok ? RETRY_MS : retry_after(pod));
    if (!ok && response->status != 404)
        log_warn("cannot read pod %s/%s: %s", pod->namespace, pod->name, response->text);
    if (!ok || !json_is_string(JSON_PATH(body, "metadata", "uid"), pod->uid) ||
        json_valid(JSON_PATH(body, "metadata", "deletionTimestamp")))
        return;
    if (!json_is_string(JSON_PATH(body, "spec", "nodeName"), pod->node)) {
        log_warn("GPU %s names pod %s/%s, which is not on node %s: it is not evicted", pod->gpu,
                 pod->namespace, pod->name, pod->node);
        pod->next_ms += EVICTED_MS;
        return;
    }
    if (d->leads(d->userdata))
        pod->in_flight = evict(d, pod);
}

/* The entry that has been due for longest, so that entries take turns. NULL: none is due. */
static struct drain_pod *next_due(struct drainer *d, uint64_t now) {
    struct drain_pod *first = NULL;

    for (struct drain_pod *pod = d->pods; pod; pod = pod->hh.next)
        if (!pod->in_flight && now >= pod->next_ms && (!first || pod->next_ms < first->next_ms))
            first = pod;
    return first;
}

void drainer_run(struct drainer *d) {
    uint64_t now = d->now(d->userdata);
    struct drain_pod *pod;

    while (d->in_flight < IN_FLIGHT_MAX && (pod = next_due(d, now)))
        if (!(pod->in_flight = submit(d, pod, "GET", "", NULL, on_pod)))
            return; /* later: no memory, or no connection */
}
