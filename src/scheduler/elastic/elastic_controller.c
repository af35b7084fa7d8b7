/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/elastic/elastic.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <utlist.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/log.h"
#include "kube/api/object_write.h"
#include "scheduler/elastic/elastic_internal.h"
#include "scheduler/state/namespace_usage.h"
#include "wire/http_status.h"

#define WRITE_TIMEOUT_MS 10000
#define MAKING_MAX_MS 60000 /* the API server carries out no request later than this */
#define HOLD_MS 10000       /* all reserved capacity is checked again, in parts */
#define HOLD_TURNS 20       /* parts */
#define UNHELD_MS 1000      /* all at once where a card was not there */
#define PASS_MS 500         /* the next pass where nothing has happened */

/* A share that was found free while its write is in flight: for an ElasticGPU that no watch has
 * shown yet, or not since that version. */
struct elastic_making {
    struct elastic_making *next;
    char egpu[KUBE_NAME_MAX];
    char version[32]; /* "": it is being made */
    struct claim_amount amount;
    char namespace[KUBE_LABEL_MAX]; /* of the claim that it is being given to; "": as it says */
    uint64_t since_ms;
    bool refused;
};

/* ---- reserved capacity ---- */

static struct assigned_device device_of(const struct state_card *card,
                                        const struct claim_amount *amount) {
    const struct place_grant grant = elastic_grant(amount, card);
    return state_device(card, &grant);
}

/* The node on which all its cards are, and what it takes of each; NULL: they are not all there. */
static struct state_node *resolve(struct state *s, const struct egpu *e,
                                  const struct claim_amount *amount,
                                  struct assigned_device devices[static CLAIM_CARDS_MAX]) {
    struct state_node *node = NULL;
    for (uint32_t i = 0; i < e->ncards; i++) {
        const struct state_card *card = elastic_card_find(s, e->cards[i]);
        if (!card || !card->node || (node && card->node != node))
            return NULL;
        node = card->node;
        devices[i] = device_of(card, amount);
    }
    return node;
}

static const char *node_of(void *self, const struct egpu *egpu) {
    struct assigned_device devices[CLAIM_CARDS_MAX];
    struct elastic *e = self;
    const struct state_node *node = resolve(e->state, egpu, &egpu->capacity, devices);
    return node ? node->name : "";
}

/* What it is about to hold, by a write that is under way; NULL: there is none. */
static struct elastic_making *making_for(const struct elastic *e, const struct egpu *egpu) {
    struct elastic_making *m;
    LL_FOREACH(e->makings, m)
        if (strcmp(m->egpu, egpu->meta.name) == 0 && strcmp(m->version, egpu->meta.version) == 0)
            return m;
    return NULL;
}

/* The displayed name of its reserved capacity. */
static void name_hold(struct state *s, const char *id, const struct egpu *e) {
    char text[STATE_KEEPER_MAX];
    const char *claim = e->phase == EGPU_RELEASED ? "released claim" : "claim";
    if (e->reserved)
        (void) snprintf(text, sizeof(text), "%s %s/%s (ElasticGPU %s)", claim, e->claim_namespace,
                        e->claim_name, e->meta.name);
    else
        (void) snprintf(text, sizeof(text), "ElasticGPU %s", e->meta.name);
    state_reserved_name(s, id, text);
}

static void unreserve(void *self, const char *name) {
    struct elastic *e = self;
    char id[ELASTIC_ID_MAX];
    elastic_id(name, id);
    state_unreserve(e->state, id);
    state_uncharge(e->state, id);
}

/* The namespace whose quotas count it; "": none. A released one counts for the namespace that had
 * it, as no other claim can have it. */
static const char *namespace_of(const struct egpu *e, const struct elastic_making *making) {
    if (making && making->namespace[0])
        return making->namespace;
    return e->claim_uid[0] ? e->claim_namespace : "";
}

static void reserve(void *self, const struct egpu *e) {
    struct assigned_device devices[CLAIM_CARDS_MAX];
    struct elastic *elastic = self;
    struct state *s = elastic->state;
    const struct elastic_making *making = making_for(elastic, e);
    char id[ELASTIC_ID_MAX];
    elastic_id(e->meta.name, id);
    if (!making && !egpu_holds(e)) {
        unreserve(self, e->meta.name);
        return;
    }
    /* A missing card is searched again in the next pass. */
    const struct state_node *node = resolve(s, e, making ? &making->amount : &e->capacity, devices);
    elastic->unheld |= !node;
    if (node && state_reserve(s, id, node->name, devices, e->ncards) < 0)
        log_warn("out of memory: the share of ElasticGPU %s is not kept", e->meta.name);
    name_hold(s, id, e);
    const struct quota_use use = elastic_use_of(devices, node ? e->ncards : 0);
    elastic_charge(elastic, e, namespace_of(e, making), node ? &use : NULL);
}

