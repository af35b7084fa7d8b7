/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/cluster/lease.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "kube/api/field.h"
#include "kube/api/object_write.h"
#include "wire/json.h"
#include "wire/json_write.h"

#define PATH_MAX_LEN 512
#define BODY_MAX ((size_t) 8 << 10)
#define NOTE "elasticgpu.io/wanted-by"
#define CLUSTER_NOTE "elasticgpu.io/asked-by-cluster" /* the chart reads it, too */
#define DURATION_MAX_S 60
/* A process that is to end waits this long for the API server to take the Lease back. */
#define RELEASE_MAX_MS 4000

static uint64_t now(const struct lease *l) {
    return l->now(l->userdata);
}

void lease_init(struct lease *l) {
    l->started_ms = l->seen_ms = now(l);
    l->duration_ms = LEASE_DURATION_MS;
}

bool lease_leads(const struct lease *l) {
    return l->held && !l->yielding && now(l) - l->renewed_ms + LEASE_SETTLE_MS < LEASE_DURATION_MS;
}

bool lease_stands_back(const struct lease *l) {
    bool known = l->polled && (!l->cluster[0] || now(l) - l->seen_ms >= LEASE_CLUSTER_MS);
    return l->own && !known;
}

const char *lease_cluster_asks(const struct lease *l) {
    return lease_stands_back(l) ? l->cluster : "";
}

void lease_note_asked(struct lease *l) {
    l->asked = true;
    l->asked_ms = now(l);
}

static bool was_asked(const struct lease *l, uint64_t within_ms) {
    return l->asked && now(l) - l->asked_ms < within_ms;
}

static bool wants_it(const struct lease *l) {
    return was_asked(l, LEASE_ASKED_MS);
}

static bool is_mine(const struct lease *l) {
    return strcmp(l->holder, l->identity) == 0;
}

static void lose_lease(struct lease *l) {
    if (!l->held)
        return;
    l->held = l->yielding = false;
    l->lost++;
    log_info("this replica acts no more%s%s", l->holder[0] ? "; the Lease is held by " : "",
             l->holder);
    l->handlers->on_lost(l->userdata);
}

static void end_release(struct lease *l) {
    void (*done)(void *userdata) = l->on_released;
    l->on_released = NULL;
    if (done)
        done(l->userdata);
}

/* ---- responses ---- */

static void take_text(struct json value, char out[static LEASE_TEXT_MAX]) {
    if (field_copy(value, out, LEASE_TEXT_MAX) < 0)
        out[0] = '\0';
}

static void read_lease(struct lease *l, struct json object) {
    char holder[LEASE_TEXT_MAX], renewed[LEASE_TEXT_MAX];
    uint64_t seconds = 0, transitions = 0;
    take_text(JSON_PATH(object, "spec", "holderIdentity"), holder);
    take_text(JSON_PATH(object, "spec", "renewTime"), renewed);
    take_text(JSON_PATH(object, "metadata", "resourceVersion"), l->version);
    take_text(json_get(JSON_PATH(object, "metadata", "annotations"), NOTE), l->wanted_by);
    take_text(json_get(JSON_PATH(object, "metadata", "annotations"), CLUSTER_NOTE), l->cluster);
    if (!json_u64(JSON_PATH(object, "spec", "leaseDurationSeconds"), &seconds) || seconds == 0)
        seconds = LEASE_DURATION_MS / 1000;
    (void) json_u64(JSON_PATH(object, "spec", "leaseTransitions"), &transitions);
    if (strcmp(holder, l->holder) != 0 || strcmp(renewed, l->renewed) != 0)
        l->seen_ms = now(l);
    memcpy(l->holder, holder, sizeof(holder));
    memcpy(l->renewed, renewed, sizeof(renewed));
    l->duration_ms = (seconds < DURATION_MAX_S ? seconds : DURATION_MAX_S) * 1000;
    l->transitions = transitions;
}

static void clear_lease(struct lease *l) {
    l->holder[0] = l->renewed[0] = l->version[0] = l->wanted_by[0] = l->cluster[0] = '\0';
}

/* ---- writing it ---- */

static void put_time(struct json_writer *w, const char *key) {
    struct timespec at;
    struct tm utc;
    char text[64];
    clock_gettime(CLOCK_REALTIME, &at);
    (void) gmtime_r(&at.tv_sec, &utc);
    (void) strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &utc);
    json_put_stringf(w, key, "%s.%06ldZ", text, at.tv_nsec / 1000);
}

/* The replica that the cluster's kube-scheduler asks, as far as `holder` has to know. */
static const char *asked_by_cluster(const struct lease *l, const char *holder) {
    if (!l->own && was_asked(l, LEASE_CLUSTER_MS))
        return l->identity;
    return !holder[0] || lease_stands_back(l) ? l->cluster : "";
}

