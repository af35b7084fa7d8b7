/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/dra/prepare.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "agent/dra/claim_terms.h"
#include "agent/dra/messages.h"
#include "agent/shares/claim_rule.h"
#include "agent/shares/provision.h"
#include "agent/shares/shares.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/log.h"
#include "base/step.h"
#include "base/text.h"
#include "kube/api/client.h"
#include "kube/api/field.h"
#include "kube/objects/resource_claim.h"
#include "model/dra.h"
#include "wire/grpc_server.h"

#define CHECK_MS 250      /* interval of retries when no event triggers one */
#define READ_AGAIN_MS 500 /* a claim that could not be read, or is not allocated */
#define READ_TIMEOUT_MS 5000
#define ANSWER_MAX ((size_t) 1 << 20)

/* A claim of a call. */
struct wanted {
    struct dra_call *of;
    char namespace[KUBE_LABEL_MAX], name[KUBE_NAME_MAX], uid[KUBE_UID_MAX];
    char nonce[NONCE_LEN + 1];
    struct kube_call *reading; /* NULL: no request is under way */
    uint64_t read_at;          /* loop time before which it is not read again */
    struct resource_claim claim;
    bool known;  /* the claim was read */
    bool polled; /* for provision_claim() */
    bool over;   /* prepared, or refused for good */
    bool failed;
    struct err why; /* of the failure, or what it waits for */
};

struct dra_call {
    struct dra_prepares *all;
    struct grpc_call *call;
    struct wanted *claims;
    size_t n;
    uint64_t until; /* loop time */
    uv_timer_t timer;
    struct dra_call *prev, *next;
};

/* ---- the claim ---- */

static void refuse(struct wanted *w) {
    w->over = w->failed = true;
}

static void forget(struct wanted *w) {
    if (w->known)
        resource_claim_done(&w->claim);
    w->known = false;
}

static void take_claim(struct wanted *w, struct json object) {
    struct resource_claim claim;

    if (resource_claim_parse(object, &claim, &w->why) < 0) {
        if (w->why.code != ENOMEM)
            refuse(w);
        return;
    }
    if (strcmp(claim.uid, w->uid) != 0) {
        (void) err_set(&w->why, ENOENT,
                       "ResourceClaim %s/%s is another one now: its UID is %s, not %s",
                       w->namespace, w->name, claim.uid, w->uid);
        resource_claim_done(&claim);
        refuse(w);
        return;
    }
    forget(w);
    w->claim = claim;
    w->known = true;
}

static void on_claim(const struct kube_response *response, void *userdata) {
    struct wanted *w = userdata;

    w->reading = NULL;
    w->read_at = uv_now(w->of->all->shares->loop) + READ_AGAIN_MS;
    if (response->status == 200) {
        take_claim(w, response->body);
    } else {
        (void) err_set(&w->why, response->status == 404 ? ENOENT : EAGAIN,
                       "ResourceClaim %s/%s cannot be read: %s", w->namespace, w->name,
                       response->text);
        if (response->status == 404)
            refuse(w);
    }
    dra_prepare_wake(w->of->all);
}

static void read_claim(struct wanted *w) {
    const struct dra_prepares *all = w->of->all;
    char path[KUBE_LABEL_MAX + KUBE_NAME_MAX + 64];

    if (w->reading || uv_now(all->shares->loop) < w->read_at)
        return;
    (void) snprintf(path, sizeof(path), "/apis/resource.k8s.io/v1/namespaces/%s/resourceclaims/%s",
                    w->namespace, w->name);
    if (kube_request(all->client, "GET", path, NULL, NULL, 0, READ_TIMEOUT_MS, on_claim, w,
                     &w->reading, &w->why) < 0)
        w->reading = NULL;
}

/* ---- its pod ---- */

