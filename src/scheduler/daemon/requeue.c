/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/daemon/requeue.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "wire/json_write.h"

#define WAKE_NAME "aliquot-wake"
#define INTERVAL_MS 1000
#define TIMEOUT_MS 10000
#define SHAPES_MAX                                                                                 \
    32 /* kinds of requests looked at in one run; the others have their turn later                 \
        */

/* Whether a node has come to be able to take the pod that `w->plan` was made for since that was
 * refused. One that could all along was not offered for reasons of its own (a taint, a selector):
 * waking for its sake would wake for ever. */
static bool fits_somewhere(struct wake *w, const struct state_pod *pod) {
    int64_t score;
    for (struct state_node *node = w->state->nodes; node; node = node->hh.next)
        if (node->exists && node->version > pod->requeue.version &&
            state_judge(w->state, &w->plan, node->head, pod, &score) == PLACE_OK)
            return true;
    return false;
}

struct seen_shape {
    uint64_t shape, version;
};

/* What was looked at in one run. */
struct seen_shapes {
    size_t n;
    bool more; /* there was no room for all */
    struct seen_shape of[SHAPES_MAX];
};

/* Whether a pod of the same shape that waits for at least as long has been looked at. */
static bool was_seen(const struct seen_shapes *seen, uint64_t shape, uint64_t version) {
    for (size_t i = 0; i < seen->n; i++)
        if (seen->of[i].shape == shape && seen->of[i].version <= version)
            return true;
    return false;
}

/* Whether this pod is to be looked at in this run; notes that it was if so. */
static bool has_its_turn(struct wake *w, struct state_pod *pod, uint64_t shape,
                         struct seen_shapes *seen) {
    bool known = was_seen(seen, shape, pod->requeue.version);
    if (!known && (seen->n == SHAPES_MAX || (seen->n > 0 && w->plan.effort == 0))) {
        seen->more = true;
        return false;
    }
    pod->requeue.round = w->rounds + 1;
    if (!known)
        seen->of[seen->n++] = (struct seen_shape){shape, pod->requeue.version};
    return !known;
}

static bool is_let_through(struct wake *w, struct state_pod *pod, uint64_t now_ms) {
    _cleanup_buf_ struct buf why = BUF_INIT(GATE_WHY_MAX);
    return !gates_closed(w->gates, pod, now_ms, &why);
}

/* Many pods that wait are often of few kinds: each is looked at once. When they are of many kinds,
 * a round takes several runs, and nobody is looked at again before all the others were. */
static bool anybody_fits(struct wake *w, uint64_t now_ms) {
    struct seen_shapes seen = {.n = 0};
    state_refresh_all(w->state);
    for (struct state_pod *pod = w->state->open; pod; pod = pod->open_next) {
        if (pod->requeue.gated && pod->stage <= POD_PROMISED && is_let_through(w, pod, now_ms))
            return true;
        if (!pod->requeue.refused || pod->stage != POD_PENDING || pod->requeue.round > w->rounds)
            continue;
        uint32_t left = w->plan.effort;
        state_plan(w->state, pod, &w->request, &w->plan);
        uint32_t whole = w->plan.effort;
        w->plan.effort = left;
        if (!has_its_turn(w, pod, w->plan.shape, &seen))
            continue;
        w->plan.effort = whole;
        if (seen.n > 1)
            w->plan.effort = left; /* one effort for the whole run */
        if (fits_somewhere(w, pod))
            return true;
    }
    w->rounds += !seen.more;
    return false;
}

/* Everybody that waits is asked about again: those that are refused then are marked again. */
static void forget_refusals(struct state *s) {
    for (struct state_pod *pod = s->open; pod; pod = pod->open_next)
        pod->requeue.refused = pod->requeue.gated = false;
}

static void on_written(const struct kube_response *response, void *userdata) {
    struct wake *w = userdata;
    w->sending = false;
    if (response->status >= 200 && response->status < 300) {
        w->sent++;
        w->again = false;
        return;
    }
    w->failed++;
    if (!w->again)
        log_warn("cannot wake kube-scheduler: %s; trying on", response->text);
    w->again = true;
}

static void encode(struct buf *out) {
    struct timespec now;
    struct json_writer w = {.out = out};
    clock_gettime(CLOCK_REALTIME, &now);
    json_object_begin(&w, NULL);
    json_put_string(&w, "apiVersion", "storage.k8s.io/v1");
    json_put_string(&w, "kind", "CSIStorageCapacity");
    json_object_begin(&w, "metadata");
    json_put_string(&w, "name", WAKE_NAME);
    json_object_begin(&w, "annotations");
    json_put_stringf(&w, "elasticgpu.io/wake", "%lld.%09ld", (long long) now.tv_sec, now.tv_nsec);
    json_object_end(&w);
    json_object_end(&w);
    json_put_string(&w, "storageClassName", WAKE_NAME);
    json_object_end(&w);
}

static void send_wake(struct wake *w, uint64_t now_ms) {
    _cleanup_buf_ struct buf body = BUF_INIT(4096);
    char path[256];
    encode(&body);
    snprintf(path, sizeof(path),
             "/apis/storage.k8s.io/v1/namespaces/%s/csistoragecapacities/" WAKE_NAME
             "?fieldManager=aliquot-scheduler&force=true",
             w->name_space);
    w->sent_ms = now_ms;
    if (buf_error(&body) < 0 ||
        w->api.request(w->api.context, "PATCH", path, KUBE_APPLY_PATCH, body.data, body.len,
                       TIMEOUT_MS, on_written, w, NULL) < 0) {
        w->failed++;
        return;
    }
    w->sending = true;
    w->asked = false;
    forget_refusals(w->state);
}

void wake_ask(struct wake *w) {
    w->asked = true;
}

void wake_run(struct wake *w, uint64_t now_ms) {
    if (w->sending || (w->sent_ms != 0 && now_ms - w->sent_ms < INTERVAL_MS))
        return;
    if (w->again || w->asked || anybody_fits(w, now_ms))
        send_wake(w, now_ms);
}
