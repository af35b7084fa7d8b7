/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/dra/dra.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/log.h"
#include "kube/api/object_write.h"
#include "scheduler/dra/dra_internal.h"
#include "wire/http_status.h"

#define TIMEOUT_MS 10000
#define RETRY_MS 1000         /* after a failed write, doubled each time */
#define CONFLICT_RETRY_MS 100 /* the watch shows soon what it was */
#define HELD_MS                                                                                    \
    1000 /* until a gate is asked again, which opens without a change that is seen here */
#define RETRIES_MAX 5
#define LATER_MS 10000 /* an object that is not there by then may never be */
#define DOUBT_MS 60000 /* the API server carries out no request later than this */
#define IN_FLIGHT_MAX 64
#define RUN_MS                                                                                     \
    20 /* no search begins after that in a run, and no claim is read: kube-scheduler waits */
#define BODY_MAX ((size_t) 1 << 20)
#define PATH_SIZE (DRA_KEY_MAX + 128)

/* A write under way; the object may be gone when it is answered. */
struct sending {
    struct dra *dra;
    bool gate; /* of a pod; else of a claim */
    char namespace[KUBE_LABEL_MAX];
    char name[KUBE_NAME_MAX];
    char uid[KUBE_UID_MAX];
};

static void advance(struct dra *d, struct dra_claim *claim, uint64_t now_ms);
static void let_through(struct dra *d, struct dra_pod *pod, uint64_t now_ms);

/* ---- answers ---- */

/* The pod's claims are not looked at before then. */
static void hold_off(struct dra *d, const char *uid, const struct kube_response *response) {
    struct dra_pod *pod = dra_pod_find(d, uid);
    bool outdated = response->status == 404 || response->status == 409;
    d->failed++;
    if (!pod)
        return;
    pod->retry_ms =
        d->now(d->userdata) + (outdated ? CONFLICT_RETRY_MS : (uint64_t) RETRY_MS << pod->failures);
    pod->failures += !outdated && pod->failures < RETRIES_MAX;
}

static void on_claim(struct dra *d, const struct sending *sending,
                     const struct kube_response *response) {
    struct dra_claim *claim = dra_claim_find(d, sending->namespace, sending->name);
    struct resource_claim answer;
    if (!claim || strcmp(claim->object.uid, sending->uid) != 0 || claim->stage != DRA_WRITING)
        return;
    claim->since_ms = d->now(d->userdata);
    if (http_is_success(response->status) &&
        resource_claim_parse(response->body, &answer, NULL) == 0) {
        claim->stage = DRA_PLANNED;
        struct dra_pod *pod = answer.allocated ? dra_pod_find(d, claim->plan->pod_uid) : NULL;
        d->allocated += answer.allocated;
        (void) dra_claim_take(d, &answer);
        if (claim->stage == DRA_PLANNED && d->leads(d->userdata))
            advance(d, claim, claim->since_ms);
        else if (claim->stage == DRA_PLANNED)
            dra_plan_drop(d, claim);
        if (pod && d->leads(d->userdata))
            let_through(d, pod, claim->since_ms);
    } else if (http_is_success(response->status) ||
               (response->status == 0 ? response->maybe_applied : response->status >= 500)) {
        claim->stage = DRA_IN_DOUBT;
    } else {
        if (response->status != 404 && response->status != 409)
            log_warn("claim %s: %s", claim->key, response->text);
        hold_off(d, claim->plan->pod_uid, response);
        dra_plan_drop(d, claim);
    }
}

static void on_gate(struct dra *d, const struct sending *sending,
                    const struct kube_response *response) {
    struct dra_pod *pod = dra_pod_find(d, sending->uid);
    if (!pod)
        return;
    pod->opening = false;
    if (http_is_success(response->status)) {
        pod->object.gated = false;
        return;
    }
    hold_off(d, sending->uid, response);
    if (response->status != 404 && response->status != 409)
        log_warn("pod %s/%s: cannot take its gate off: %s", sending->namespace, sending->name,
                 response->text);
}

