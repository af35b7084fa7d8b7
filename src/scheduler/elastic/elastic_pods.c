/* SPDX-License-Identifier: Apache-2.0 */

/* Pods that use claims: what they ask, which cards they may take, when they may go, and the bind of
 * the first that uses a claim. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "kube/api/field.h"
#include "scheduler/elastic/elastic_internal.h"
#include "wire/http_status.h"
#include "wire/json.h"

#define WAIT_MAX_MS 3500 /* shorter than any httpTimeout of kube-scheduler's configuration */
#define SELECT_AGAIN_MS 500
#define DRAW_AGAIN_MS 1000
#define TIMEOUT_MS 3000

/* ---- the amounts, before anything is placed ---- */

static struct container_request *request_of(struct state_pod *pod, const char *container) {
    for (uint32_t i = 0; i < pod->ncontainers; i++)
        if (pod->containers[i].claimed && strcmp(pod->containers[i].container, container) == 0)
            return &pod->containers[i];
    return NULL;
}

static bool has_claims(const struct state_pod *pod) {
    for (uint32_t i = 0; i < pod->ncontainers; i++)
        if (pod->containers[i].claimed)
            return true;
    return false;
}

static bool may_share(struct elastic *e, const struct state_pod *pod,
                      const struct egpu_claim *claim, struct err *why) {
    char user[KUBE_NAME_MAX];
    uint32_t most = claims_pods_of(e->claims, claim);
    if (elastic_users(e, claim, pod, user) < most)
        return true;
    err_set(why, EBUSY,
            "claim %s is in use by pod %s; its class lets %u pod%s use it at a time (podsPerClaim)",
            claim->meta.name, user, most, most == 1 ? "" : "s");
    return false;
}

static int draw_on(struct state_pod *pod, const char *container, const struct egpu *egpu) {
    char id[ELASTIC_ID_MAX];
    if (!egpu)
        return 0;
    elastic_id(egpu->meta.name, id);
    return state_draw(pod, container, id);
}

static bool take_use(struct elastic *e, struct state_pod *pod, const char *container,
                     const struct claims_use *use, struct err *why) {
    struct container_request *req = request_of(pod, container);
    if (!req)
        return true; /* an annotation that names no container of ours */
    if (!may_share(e, pod, use->claim, why))
        return false;
    if (use->egpu && !use->amount.whole && use->amount.core == 0 && use->amount.memory == 0) {
        err_set(why, EINVAL, "claim %s is too small for that many pods and containers",
                use->claim->meta.name);
        return false;
    }
    claim_amount_request(&use->amount, req);
    /* Of an ElasticGPU the cards are certain, also when its class is gone. */
    req->takes_mps = use->egpu || elastic_is_under_mps(e, use->claim);
    if (!pod->class_policy)
        pod->class_policy = elastic_policy(e, use->claim);
    return draw_on(pod, container, use->egpu) == 0;
}

bool elastic_gate_open(void *self, struct state_pod *pod, uint64_t now_ms, struct buf *why) {
    struct elastic *e = self;
    struct claims_use use;
    const char *container;
    struct err err = {0};
    uint32_t i = 0;
    int r;
    (void) now_ms;
    if (!has_claims(pod))
        return true;
    pod->class_policy = NULL;
    while ((r = claims_use(e->claims, pod->uid, i, &container, &use, &err)) == 0 &&
           take_use(e, pod, container, &use, &err))
        i++;
    if (r == -ENOENT && i > 0)
        return true;
    buf_puts(why,
             i == 0 && r == -ENOENT ? "the claims that the pod names are not known yet" : err.text);
    return false;
}

/* ---- the cards ---- */

static bool use_of(const struct elastic *e, const struct state_pod *pod, const char *container,
                   struct claims_use *ret) {
    const char *of;
    struct err err;
    for (uint32_t i = 0;; i++) {
        int r = claims_use(e->claims, pod->uid, i, &of, ret, &err);
        if (r == -ENOENT)
            return false;
        if (r == 0 && strcmp(of, container) == 0)
            return true;
    }
}