/* A user of the claim, if it is a pod that is known on this node and has not ended. */
static const struct pod_entry *pod_of(const struct shares *s, const struct resource_claim *claim,
                                      uint32_t user) {
    const struct pod_entry *e =
        claim->users[user].pod ? pods_find(s->pods, claim->users[user].uid) : NULL;

    return e && !e->pod.finished ? e : NULL;
}

/* One of its pods that uses it. */
static const struct pod_entry *find_pod(const struct shares *s,
                                        const struct resource_claim *claim) {
    for (uint32_t i = 0; i < claim->nusers; i++) {
        const struct pod_entry *e = pod_of(s, claim, i);

        if (e && pod_claim_use_find(e, NULL, claim->name))
            return e;
    }
    return NULL;
}

/* Whether another claim of that name gets a share by the same call. */
static bool is_next(const char *claim, const void *userdata) {
    const struct wanted *w = userdata;
    const struct dra_call *c = w->of;

    for (size_t i = 0; i < c->n; i++)
        if (strcmp(c->claims[i].name, claim) == 0 &&
            strcmp(c->claims[i].namespace, w->namespace) == 0)
            return true;
    return false;
}

/* kubelet prepares the claim once, for all pods that use it. */
static int check_containers(struct wanted *w) {
    const struct shares *s = w->of->all->shares;
    int r = 0;

    for (uint32_t i = 0; i < w->claim.nusers && r == 0; i++) {
        const struct pod_entry *e = pod_of(s, &w->claim, i);

        if (e)
            r = claim_rule_check(s, e, w->name, is_next, w, &w->why);
    }
    return r;
}

/* ---- the share ---- */

/* Whether it is a part of a card or of a MIG instance. */
static bool is_part(const struct shares *s, const struct assigned_device *device) {
    const struct gpu_device *d = gpu_find(gpu_monitor_snapshot(s->monitor), device->uuid);

    return device->core > 0 && device->core < (d ? gpu_core(d) : 100);
}

/* All devices of a claim are one share, with the terms of the first one that is a part of a card or
 * instance. Without one, none of a card has terms, too (slot_device_terms). */
static const struct assigned_device *terms_device(const struct shares *s,
                                                  const struct assigned_device *devices, size_t n) {
    const struct assigned_device *ret = devices;

    for (size_t i = 0; i < n; i++) {
        if (is_part(s, &devices[i]))
            return &devices[i];
        if (devices[i].core < ret->core)
            ret = &devices[i];
    }
    return ret;
}

static void judge(struct wanted *w, const struct assigned_device *devices,
                  const char *const *requests, size_t n) {
    struct shares *s = w->of->all->shares;
    const struct assigned_device *first = terms_device(s, devices, n);
    struct claim_share share = {.uid = w->uid,
                                .namespace = w->namespace,
                                .name = w->name,
                                .pod = find_pod(s, &w->claim),
                                .devices = devices,
                                .ndevices = n};

    if (!share.pod) {
        (void) err_set(&w->why, EAGAIN,
                       "no pod on this node that uses ResourceClaim %s/%s is known to the API "
                       "server (or it does not answer)",
                       w->namespace, w->name);
        if (uv_now(s->loop) >= w->read_at)
            forget(w); /* other pods can use it by now */
        return;
    }
    if (check_containers(w) < 0 ||
        dra_claim_terms(&s->options, &w->claim, requests[first - devices], first->core,
                        &share.terms, &w->why) < 0) {
        refuse(w);
        return;
    }
    switch (provision_claim(s, &share, &w->polled, &w->why)) {
    case VERDICT_GRANT:
        w->over = true;
        break;
    case VERDICT_DENY:
    case VERDICT_FORGED:
        refuse(w);
        break;
    case VERDICT_WAIT:
        break;
    }
}