/* Every ElasticGPU in its turn, or all of them. */
struct holding {
    struct elastic *elastic;
    bool all;
    unsigned at;
};

static void hold_again(const struct egpu *e, void *userdata) {
    struct holding *holding = userdata;
    if (holding->all || holding->at == holding->elastic->hold_turn)
        reserve(holding->elastic, e);
    holding->at = (holding->at + 1) % HOLD_TURNS;
}

/* ---- room ---- */

static void begin_room(const struct state_node *node, const struct container_request *req,
                       struct claims_room *ret) {
    ret->ncards = 0;
    memcpy(ret->node, node->name, sizeof(ret->node));
    ret->amount =
        (struct claim_amount){.cards = req->cards, .whole = req->whole, .core = CORE_PER_CARD};
}

static void add_card(const struct state_card *card, const struct place_grant *grant,
                     struct claims_room *ret) {
    if (ret->ncards == CLAIM_CARDS_MAX)
        return;
    if (!ret->amount.whole) {
        ret->amount.core = grant->taken.core;
        ret->amount.memory = grant->memory;
    }
    memcpy(ret->cards[ret->ncards++], card->name, sizeof(ret->cards[0]));
}

/* Whether that card is allocated to the container of the pod. */
static bool is_allocated(const struct state_pod *pod, const char *container,
                         const struct state_card *card) {
    for (uint32_t i = 0; i < pod->nallocations; i++)
        if (strcmp(pod->allocations[i].container, container) == 0 &&
            strcmp(pod->allocations[i].device.uuid, card->uuid) == 0)
            return true;
    return false;
}

/* The claim gets the assumed allocation of its first consumer. */
static bool room_of_pod(struct elastic *e, const struct egpu_claim *claim,
                        const struct container_request *req, const char *node,
                        struct claims_room *ret) {
    struct state_pod *pod = elastic_waiting_pod(e, claim, node);
    const char *container = pod ? elastic_container_of(e, pod, claim) : NULL;
    if (!container || !pod->node || strcmp(pod->node->name, node) != 0 ||
        !elastic_may_be_on(e, claim, pod->node))
        return false;
    begin_room(pod->node, req, ret);
    for (uint32_t c = 0; c < pod->node->ncards; c++) {
        const struct state_card *card = pod->node->cards[c];
        const struct place_card place = state_place_card(card);
        const struct place_grant grant = place_grant(req, &place);
        if (is_allocated(pod, container, card))
            add_card(card, &grant, ret);
    }
    return ret->ncards > 0;
}

/* As for a pod with that one container. */
static bool place_claim(struct elastic *e, const struct egpu_claim *claim,
                        struct container_request *req, const char *node, struct claims_room *ret) {
    struct state_pod pod = {
        .ncontainers = 1, .containers = req, .class_policy = elastic_policy(e, claim)};
    struct state_node *best = NULL;
    struct place_result result;
    int64_t score, best_score = INT64_MIN;
    memcpy(pod.namespace, claim->meta.namespace, sizeof(pod.namespace));
    state_refresh_all(e->state);
    state_plan(e->state, &pod, &e->request, &e->plan);
    for (struct state_node *n = e->state->nodes; n; n = n->hh.next)
        if ((!node[0] || strcmp(n->name, node) == 0) && n->exists &&
            elastic_may_be_on(e, claim, n) &&
            state_judge(e->state, &e->plan, n->head, &pod, &score) == PLACE_OK &&
            (!best || score > best_score)) {
            best = n;
            best_score = score;
        }
    if (!best || state_place(e->state, &e->plan, best, &pod, false, &result) != PLACE_OK)
        return false;
    begin_room(best, req, ret);
    for (uint32_t i = 0; i < result.ngrants; i++)
        add_card(best->cards[result.grants[i].card], &result.grants[i], ret);
    return true;
}

static bool room_by_placement(struct elastic *e, const struct egpu_claim *claim,
                              struct container_request *req, const char *node,
                              struct claims_room *ret) {
    e->sought = claim;
    bool found = place_claim(e, claim, req, node, ret);
    e->sought = NULL;
    return found;
}