static void put_notes(struct json_writer *w, const char *wanted_by, const char *cluster) {
    if (!wanted_by[0] && !cluster[0])
        return;
    json_object_begin(w, "annotations");
    if (wanted_by[0])
        json_put_string(w, NOTE, wanted_by);
    if (cluster[0])
        json_put_string(w, CLUSTER_NOTE, cluster);
    json_object_end(w);
}

/* The whole Lease as it should be. Our own renewal drops the note, which so has to be repeated by
 * any replica that still wants it; one that is given back keeps the note, so that others wait. */
static void encode(const struct lease *l, const char *holder, struct buf *out) {
    struct json_writer w = {.out = out};
    bool changes = strcmp(holder, l->holder) != 0;
    object_begin(&w, "coordination.k8s.io/v1", "Lease", LEASE_NAME, l->name_space);
    if (l->version[0])
        json_put_string(&w, "resourceVersion", l->version);
    put_notes(&w, holder[0] ? "" : l->wanted_by, asked_by_cluster(l, holder));
    json_object_end(&w);
    json_object_begin(&w, "spec");
    json_put_string(&w, "holderIdentity", holder);
    json_put_u64(&w, "leaseDurationSeconds", LEASE_DURATION_MS / 1000);
    json_put_u64(&w, "leaseTransitions", l->transitions + (changes && holder[0] ? 1 : 0));
    put_time(&w, "renewTime");
    json_object_end(&w);
    json_object_end(&w);
}

/* `name`: of a Lease, with a slash before it; "": of all. */
static void request(struct lease *l, const char *method, const char *name, const char *type,
                    const struct buf *body, kube_response_cb on_response) {
    char path[PATH_MAX_LEN];
    snprintf(path, sizeof(path), "/apis/coordination.k8s.io/v1/namespaces/%s/leases%s?timeout=%us",
             l->name_space, name, (unsigned) LEASE_SERVER_S);
    l->sent_ms = now(l);
    l->next_ms = l->sent_ms + LEASE_RETRY_MS;
    bool bad = body && buf_error(body) < 0;
    l->busy =
        !bad && l->api.request(l->api.context, method, path, type, body ? body->data : NULL,
                               body ? body->len : 0, LEASE_TIMEOUT_MS, on_response, l, NULL) >= 0;
    if (!l->busy)
        l->failed++;
}

static void on_written(const struct kube_response *response, void *userdata) {
    struct lease *l = userdata;
    bool renewal = l->held;
    l->busy = false;
    if (response->status < 200 || response->status > 299) {
        l->failed += response->status != 409;
        l->version[0] = '\0'; /* whether it was written: the next poll shows */
        l->next_ms = response->status == 409 ? now(l) : now(l) + LEASE_RETRY_MS;
        return;
    }
    read_lease(l, response->body);
    if (!is_mine(l)) { /* given back */
        lose_lease(l);
        end_release(l);
        l->next_ms = now(l) + LEASE_POLL_MS;
        return;
    }
    l->held = true;
    l->free_ms = 0;
    l->renewed_ms = l->sent_ms;
    l->next_ms = l->sent_ms + LEASE_RENEW_MS;
    if (!renewal) {
        l->acquired++;
        log_info("%s acts from now on", l->identity);
        l->handlers->on_acquired(l->userdata);
    }
}

static void write_lease(struct lease *l, const char *holder) {
    _cleanup_buf_ struct buf body = BUF_INIT(BODY_MAX);
    encode(l, holder, &body);
    request(l, l->version[0] ? "PUT" : "POST", l->version[0] ? "/" LEASE_NAME : "", NULL, &body,
            on_written);
}

/* ---- wanting it ---- */

static void on_noted(const struct kube_response *response, void *userdata) {
    struct lease *l = userdata;
    l->busy = false;
    l->failed += response->status < 200 || response->status > 299;
    l->next_ms = now(l) + LEASE_RETRY_MS;
}

static void leave_note(struct lease *l) {
    _cleanup_buf_ struct buf body = BUF_INIT(BODY_MAX);
    struct json_writer w = {.out = &body};
    json_object_begin(&w, NULL);
    json_object_begin(&w, "metadata");
    put_notes(&w, l->identity, l->own ? "" : l->identity);
    json_object_end(&w);
    json_object_end(&w);
    request(l, "PATCH", "/" LEASE_NAME, KUBE_MERGE_PATCH, &body, on_noted);
}

/* kube-scheduler's identity is the name of its host, which is that of its pod, "_" and a UUID. */
static bool is_of_pod(const char *identity, const char *pod) {
    size_t n = strlen(pod);
    return strncmp(identity, pod, n) == 0 && identity[n] == '_';
}