static void on_written(const struct kube_response *response, void *userdata) {
    _cleanup_free_ struct sending *sending = userdata;
    struct dra *d = sending->dra;
    d->in_flight--;
    d->news++;
    if (sending->gate)
        on_gate(d, sending, response);
    else
        on_claim(d, sending, response);
    d->changed(d->userdata);
}

/* ---- writes ---- */

static bool patch(struct dra *d, const struct sending *what, const char *path, const char *type,
                  const struct buf *body) {
    struct sending *sending = buf_error(body) < 0 ? NULL : malloc(sizeof(*sending));
    struct err err;
    if (!sending)
        return false;
    *sending = *what;
    if (d->api.request(d->api.context, "PATCH", path, type, body->data, body->len, TIMEOUT_MS,
                       on_written, sending, &err) < 0) {
        free(sending);
        return false;
    }
    d->in_flight++;
    return true;
}

static void claim_path(const struct dra_claim *claim, const char *sub, char ret[static PATH_SIZE]) {
    (void) snprintf(ret, PATH_SIZE, "/apis/resource.k8s.io/v1/namespaces/%s/resourceclaims/%s%s",
                    claim->object.namespace, claim->object.name, sub);
}

static bool write_claim(struct dra *d, const struct dra_claim *claim) {
    _cleanup_buf_ struct buf body = BUF_INIT(BODY_MAX);
    struct sending what = {.dra = d};
    char path[PATH_SIZE], now[OBJECT_TIME_SIZE];
    memcpy(what.namespace, claim->object.namespace, sizeof(what.namespace));
    memcpy(what.name, claim->object.name, sizeof(what.name));
    memcpy(what.uid, claim->object.uid, sizeof(what.uid));
    if (!claim->object.protected) {
        dra_encode_finalizer(claim, &body);
        claim_path(claim, "", path);
        return patch(d, &what, path, KUBE_STRATEGIC_PATCH, &body);
    }
    object_now(now);
    dra_encode_allocation(d, claim, now, &body);
    claim_path(claim, "/status", path);
    return patch(d, &what, path, KUBE_MERGE_PATCH, &body);
}

/* The next write of a claim that has a plan. */
static void advance(struct dra *d, struct dra_claim *claim, uint64_t now_ms) {
    if (claim->stage == DRA_IN_DOUBT && now_ms - claim->since_ms >= DOUBT_MS)
        dra_plan_drop(d, claim); /* the watch has not shown it: it was not done */
    if (claim->stage != DRA_PLANNED || d->in_flight >= IN_FLIGHT_MAX)
        return;
    claim->since_ms = now_ms;
    if (write_claim(d, claim))
        claim->stage = DRA_WRITING;
}

static void open_gate(struct dra *d, struct dra_pod *pod) {
    _cleanup_buf_ struct buf body = BUF_INIT(BODY_MAX);
    struct sending what = {.dra = d, .gate = true};
    char path[PATH_SIZE];
    memcpy(what.namespace, pod->object.namespace, sizeof(what.namespace));
    memcpy(what.name, pod->object.name, sizeof(what.name));
    memcpy(what.uid, pod->object.uid, sizeof(what.uid));
    (void) snprintf(path, sizeof(path), "/api/v1/namespaces/%s/pods/%s", pod->object.namespace,
                    pod->object.name);
    dra_encode_gate(pod, &body);
    pod->opening = patch(d, &what, path, KUBE_STRATEGIC_PATCH, &body);
}

/* ---- pods ---- */

/* Whether all its claims are there, and none is ours to allocate any more. */
static bool is_served(const struct dra *d, const struct dra_pod *pod) {
    for (uint32_t i = 0; i < pod->object.nclaims; i++) {
        const struct dra_claim *claim = dra_claim_of(d, &pod->object, i);
        if (!claim || dra_waits_for_us(d, claim))
            return false;
    }
    return true;
}

/* Whether a claim of it is allocated: kube-scheduler is then told that the others are not, and
 * takes the allocation back, so that all can go to another node. */