static int keep_room(struct elastic *e, const struct egpu_claim *claim, const char *egpu,
                     const char *id, const struct claims_room *room, struct err *why) {
    struct assigned_device devices[CLAIM_CARDS_MAX];
    for (uint32_t i = 0; i < room->ncards; i++)
        devices[i] = device_of(elastic_card_find(e->state, room->cards[i]), &room->amount);
    const struct quota_use use = elastic_use_of(devices, room->ncards);
    int r = elastic_may_use(e, claim->meta.namespace, id, claim, &use, why);
    if (r < 0)
        return r;
    struct elastic_making *making = calloc(1, sizeof(*making));
    if (!making || state_reserve(e->state, id, room->node, devices, room->ncards) < 0 ||
        state_charge(e->state, id, claim->meta.namespace, &use) < 0) {
        state_unreserve(e->state, id);
        free(making);
        return err_errno(why, ENOMEM, "cannot keep room");
    }
    memcpy(making->egpu, egpu, strlen(egpu) + 1);
    making->since_ms = e->now(e->userdata);
    LL_PREPEND(e->makings, making);
    return 0;
}

/* Without memory the pod counts for itself until it is shown again. */
static void draw_first(struct elastic *e, const struct egpu_claim *claim, const char *node,
                       const char *id) {
    struct state_pod *pod = elastic_waiting_pod(e, claim, node);
    const char *container = pod ? elastic_container_of(e, pod, claim) : NULL;
    if (container)
        (void) state_draw(pod, container, id);
}

static int find_room(void *self, const struct egpu_claim *claim, const struct claim_amount *want,
                     const char *node, struct claims_room *ret, struct err *why) {
    struct elastic *e = self;
    struct container_request req = {.container = "claim", .phase = CONTAINER_APP};
    char egpu[KUBE_NAME_MAX], id[ELASTIC_ID_MAX];
    bool mps = elastic_is_under_mps(e, claim);
    snprintf(egpu, sizeof(egpu), "egpu-%s", claim->meta.uid);
    elastic_id(egpu, id);
    if (state_reserved_find(e->state, id))
        return err_set(why, EALREADY, "an earlier attempt is not over yet");
    claim_amount_request(want, &req);
    req.takes_mps = mps;
    if (want->profile[0] && !elastic_find_instance(e, claim, want->profile, node, ret))
        return err_set(why, EAGAIN,
                       "no MIG instance %s is free now among those that the scheduler gives out "
                       "(mode: share); one is made where a card is divided on demand and has room",
                       want->profile);
    const bool of_pod = !want->profile[0] && node[0] && room_of_pod(e, claim, &req, node, ret);
    if (!want->profile[0] && !of_pod && !room_by_placement(e, claim, &req, node, ret))
        return err_set(why, EAGAIN, "no %s%s%s has room for it now%s",
                       mps ? "GPU under MPS" : "GPU", node[0] ? " of node " : "", node,
                       mps ? "; an idle one with dynamic: true is put under MPS for it" : "");
    int r = keep_room(e, claim, egpu, id, ret, why);
    if (r == 0 && of_pod)
        draw_first(e, claim, node, id);
    return r;
}

static struct place_amount amount_on(const struct state_card *card,
                                     const struct claim_amount *amount) {
    return amount ? elastic_grant(amount, card).taken : (struct place_amount){0};
}

/* Whether `want` is free on each of its cards, beside `have` (NULL: nothing) that it has. */
static int check_free(struct elastic *e, const struct egpu *egpu, const struct claim_amount *want,
                      const struct claim_amount *have, struct err *why) {
    for (uint32_t i = 0; i < egpu->ncards; i++) {
        const struct state_card *card = elastic_card_find(e->state, egpu->cards[i]);
        struct state_node *node = card ? card->node : NULL;
        if (!node)
            return err_set(why, ENODEV, "GPU %s is not there", egpu->cards[i]);
        const struct place_amount now = amount_on(card, have), then = amount_on(card, want);
        state_refresh(e->state, node);
        for (uint32_t c = 0; c < node->ncards; c++) {
            const struct place_card *place = &node->place[c];
            if (node->cards[c] != card)
                continue;
            if (!place->healthy || then.core > place->free.core + now.core ||
                then.memory > place->free.memory + now.memory ||
                then.slots > place->free.slots + now.slots)
                return err_set(why, EAGAIN, "GPU %s of node %s has no room for it", card->name,
                               node->name);
        }
    }
    return 0;
}

