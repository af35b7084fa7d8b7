/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/daemon/requeue.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "kube/api/object_write.h"
#include "wire/http_status.h"
#include "wire/json_write.h"

#define REQUEUE_OBJECT "aliquot-wake"
#define INTERVAL_MS 1000
#define TIMEOUT_MS 10000
#define SHAPES_MAX 32 /* kinds of requests in one run; the others are left to the next */

/* Whether a node that has changed since the pod of `r->plan` was refused can take it now. A node
 * that could take it before, too, was filtered out for another reason (a taint, a selector) and
 * would cause endless retries. */
static bool fits_somewhere(struct requeue *r, const struct state_pod *pod) {
    int64_t score;
    for (struct state_node *node = r->state->nodes; node; node = node->hh.next)
        if (node->exists && node->version > pod->requeue.version &&
            state_judge(r->state, &r->plan, node->head, pod, &score) == PLACE_OK)
            return true;
    return false;
}

struct seen_shape {
    uint64_t shape, version;
};

/* The kinds of requests that were evaluated in one run. */
struct seen_shapes {
    size_t n;
    bool more; /* there was no room for all */
    struct seen_shape of[SHAPES_MAX];
};

/* Whether a pod of the same shape that waits for at least as long has been evaluated. */
static bool was_seen(const struct seen_shapes *seen, uint64_t shape, uint64_t version) {
    for (size_t i = 0; i < seen->n; i++)
        if (seen->of[i].shape == shape && seen->of[i].version <= version)
            return true;
    return false;
}

/* Whether this pod is to be evaluated in this run; notes it if so. */
static bool has_its_turn(struct requeue *r, struct state_pod *pod, uint64_t shape,
                         struct seen_shapes *seen) {
    bool known = was_seen(seen, shape, pod->requeue.version);
    if (!known && (seen->n == SHAPES_MAX || (seen->n > 0 && r->plan.effort == 0))) {
        seen->more = true;
        return false;
    }
    pod->requeue.round = r->rounds + 1;
    if (!known)
        seen->of[seen->n++] = (struct seen_shape){shape, pod->requeue.version};
    return !known;
}

static bool is_let_through(struct requeue *r, struct state_pod *pod, uint64_t now_ms) {
    _cleanup_buf_ struct buf why = BUF_INIT(GATE_WHY_MAX);
    return !gates_closed(r->gates, pod, now_ms, &why);
}

/* Many waiting pods are often of few kinds: each kind is evaluated once. When they are of many
 * kinds, a round takes several runs, and evaluates each pod once. */
static bool any_pod_fits(struct requeue *r, uint64_t now_ms) {
    struct seen_shapes seen = {.n = 0};
    state_refresh_all(r->state);
    for (struct state_pod *pod = r->state->open; pod; pod = pod->open_next) {
        if (pod->requeue.gated && pod->stage <= POD_ASSUMED && is_let_through(r, pod, now_ms))
            return true;
        if (!pod->requeue.refused || pod->stage != POD_PENDING || pod->requeue.round > r->rounds)
            continue;
        uint32_t left = r->plan.effort;
        state_plan(r->state, pod, &r->request, &r->plan);
        uint32_t whole = r->plan.effort;
        r->plan.effort = left;
        if (!has_its_turn(r, pod, r->plan.shape, &seen))
            continue;
        r->plan.effort = whole;
        if (seen.n > 1)
            r->plan.effort = left; /* one effort for the whole run */
        if (fits_somewhere(r, pod))
            return true;
    }
    r->rounds += !seen.more;
    return false;
}

/* kube-scheduler retries all waiting pods: those that are refused then are marked again. */
static void forget_refusals(struct state *s) {
    for (struct state_pod *pod = s->open; pod; pod = pod->open_next)
        pod->requeue.refused = pod->requeue.gated = false;
}

static void on_written(const struct kube_response *response, void *userdata) {
    struct requeue *r = userdata;
    r->sending = false;
    if (http_is_success(response->status)) {
        r->sent++;
        r->failing = false;
        return;
    }
    r->failed++;
    if (!r->failing)
        log_warn("cannot have kube-scheduler retry its pods: %s; trying on", response->text);
    r->failing = true;
}

static void encode(struct buf *out) {
    struct timespec now;
    struct json_writer w = {.out = out};
    clock_gettime(CLOCK_REALTIME, &now);
    object_begin(&w, "storage.k8s.io/v1", "CSIStorageCapacity", REQUEUE_OBJECT, NULL);
    json_object_begin(&w, "annotations");
    json_put_stringf(&w, "elasticgpu.io/wake", "%lld.%09ld", (long long) now.tv_sec, now.tv_nsec);
    json_object_end(&w);
    json_object_end(&w);
    json_put_string(&w, "storageClassName", REQUEUE_OBJECT);
    json_object_end(&w);
}

static void send_request(struct requeue *r, uint64_t now_ms) {
    _cleanup_buf_ struct buf body = BUF_INIT(4096);
    char path[256];
    encode(&body);
    snprintf(path, sizeof(path),
             "/apis/storage.k8s.io/v1/namespaces/%s/csistoragecapacities/" REQUEUE_OBJECT
             "?fieldManager=aliquot-scheduler&force=true",
             r->name_space);
    r->sent_ms = now_ms;
    if (buf_error(&body) < 0 ||
        r->api.request(r->api.context, "PATCH", path, KUBE_APPLY_PATCH, body.data, body.len,
                       TIMEOUT_MS, on_written, r, NULL) < 0) {
        r->failed++;
        return;
    }
    r->sending = true;
    r->requested = false;
    forget_refusals(r->state);
}

void requeue_request(struct requeue *r) {
    r->requested = true;
}

void requeue_run(struct requeue *r, uint64_t now_ms) {
    if (r->sending || (r->sent_ms != 0 && now_ms - r->sent_ms < INTERVAL_MS))
        return;
    if (r->failing || r->requested || any_pod_fits(r, now_ms))
        send_request(r, now_ms);
}