/* The allowed nodes and cards of a claim that is not provisioned yet: a class can be recreated
 * under its name. */
static uint64_t key_of_class(const struct elastic *e, const struct egpu_claim *claim) {
    const struct egpu_class *class = claims_class_of(e->claims, claim);
    bool limits = class && (class->topologies.n > 0 || elastic_is_under_mps(e, claim));
    return limits ? state_hash(1, class->meta.version) : 0;
}

static uint64_t key_of(const struct elastic *e, const struct claims_use *use) {
    if (use->egpu)
        return state_hash(state_hash(1, use->egpu->meta.name), use->egpu->meta.uid);
    return key_of_class(e, use->claim);
}

/* It is no pod: it stands for the claim that room is searched for. */
static bool is_for_claim(const struct elastic *e, const struct state_pod *pod) {
    return e->sought && !pod->uid[0];
}

static uint64_t select_key(void *self, const struct state_pod *pod) {
    const struct elastic *e = self;
    struct claims_use use;
    uint64_t hash = 0, key;
    if (is_for_claim(e, pod))
        return key_of_class(e, e->sought);
    for (uint32_t i = 0; i < pod->ncontainers; i++)
        if (pod->containers[i].claimed && use_of(e, pod, pod->containers[i].container, &use) &&
            (key = key_of(e, &use)) != 0)
            hash = state_hash(hash ^ key, pod->containers[i].container);
    return hash;
}

static bool select_allow(void *self, const struct state_pod *pod, const struct state_node *node,
                         uint64_t allowed[static GPU_CONTAINERS_MAX]) {
    const struct elastic *e = self;
    struct claims_use use;
    if (is_for_claim(e, pod))
        allowed[0] &= elastic_cards_for(e, e->sought, node);
    for (uint32_t i = 0; i < pod->ncontainers; i++) {
        if (!pod->containers[i].claimed || !use_of(e, pod, pod->containers[i].container, &use))
            continue;
        if (!use.egpu && !elastic_may_be_on(e, use.claim, node))
            return false;
        allowed[i] &=
            use.egpu ? elastic_cards_of(use.egpu, node) : elastic_cards_for(e, use.claim, node);
        if (use.egpu && elastic_is_of_mps(use.egpu))
            allowed[i] &= elastic_cards_under_mps(node);
        if (allowed[i] == 0 || (use.egpu && !elastic_is_on(e, &use.egpu->affinity, node)))
            return false;
    }
    return true;
}

int elastic_selector_add(struct elastic *e) {
    const struct state_selector selector = {"claims", PLACE_CLAIMED, e, select_key, select_allow};
    return state_add_selector(e->state, &selector);
}

/* A bound pod goes on drawing on what its claim holds, also after a start of ours, when pods may be
 * shown before their claims. */
static void draw_bound(const char *uid, void *userdata) {
    struct elastic *e = userdata;
    struct state_pod *pod = state_pod_find(e->state, uid);
    struct claims_use use;
    const char *container;
    struct err err;
    int r = pod && pod->node ? 0 : -ENOENT;
    for (uint32_t i = 0; r != -ENOENT; i++) {
        r = claims_use(e->claims, uid, i, &container, &use, &err);
        if (r == 0 && use.egpu)
            (void) draw_on(pod, container, use.egpu);
        else if (r != -ENOENT)
            e->undrawn = true;
    }
}

void elastic_pod(struct elastic *e, const char *uid, const struct pod *pod) {
    if (!pod)
        claims_gone(e->claims, CLAIMS_PODS, uid);
    else
        (void) claims_pod_seen(e->claims, pod); /* without memory the pod waits */
    if (pod)
        draw_bound(uid, e);
}

void elastic_draw_again(struct elastic *e) {
    uint64_t now = e->now(e->userdata);
    if (!e->undrawn || now < e->draw_ms)
        return;
    e->undrawn = false;
    e->draw_ms = now + DRAW_AGAIN_MS;
    claims_each_pod(e->claims, draw_bound, e);
}