static bool is_partly_served(const struct dra *d, const struct dra_pod *pod) {
    for (uint32_t i = 0; i < pod->object.nclaims; i++) {
        const struct dra_claim *claim = dra_claim_of(d, &pod->object, i);
        if (claim && claim->object.allocated &&
            resource_claim_is_for(&claim->object, pod->object.uid))
            return true;
    }
    return false;
}

static void tell(struct dra *d, const struct dra_pod *pod, const char *why, uint64_t now_ms) {
    const struct event event = event_on_pod(pod->object.namespace, pod->object.name,
                                            pod->object.uid, "GPUClaimWaits", why);
    event_writer_note(d->events, &event, 0, false, now_ms);
    for (uint32_t i = 0; i < pod->object.nclaims; i++) {
        const struct dra_claim *claim = dra_claim_of(d, &pod->object, i);
        if (!claim || !dra_waits_for_us(d, claim))
            continue;
        struct event on_claim = event;
        on_claim.name = claim->object.name;
        on_claim.uid = claim->object.uid;
        on_claim.api_version = "resource.k8s.io/v1";
        on_claim.kind = "ResourceClaim";
        event_writer_note(d->events, &on_claim, 0, false, now_ms);
    }
}

/* Another value whenever the search may end in another way. */
static uint64_t seen_of(const struct dra *d) {
    return d->news * 31 + d->state->version + 1;
}

/* When the next node is not left out any more; UINT64_MAX: none is left out. */
static uint64_t next_end(const struct dra_pod *pod, uint64_t now_ms) {
    uint64_t next = UINT64_MAX;
    for (uint32_t i = 0; i < pod->nshunned; i++)
        if (pod->shunned[i].until_ms > now_ms && pod->shunned[i].until_ms < next)
            next = pod->shunned[i].until_ms;
    return next;
}

/* Whether a search would end as the last one did. */
static bool is_unchanged(const struct dra *d, const struct dra_pod *pod, uint64_t now_ms) {
    return pod->refused == seen_of(d) && now_ms < pod->again_ms;
}

/* Whether an object has not come for so long that an Event is due. */
static bool is_late(struct dra_pod *pod, uint64_t now_ms) {
    if (pod->later_ms == 0)
        pod->later_ms = now_ms;
    if (now_ms - pod->later_ms >= LATER_MS)
        return true;
    pod->again_ms = pod->later_ms + LATER_MS;
    return false;
}

/* Whether the other members of its gang have their places, too. */
static bool is_let_through(struct dra *d, const struct dra_pod *pod, uint64_t now_ms) {
    _cleanup_buf_ struct buf why = BUF_INIT(GATE_WHY_MAX);
    struct state_pod *self = dra_self(d, pod);
    return !self || !self->gang || !gates_closed(d->gates, self, now_ms, &why);
}

/* Finds a place for the pod's claims. */
static void serve(struct dra *d, struct dra_pod *pod, uint64_t now_ms) {
    _cleanup_buf_ struct buf why = BUF_INIT(DRA_WHY_MAX);
    pod->again_ms = next_end(pod, now_ms);
    pod->round = d->round;
    enum dra_found found = dra_choose(d, pod, now_ms, d->gates, &why);
    dra_settle(d, pod);
    pod->refused = seen_of(d);
    dra_note(d, pod, found, buf_str(&why));
    struct state_pod *self = dra_self(d, pod);
    if (self && found != DRA_HELD)
        self->requeue.reason = found == DRA_NO_ROOM ? REFUSED_NO_ROOM : NULL;
    if (found != DRA_LATER)
        pod->later_ms = 0;
    if (found == DRA_HELD && pod->again_ms > now_ms + HELD_MS)
        pod->again_ms = now_ms + HELD_MS;
    if (found == DRA_NO_ROOM || found == DRA_HELD || found == DRA_REFUSED ||
        (found == DRA_LATER && is_late(pod, now_ms))) {
        tell(d, pod, buf_str(&why), now_ms);
        if (found == DRA_NO_ROOM && pod->object.gated && is_partly_served(d, pod))
            open_gate(d, pod);
    }
}