static void advance_claim(struct wanted *w) {
    struct assigned_device devices[DEVICE_RESULTS_MAX];
    const char *requests[DEVICE_RESULTS_MAX];
    const struct shares *s = w->of->all->shares;
    size_t n;

    if (!w->known) {
        read_claim(w);
        return;
    }
    if (w->claim.node[0] && strcmp(w->claim.node, s->options.node_name) != 0) {
        (void) err_set(&w->why, EINVAL, "ResourceClaim %s/%s is allocated on node %s", w->namespace,
                       w->name, w->claim.node);
        refuse(w);
        return;
    }
    if (dra_claim_devices(&w->claim, s->options.node_name, gpu_monitor_snapshot(s->monitor),
                          &w->of->all->source, devices, requests, &n, &w->why) < 0) {
        (void) err_wrap(&w->why, "ResourceClaim %s/%s", w->namespace, w->name);
        if (w->why.code != EAGAIN)
            refuse(w);
        else if (!w->claim.allocated)
            forget(w);
        return;
    }
    judge(w, devices, requests, n);
}

/* ---- answers ---- */

/* kubelet knows the request by its name without the choice in it. */
static void put_claim(const struct wanted *w, struct buf *out) {
    struct dra_device devices[DEVICE_RESULTS_MAX];
    char requests[DEVICE_RESULTS_MAX][DEVICE_NAME_MAX];
    char cdi[sizeof(CDI_PREFIX) + NONCE_LEN];
    size_t n = 0;

    if (!w->over || w->failed) {
        dra_message_prepared(w->uid, NULL, 0, w->why.text, out);
        return;
    }
    (void) snprintf(cdi, sizeof(cdi), CDI_PREFIX "%s", w->nonce);
    for (uint32_t i = 0; i < w->claim.nresults && n < DEVICE_RESULTS_MAX; i++) {
        const struct device_result *r = &w->claim.results[i];

        if (strcmp(r->driver, DRA_DRIVER) != 0)
            continue;
        text_copy(requests[n], sizeof(requests[n]), r->request);
        requests[n][strcspn(requests[n], "/")] = 0;
        devices[n] = (struct dra_device){requests[n], r->pool, r->device, cdi, r->share};
        n++;
    }
    dra_message_prepared(w->uid, devices, n, NULL, out);
}

static void on_timer_closed(uv_handle_t *handle) {
    struct dra_call *c = handle->data;

    free(c->claims);
    free(c);
}

static void end(struct dra_call *c) {
    for (size_t i = 0; i < c->n; i++) {
        kube_call_cancel(c->claims[i].reading);
        forget(&c->claims[i]);
    }
    DL_DELETE(c->all->list, c);
    uv_close((uv_handle_t *) &c->timer, on_timer_closed);
}

static void answer(struct dra_call *c) {
    _cleanup_buf_ struct buf out = BUF_INIT(ANSWER_MAX);
    struct dra_prepares *all = c->all;
    bool prepared = false;

    for (size_t i = 0; i < c->n; i++) {
        const struct wanted *w = &c->claims[i];
        bool good = w->over && !w->failed;

        put_claim(w, &out);
        prepared = prepared || good;
        all->prepared += good;
        all->refused += !good;
        if (!good)
            log_warn("a ResourceClaim is not prepared: %s", w->why.text);
    }
    grpc_call_reply_buf(c->call, &out);
    end(c);
    if (prepared)
        all->on_prepared(all->userdata);
}

/* Goes as far as it can go now. */
static void advance(struct dra_call *c) {
    bool waiting = false;

    if (!grpc_call_is_live(c->call)) {
        grpc_call_finish(c->call, GRPC_CANCELLED, NULL);
        end(c);
        return;
    }
    for (size_t i = 0; i < c->n; i++) {
        struct wanted *w = &c->claims[i];

        step_end();
        if (!w->over && c->all->blocker)
            (void) err_set(&w->why, EAGAIN, "%s", c->all->blocker);
        else if (!w->over)
            advance_claim(w);
        waiting = waiting || !w->over;
    }
    if (!waiting || uv_now(c->all->shares->loop) >= c->until)
        answer(c);
}

static void on_timer(uv_timer_t *timer) {
    advance(timer->data);
}