/* Whether the quotas of its namespace let it have the amount. */
static int check_quota(struct elastic *e, const struct egpu *egpu, const char *namespace,
                       const struct claim_amount *amount, struct err *why) {
    struct assigned_device devices[CLAIM_CARDS_MAX];
    char id[ELASTIC_ID_MAX];
    elastic_id(egpu->meta.name, id);
    const struct quota_use use = resolve(e->state, egpu, amount, devices)
                                     ? elastic_use_of(devices, egpu->ncards)
                                     : elastic_use_of_amount(amount);
    return elastic_may_use(e, namespace, id, NULL, &use, why);
}

/* Keeps what was found to be free until the watch shows what has become of the write. */
static int keep_more(struct elastic *e, const struct egpu *egpu, const struct claim_amount *amount,
                     const char *namespace, struct err *why) {
    struct elastic_making *making = calloc(1, sizeof(*making));
    if (!making)
        return err_errno(why, ENOMEM, "cannot keep room");
    memcpy(making->egpu, egpu->meta.name, sizeof(making->egpu));
    memcpy(making->version, egpu->meta.version, sizeof(making->version));
    memcpy(making->namespace, namespace, strlen(namespace) + 1);
    making->amount = *amount;
    making->since_ms = e->now(e->userdata);
    LL_PREPEND(e->makings, making);
    reserve(e, egpu);
    return 0;
}

/* Whether just that is kept already; another amount is given back. */
static bool is_kept(struct elastic *e, const struct egpu *egpu, const struct claim_amount *amount) {
    struct elastic_making *making = making_for(e, egpu);
    if (!making)
        return false;
    if (claim_amount_compare(&making->amount, amount) == 0)
        return true;
    LL_DELETE(e->makings, making);
    free(making);
    reserve(e, egpu);
    return false;
}

static int check_room(void *self, const struct egpu *egpu, struct err *why) {
    struct elastic *e = self;
    struct assigned_device devices[CLAIM_CARDS_MAX];
    if (is_kept(e, egpu, &egpu->capacity))
        return 0;
    const struct state_node *node = resolve(e->state, egpu, &egpu->capacity, devices);
    if (!node || !elastic_is_on(e, &egpu->affinity, node))
        return err_set(why, ENODEV,
                       "its GPUs are not all there, on one node, and one that nodeAffinity allows");
    int r = check_free(e, egpu, &egpu->capacity, NULL, why);
    if (r == 0 && egpu->claim_uid[0])
        r = check_quota(e, egpu, egpu->claim_namespace, &egpu->capacity, why);
    return r < 0 ? r : keep_more(e, egpu, &egpu->capacity, "", why);
}

static int take(void *self, const struct egpu *egpu, const struct egpu_claim *claim,
                struct err *why) {
    struct elastic *e = self;
    struct elastic_making *making = making_for(e, egpu);
    int r = check_quota(e, egpu, claim->meta.namespace, &egpu->capacity, why);
    if (r < 0)
        return r;
    if (!making)
        return keep_more(e, egpu, &egpu->capacity, claim->meta.namespace, why);
    memcpy(making->namespace, claim->meta.namespace, sizeof(making->namespace));
    reserve(e, egpu);
    return 0;
}

static int grow(void *self, const struct egpu *egpu, const struct claim_amount *want,
                struct err *why) {
    struct elastic *e = self;
    const struct claim_amount *have = &egpu->capacity;
    if (want->profile[0] || have->profile[0])
        return err_set(why, EINVAL, "a MIG instance does not grow; make a claim of a larger one");
    if (want->whole || have->whole || want->cards != have->cards)
        return err_set(why, EINVAL,
                       "a share can grow up to 99 percent of its card; make a claim "
                       "of whole cards");
    if (is_kept(e, egpu, want))
        return 0;
    int r = check_free(e, egpu, want, have, why);
    if (r == 0)
        r = check_quota(e, egpu, egpu->claim_namespace, want, why);
    return r < 0 ? r : keep_more(e, egpu, want, "", why);
}

/* ---- writes and Events ---- */

struct sending {
    struct elastic *elastic;
    char key[512];
};

static struct elastic_making *making_of(struct elastic *e, const char *key) {
    const struct egpu_claim *claim = NULL;
    char namespace[KUBE_LABEL_MAX], name[KUBE_NAME_MAX];
    if (sscanf(key, "new:%63[^/]/%253s", namespace, name) == 2)
        claim = claims_find(e->claims, namespace, name);
    for (struct elastic_making *m = claim ? e->makings : NULL; m; m = m->next)
        if (m->version[0] == '\0' && strcmp(m->egpu + strlen("egpu-"), claim->meta.uid) == 0)
            return m;
    return NULL;
}