static int by_turn(const struct dra_pod *a, const struct dra_pod *b) {
    if (a->object.priority != b->object.priority)
        return a->object.priority > b->object.priority ? -1 : 1;
    if (a->object.created != b->object.created)
        return a->object.created < b->object.created ? -1 : 1;
    return strcmp(a->object.uid, b->object.uid);
}

/* Whether something can be written for it now. */
static bool has_turn(const struct dra *d, const struct dra_pod *pod, uint64_t now_ms) {
    return !pod->object.deleting && !pod->object.gated_by_others && !pod->opening &&
           now_ms >= pod->retry_ms && d->in_flight < IN_FLIGHT_MAX;
}

/* Takes the gate off when all its claims are served. */
static void let_through(struct dra *d, struct dra_pod *pod, uint64_t now_ms) {
    if (has_turn(d, pod, now_ms) && is_served(d, pod) && pod->object.gated &&
        is_let_through(d, pod, now_ms))
        open_gate(d, pod);
}

/* False: it has to wait for the next run. */
static bool run_pod(struct dra *d, struct dra_pod *pod, uint64_t now_ms, bool *searched) {
    if (!has_turn(d, pod, now_ms))
        return true;
    if (is_served(d, pod)) {
        let_through(d, pod, now_ms);
    } else if (pod->round != d->round && !is_unchanged(d, pod, now_ms)) {
        if (*searched && d->now(d->userdata) - now_ms >= RUN_MS)
            return false;
        *searched = true;
        serve(d, pod, now_ms);
    }
    return true;
}

void dra_tick(struct dra *d) {
    dra_hold_all(d, d->now(d->userdata));
}

/* Another value whenever the pod may want something else. */
static uint64_t known_of(const struct dra *d, const struct dra_pod *pod) {
    uint64_t known = d->classes_taken + 1;
    for (uint32_t i = 0; i < pod->object.nclaims; i++) {
        const struct dra_claim *claim = dra_claim_of(d, &pod->object, i);
        known = known * 31 + (claim ? claim->taken : 0);
    }
    return known;
}

/* A gang is complete when it is known what each member wants. False: some are left for the next
 * run, as the selectors of claims are read for it. */
static bool show_gangs(struct dra *d, uint64_t now_ms) {
    for (struct dra_pod *pod = d->pods; pod; pod = pod->hh.next) {
        const struct state_pod *self = dra_self(d, pod);
        if (!self || !self->gang || self->stage != POD_PENDING || pod->object.deleting)
            continue;
        uint64_t known = known_of(d, pod);
        if (pod->known == known)
            continue;
        if (d->now(d->userdata) - now_ms >= RUN_MS)
            return false;
        dra_show_wants(d, pod);
        pod->known = known;
    }
    return true;
}

void dra_ask_again(struct dra *d) {
    d->news++;
}

void dra_run(struct dra *d) {
    uint64_t now_ms = d->now(d->userdata);
    bool all = true, searched = false;
    dra_tick(d);
    dra_run_templates(d, now_ms);
    dra_settle_all(d);
    dra_count_arriving(d);
    bool shown = show_gangs(d, now_ms);
    HASH_SORT(d->pods, by_turn);
    for (struct dra_pod *pod = d->pods; pod; pod = pod->hh.next)
        all &= run_pod(d, pod, now_ms, &searched);
    for (struct dra_claim *claim = d->claims; claim; claim = claim->hh.next)
        advance(d, claim, now_ms);
    d->round += all; /* all had their turn */
    if (!all || !shown)
        d->changed(d->userdata); /* the others in the next run */
}

/* What is in flight is carried out or not, as the watch will show. */
void dra_lost(struct dra *d) {
    for (struct dra_claim *claim = d->claims; claim; claim = claim->hh.next)
        if (claim->stage == DRA_PLANNED)
            dra_plan_drop(d, claim);
    dra_templates_lost(d);
}

int dra_init(struct dra *d) {
    d->round = 1;
    d->state->keeps_resource_claims = true;
    return dra_selector_add(d);
}