/* From the sending of its Binding on a pod may be bound; what it uses must not go meanwhile. */
bool elastic_begun(void *self, const char *pod_uid) {
    const struct elastic *e = self;
    const struct state_pod *pod = state_pod_find(e->state, pod_uid);
    return pod && pod->stage >= POD_BINDING;
}

/* ---- binds of first consumers ---- */

struct elastic_wait {
    struct elastic_wait *next;
    void *request;
    char uid[KUBE_UID_MAX];
    char node[KUBE_NAME_MAX];
    uint64_t until_ms, select_ms; /* not selected again before */
    bool selected;                /* the watch has shown the node on a claim */
    struct buf body;
};

const char *elastic_container_of(const struct elastic *e, const struct state_pod *pod,
                                 const struct egpu_claim *claim) {
    struct claims_use use;
    const char *container;
    struct err err;
    for (uint32_t i = 0;; i++) {
        int r = claims_use(e->claims, pod->uid, i, &container, &use, &err);
        if (r == -ENOENT)
            return NULL;
        if (r == 0 && use.claim == claim)
            return container;
    }
}

struct state_pod *elastic_waiting_pod(struct elastic *e, const struct egpu_claim *claim,
                                      const char *node) {
    for (const struct elastic_wait *w = e->waits; w; w = w->next) {
        struct state_pod *pod = state_pod_find(e->state, w->uid);
        if (pod && strcmp(w->node, node) == 0 && elastic_container_of(e, pod, claim))
            return pod;
    }
    return NULL;
}

static void on_selected(const struct kube_response *response, void *userdata) {
    struct elastic *e = userdata;
    e->failed += !http_is_success(response->status);
    e->changed(e->userdata);
}

static void select_node(struct elastic *e, const struct egpu_claim *claim, const char *node) {
    _cleanup_buf_ struct buf path = BUF_INIT(1024), body = BUF_INIT(4096);
    claims_select(claim, node, &path, &body);
    if (buf_error(&path) == 0 && buf_error(&body) == 0)
        (void) e->api.request(e->api.context, "PATCH", buf_str(&path), KUBE_MERGE_PATCH, body.data,
                              body.len, TIMEOUT_MS, on_selected, e, NULL);
}

enum progress { GO_ON, KEEP_WAITING, GIVE_UP };

/* Whether the wait can end, having written the node on every claim that is to be made. */
static enum progress check_wait(struct elastic *e, struct elastic_wait *w, struct err *why) {
    enum progress progress = GO_ON;
    struct claims_use use;
    const char *container;
    uint64_t now = e->now(e->userdata);
    bool again = now >= w->select_ms && now < w->until_ms;
    for (uint32_t i = 0;; i++) {
        int r = claims_use(e->claims, w->uid, i, &container, &use, why);
        if (r == -ENOENT)
            return progress;
        if (r < 0)
            return GIVE_UP;
        if (use.egpu || use.amount.cards == 0) /* another container represents it */
            continue;
        progress = KEEP_WAITING;
        bool here = strcmp(use.claim->selected_node, w->node) == 0;
        if (!here && w->selected) {
            err_set(why, EAGAIN, "claim %s could not be made on node %s", use.claim->meta.name,
                    w->node);
            return GIVE_UP;
        }
        w->selected |= here;
        if (here || !again)
            continue;
        select_node(e, use.claim, w->node);
        w->select_ms = now + SELECT_AGAIN_MS;
    }
}

static void wait_free(struct elastic *e, struct elastic_wait *w) {
    LL_DELETE(e->waits, w);
    buf_done(&w->body);
    free(w);
}

void elastic_waits_drop(struct elastic *e) {
    while (e->waits)
        wait_free(e, e->waits);
}

void elastic_waits_refuse(struct elastic *e, const char *why) {
    while (e->waits) {
        e->binder->done(why, e->waits->request);
        wait_free(e, e->waits);
    }
}