static void on_written(const struct kube_response *response, void *userdata) {
    _cleanup_free_ struct sending *sending = userdata;
    struct elastic *e = sending->elastic;
    int status = response->status;
    bool ok = http_is_success(status);
    e->writes += ok;
    e->failed += !ok;
    if (!ok && status != 404 && status != 409)
        log_warn("claims: %s: %s", sending->key, response->text);
    struct elastic_making *making = making_of(e, sending->key);
    if (making && !ok && (status == 0 ? !response->maybe_applied : status < 500 && status != 409))
        making->refused = true;
    claims_written(e->claims, sending->key, status,
                   json_string(JSON_PATH(response->body, "metadata", "uid")), response->text,
                   e->now(e->userdata));
    e->changed(e->userdata);
}

static void write_out(void *self, const struct claims_write *write) {
    struct elastic *e = self;
    struct sending *sending = calloc(1, sizeof(*sending));
    struct err err;
    if (!sending)
        return;
    sending->elastic = e;
    snprintf(sending->key, sizeof(sending->key), "%s", write->key);
    if (e->api.request(e->api.context, write->method, write->path, write->content_type, write->body,
                       write->size, WRITE_TIMEOUT_MS, on_written, sending, &err) < 0) {
        claims_written(e->claims, write->key, 0, NULL, NULL, e->now(e->userdata));
        free(sending);
    }
}

/* ---- life ---- */

int elastic_init(struct elastic *e) {
    const struct claims_world world = {.self = e,
                                       .find = find_room,
                                       .node = node_of,
                                       .check = check_room,
                                       .grow = grow,
                                       .admit = elastic_admit,
                                       .take = take,
                                       .settle = elastic_settle,
                                       .begun = elastic_begun,
                                       .hold = reserve,
                                       .drop = unreserve,
                                       .write = write_out,
                                       .note = elastic_note};
    e->claims = claims_new(&world);
    return e->claims && elastic_selector_add(e) == 0 ? 0 : -ENOMEM;
}

void elastic_done(struct elastic *e) {
    struct elastic_making *making, *next;
    LL_FOREACH_SAFE(e->makings, making, next)
        free(making);
    e->makings = NULL;
    elastic_waits_drop(e);
    elastic_growths_drop(e);
    elastic_nodes_drop(e);
    e->claims = claims_free(e->claims);
}

/* Whether the watch has shown what became of the write. */
static bool is_answered(const struct elastic *e, const struct elastic_making *making) {
    const struct egpu *egpu = claims_egpu(e->claims, making->egpu);
    if (making->version[0] == '\0')
        return egpu != NULL;
    return !egpu || strcmp(egpu->meta.version, making->version) != 0;
}

/* Releases capacity whose ElasticGPU was not created in time; for an existing one reserve() has the
 * amounts. */
static void review_makings(struct elastic *e) {
    struct elastic_making *making, *next;
    uint64_t now = e->now(e->userdata);
    LL_FOREACH_SAFE(e->makings, making, next) {
        if (!is_answered(e, making) && !making->refused && now - making->since_ms < MAKING_MAX_MS)
            continue;
        const struct egpu *egpu = claims_egpu(e->claims, making->egpu);
        if (!egpu)
            unreserve(e, making->egpu);
        LL_DELETE(e->makings, making);
        free(making);
        if (egpu)
            reserve(e, egpu);
    }
}

/* Capacity is reserved when the object is first shown, but cards can appear and change later.
 * Checked in parts, because a check of very many would delay scheduling. */
static void hold_all(struct elastic *e, uint64_t now) {
    uint64_t since = now - e->held_ms;
    struct holding holding = {.elastic = e, .all = e->unheld || since >= HOLD_MS};
    if (since < (e->unheld ? UNHELD_MS : HOLD_MS / HOLD_TURNS))
        return;
    e->unheld = false;
    e->held_ms = now;
    e->hold_turn = (e->hold_turn + 1) % HOLD_TURNS;
    claims_each_egpu(e->claims, hold_again, &holding);
}

static void pass(struct elastic *e, uint64_t now) {
    char stamp[OBJECT_TIME_SIZE];
    object_now(stamp);
    review_makings(e);
    elastic_draw_again(e);
    hold_all(e, now);
    elastic_mps_run(e, now);
    claims_plan(e->claims, now, stamp);
    e->pass_ms = now;
}

/* Changes of pods without claims need no check of the claims. */
void elastic_run(struct elastic *e) {
    uint64_t now = e->now(e->userdata);
    if (claims_has_news(e->claims) || now - e->pass_ms >= PASS_MS)
        pass(e, now);
    elastic_waits_run(e);
}