static void on_kube_scheduler_seen(const struct kube_response *response, void *userdata) {
    struct lease *l = userdata;
    char holder[LEASE_TEXT_MAX] = "";
    bool known = response->status == 200 || response->status == 404;
    l->busy = false;
    l->next_ms = now(l) + LEASE_RETRY_MS;
    if (response->status == 200)
        take_text(JSON_PATH(response->body, "spec", "holderIdentity"), holder);
    if (!known || is_of_pod(holder, l->identity))
        write_lease(l, l->identity);
}

/* No replica holds it. Of replicas with a kube-scheduler of their own the one takes it whose
 * kube-scheduler leads, and so is going to ask; any one where that is not known soon. */
static void take(struct lease *l) {
    if (!l->free_ms)
        l->free_ms = now(l);
    if (l->own && !wants_it(l) && now(l) - l->free_ms < LEASE_FOLLOW_MS)
        request(l, "GET", "/" LEASE_OF_KUBE_SCHEDULER, NULL, NULL, on_kube_scheduler_seen);
    else
        write_lease(l, l->identity);
}

/* A Lease without a holder goes to the replica that left the note, if that one comes soon. */
static bool is_allocated(const struct lease *l) {
    return l->wanted_by[0] && strcmp(l->wanted_by, l->identity) != 0 &&
           now(l) - l->seen_ms < UINT64_C(2) * LEASE_POLL_MS;
}

/* It is not ours. */
static void decide(struct lease *l) {
    uint64_t at = now(l);
    bool able = l->handlers->able(l->userdata) && !l->on_released && !lease_stands_back(l);
    l->next_ms = at + LEASE_POLL_MS;
    if (l->holder[0])
        l->free_ms = 0;
    if (l->holder[0] == '\0') {
        if (able && !is_allocated(l))
            take(l);
    } else if (is_mine(l)) {
        /* An earlier process of this replica held it, and is dead. */
        if (at - l->started_ms >= LEASE_SETTLE_DEAD_MS)
            write_lease(l, able ? l->identity : "");
        else
            l->next_ms = at + LEASE_RETRY_MS;
    } else if (at - l->seen_ms >= l->duration_ms) {
        if (able)
            write_lease(l, l->identity);
    } else {
        uint64_t ends = l->seen_ms + l->duration_ms;
        l->next_ms = ends < l->next_ms ? ends : l->next_ms;
        if (able && wants_it(l) && strcmp(l->wanted_by, l->identity) != 0)
            leave_note(l);
    }
}

/* ---- having it ---- */

static void yield_if_wanted(struct lease *l) {
    bool wanted = l->wanted_by[0] && strcmp(l->wanted_by, l->identity) != 0 && !wants_it(l);
    if (l->yielding || (!wanted && !lease_stands_back(l)))
        return;
    log_info("%s is asked by kube-scheduler: handing over", wanted ? l->wanted_by : l->cluster);
    l->yielding = true;
    l->yielding_ms = now(l);
}

/* Whether all requests in flight are decided, or must be by now. */
static bool is_quiet(const struct lease *l) {
    return l->handlers->open_requests(l->userdata) == 0 ||
           now(l) - l->yielding_ms >= LEASE_SETTLE_MS;
}

static void keep_or_yield(struct lease *l) {
    yield_if_wanted(l);
    if (!l->yielding || !is_quiet(l))
        write_lease(l, l->identity);
    else
        write_lease(l, "");
}

/* ---- polling ---- */

static void on_seen(const struct kube_response *response, void *userdata) {
    struct lease *l = userdata;
    l->busy = false;
    l->polled = l->polled || response->status == 200 || response->status == 404;
    if (response->status == 404)
        clear_lease(l);
    else if (response->status == 200 && json_valid(response->body))
        read_lease(l, response->body);
    else {
        l->failed++;
        return;
    }
    if (l->held && is_mine(l)) {
        keep_or_yield(l); /* no other replica had it in between: each change names another holder */
        return;
    }
    lose_lease(l);
    decide(l);
}

static void poll_lease(struct lease *l) {
    request(l, "GET", "/" LEASE_NAME, NULL, NULL, on_seen);
}

void lease_run(struct lease *l) {
    bool leaving = l->on_released || l->yielding;
    if (l->on_released && (!l->held || now(l) - l->yielding_ms >= RELEASE_MAX_MS)) {
        end_release(l);
        return;
    }
    if (l->busy || (now(l) < l->next_ms && !(leaving && l->held && is_quiet(l))))
        return;
    if (l->held && l->version[0])
        keep_or_yield(l);
    else
        poll_lease(l);
}

void lease_release(struct lease *l, void (*done)(void *userdata)) {
    l->on_released = done;
    l->yielding = true;
    l->yielding_ms = now(l);
    lease_run(l);
}