/* Whether the container's assumed allocation equals what its claim gives, on the claim's cards.
 */
static bool is_allocated(const struct state_pod *pod, const char *container,
                         const struct claims_use *use) {
    uint32_t cards = 0;
    for (uint32_t i = 0; i < pod->nallocations; i++) {
        const struct state_allocation *held = &pod->allocations[i];
        cards += strcmp(held->container, container) == 0 && elastic_has(use->egpu, pod, held) &&
                 held->device.core == use->amount.core &&
                 held->device.memory == elastic_memory_of(&use->amount, pod, held);
    }
    return cards == use->amount.cards;
}

/* Before the claim was bound, the pod got an assumed allocation for it: possibly on another card,
 * of another size, and for one container of several. Then the pod is placed again, on the claim's
 * capacity. */
static void check_assumed(struct elastic *e, const char *uid) {
    struct state_pod *pod = state_pod_find(e->state, uid);
    struct claims_use use;
    for (uint32_t i = 0; pod && pod->stage == POD_ASSUMED && i < pod->ncontainers; i++)
        if (pod->containers[i].claimed && use_of(e, pod, pod->containers[i].container, &use) &&
            use.egpu && !is_allocated(pod, pod->containers[i].container, &use))
            state_release(e->state, pod);
}

void elastic_waits_run(struct elastic *e) {
    struct elastic_wait *w, *next;
    LL_FOREACH_SAFE(e->waits, w, next) {
        struct err why = {0};
        enum progress progress = check_wait(e, w, &why);
        bool late = e->now(e->userdata) >= w->until_ms;
        if (progress == KEEP_WAITING && !late)
            continue;
        if (progress == KEEP_WAITING)
            err_set(&why, EAGAIN, "the pod's claim is being made; trying again");
        if (progress == GO_ON) {
            check_assumed(e, w->uid);
            binder_bind(e->binder, w->body.data, w->body.len, w->request);
        } else
            e->binder->done(why.text, w->request);
        wait_free(e, w);
    }
}

static bool read_names(const char *body, size_t len, struct elastic_wait *w) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json args;
    struct err err;
    return json_open(body, len, &parser, &args, &err) == 0 &&
           field_copy(json_get_nocase(args, "PodUID"), w->uid, sizeof(w->uid)) == 0 &&
           field_copy(json_get_nocase(args, "Node"), w->node, sizeof(w->node)) == 0;
}

/* Whether a claim of the pod waits for its first consumer. */
static bool is_first_consumer(const struct elastic *e, const char *uid) {
    const struct state_pod *pod = state_pod_find(e->state, uid);
    struct claims_use use;
    const char *container;
    struct err err;
    int r = pod && has_claims(pod) && pod->stage <= POD_ASSUMED ? 0 : -ENOENT;
    for (uint32_t i = 0; r != -ENOENT; i++) {
        r = claims_use(e->claims, uid, i, &container, &use, &err);
        if (r == 0 && !use.egpu)
            return true;
    }
    return false;
}

void elastic_bind(struct elastic *e, const char *body, size_t len, void *request) {
    struct elastic_wait *w = calloc(1, sizeof(*w));
    if (!w || !read_names(body, len, w) || !e->binder->ready(e->binder->userdata) ||
        !is_first_consumer(e, w->uid)) {
        if (w)
            check_assumed(e, w->uid); /* its claim may be bound since */
        free(w);
        binder_bind(e->binder, body, len, request);
        return;
    }
    w->body = BUF_INIT(0);
    buf_append(&w->body, body, len);
    w->request = request;
    w->until_ms = e->now(e->userdata) + WAIT_MAX_MS;
    if (buf_error(&w->body) < 0) {
        buf_done(&w->body);
        free(w);
        e->binder->done("out of memory", request);
        return;
    }
    LL_APPEND(e->waits, w);
    elastic_waits_run(e);
}