static void on_wake(uv_idle_t *idle) {
    struct dra_prepares *all = idle->data;
    struct dra_call *c, *next;

    (void) uv_idle_stop(idle);
    DL_FOREACH_SAFE(all->list, c, next)
        advance(c);
}

/* ---- the beginning ---- */

void dra_prepare_init(struct dra_prepares *all) {
    (void) uv_idle_init(all->shares->loop, &all->wake);
    all->wake.data = all;
}

void dra_prepare_wake(struct dra_prepares *all) {
    if (all->list)
        (void) uv_idle_start(&all->wake, on_wake);
}

/* Both names become part of a path of the API server. */
static bool is_name(const char *name, size_t size) {
    return strlen(name) < size && field_is_name(name);
}

static void set_wanted(struct wanted *w, struct dra_call *c, const struct dra_claim_id *id) {
    w->of = c;
    text_copy(w->uid, sizeof(w->uid), id->uid);
    text_copy(w->name, sizeof(w->name), id->name);
    text_copy(w->namespace, sizeof(w->namespace), id->namespace);
    if (!nonce_of_claim(id->uid, w->nonce) || !is_name(id->name, sizeof(w->name)) ||
        !is_name(id->namespace, sizeof(w->namespace)))
        (void) err_set(&w->why, EINVAL,
                       "kubelet names no ResourceClaim: namespace, name or UID is odd");
    else if (c->all->refusal && !slot_find(&c->all->shares->slots, w->nonce))
        (void) err_set(&w->why, EOPNOTSUPP, "ResourceClaim %s/%s: %s", w->namespace, w->name,
                       c->all->refusal);
    else
        return;
    refuse(w);
}

void dra_prepare_begin(struct dra_prepares *all, struct grpc_call *call,
                       const struct dra_claim_ids *claims) {
    struct wanted *list = calloc(claims->n + 1, sizeof(*list));
    struct dra_call *c = calloc(1, sizeof(*c));

    if (!c || !list) {
        free(list);
        free(c);
        grpc_call_finish(call, GRPC_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    c->all = all;
    c->call = call;
    c->claims = list;
    c->until = grpc_call_until(call, uv_now(all->shares->loop), DRA_WAIT_MAX_MS);
    for (; c->n < claims->n; c->n++)
        set_wanted(&list[c->n], c, &claims->list[c->n]);
    (void) uv_timer_init(all->shares->loop, &c->timer);
    c->timer.data = c;
    (void) uv_timer_start(&c->timer, on_timer, CHECK_MS, CHECK_MS);
    DL_APPEND(all->list, c);
    dra_prepare_wake(all); /* not below other work, which may be in the middle of the shares */
}

void dra_prepare_stop(struct dra_prepares *all) {
    struct dra_call *c, *next;

    DL_FOREACH_SAFE(all->list, c, next) {
        grpc_call_finish(c->call, GRPC_UNAVAILABLE, "the agent stops");
        end(c);
    }
}

size_t dra_prepare_waiting(const struct dra_prepares *all) {
    const struct dra_call *c;
    size_t n = 0;

    DL_COUNT(all->list, c, n);
    return n;
}

/* ---- the end of a claim's use ---- */

/* kubelet unprepares when all containers of all pods that use the claim have ended. A claim without
 * a share is unprepared. */
void dra_unprepare(struct dra_prepares *all, struct grpc_call *call,
                   const struct dra_claim_ids *claims) {
    _cleanup_buf_ struct buf out = BUF_INIT(ANSWER_MAX);

    for (size_t i = 0; i < claims->n; i++) {
        char nonce[NONCE_LEN + 1];
        struct slot *slot = nonce_of_claim(claims->list[i].uid, nonce)
                                ? slot_find(&all->shares->slots, nonce)
                                : NULL;

        if (slot && slot->grant.claim)
            slot_gc_release_claim(all->shares, slot, true);
        dra_message_unprepared(claims->list[i].uid, NULL, &out);
        all->unprepared++;
    }
    grpc_call_reply_buf(call, &out);
}
