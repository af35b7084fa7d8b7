/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/gates/reservation.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "model/selection.h"
#include "scheduler/state/state_internal.h"

#define ID_PREFIX "reservation/" /* of the reserved capacity */
#define ID_MAX (KUBE_NAME_MAX + 16)
#define PLACES_PER_TICK 64 /* placements, each over all nodes */

struct reservation {
    UT_hash_handle hh;
    bool listed;
    uint32_t round; /* of the last placement */
    bool had_turn;  /* its status was sent, and others wait for theirs */
    char id[ID_MAX];
    struct reservation_object object; /* `held` may be ahead of what the watch has shown */
};

static bool is_held(const struct reservation *v) {
    return v->object.held.ncontainers > 0;
}

/* ---- life ---- */

static void let_go(struct reservations *r, struct reservation *v) {
    state_unreserve(r->state, v->id);
    assignment_done(&v->object.held);
    v->object.held.newer = false;
}

static void free_reservation(struct reservations *r, struct reservation *v) {
    let_go(r, v);
    HASH_DEL(r->all, v);
    free(v);
}

void reservations_done(struct reservations *r) {
    hash_drop_all(r, r->all, free_reservation);
}

HASH_SYNC(reservations, reservations, all, free_reservation)

void reservations_gone(struct reservations *r, const char *name) {
    char id[ID_MAX];
    (void) snprintf(id, sizeof(id), ID_PREFIX "%s", name);
    hash_drop_named(r, r->all, id, free_reservation);
}

static int reserve(struct reservations *r, const struct reservation *v) {
    const struct assignment *a = &v->object.held;
    return state_reserve(r->state, v->id, a->node, a->containers[0].devices,
                         a->containers[0].ndevices);
}

static int by_id(struct reservation *a, struct reservation *b) {
    return strcmp(a->id, b->id);
}

/* So that the same one is chosen whatever the order in which the watch shows them. */
static void sort(struct reservations *r) {
    if (r->unsorted)
        HASH_SORT(r->all, by_id);
    r->unsorted = false;
}

static struct reservation *get_reservation(struct reservations *r, const char *name) {
    struct reservation *v;
    char id[ID_MAX];
    (void) snprintf(id, sizeof(id), ID_PREFIX "%s", name);
    HASH_FIND_STR(r->all, id, v);
    if (v || !(v = calloc(1, sizeof(*v))))
        return v;
    memcpy(v->id, id, strlen(id) + 1);
    HASH_ADD_STR(r->all, id, v);
    if (!(v = hash_added_or_freed(v)))
        return NULL;
    v->round = r->round - 1;
    r->unsorted = true;
    return v;
}

int reservations_seen(struct reservations *r, struct reservation_object *object) {
    struct reservation *v = get_reservation(r, object->name);
    if (!v) {
        reservation_object_done(object);
        return -ENOMEM;
    }
    /* An event from before our own writing takes nothing back. */
    if (object->held.ncontainers == 0) {
        object->held = v->object.held;
        v->object.held = (struct assignment){0};
    }
    reservation_object_done(&v->object);
    v->object = *object;
    v->listed = true;
    return is_held(v) ? reserve(r, v) : 0;
}

/* ---- pods that draw on reservations ---- */

/* What the pod draws on; NULL: on none of ours. */
static const struct state_reserved *drawn_by(const struct state *s, const struct state_pod *pod) {
    for (const struct state_draw *d = pod->draws; s->reserved && d; d = d->next)
        if (d->container[0] == '\0' && strncmp(d->id, ID_PREFIX, strlen(ID_PREFIX)) == 0)
            return state_reserved_find(s, d->id);
    return NULL;
}

static bool is_for(const struct reservation *v, const struct state_pod *pod) {
    return is_held(v) && reservation_is_for(&v->object, pod->namespace, pod->name, pod->labels);
}

static bool has_device(const struct state_reserved *reserved, const char *uuid) {
    for (uint32_t i = 0; i < reserved->ndevices; i++)
        if (strcmp(reserved->devices[i].uuid, uuid) == 0)
            return true;
    return false;
}

static uint64_t key(void *self, const struct state_pod *pod) {
    const struct reservations *r = self;
    const struct state_reserved *reserved = drawn_by(r->state, pod);
    return reserved ? state_hash(0, reserved->id) : 0;
}

static bool allow(void *self, const struct state_pod *pod, const struct state_node *node,
                  uint64_t allowed[static GPU_CONTAINERS_MAX]) {
    const struct reservations *r = self;
    const struct state_reserved *reserved = drawn_by(r->state, pod);
    uint64_t kept = 0;
    if (!reserved)
        return true;
    for (uint32_t c = 0; c < node->ncards && reserved->node == node; c++)
        if (has_device(reserved, node->cards[c]->uuid))
            kept |= UINT64_C(1) << c;
    for (uint32_t i = 0; i < pod->ncontainers; i++)
        allowed[i] &= kept;
    return kept != 0;
}

struct state_selector reservations_selector(struct reservations *r) {
    return (struct state_selector){"reservation", PLACE_RESERVED, r, key, allow};
}

static bool fits_in(struct reservations *r, const struct reservation *v, struct state_pod *pod) {
    struct place_result result;
    const struct state_reserved *reserved = state_reserved_find(r->state, v->id);
    if (!reserved || !reserved->node->exists || state_draw(pod, NULL, v->id) < 0)
        return false;
    state_plan(r->state, pod, &r->request, &r->plan);
    return state_place(r->state, &r->plan, reserved->node, pod, false, &result) == PLACE_OK;
}

static void choose(struct reservations *r, struct state_pod *pod) {
    sort(r);
    for (const struct reservation *v = r->all; v; v = v->hh.next)
        if (is_for(v, pod) && fits_in(r, v, pod))
            return;
    if (pod->draws)
        (void) state_draw(pod, NULL, NULL);
}

bool reservations_open(void *self, struct state_pod *pod, uint64_t now_ms, struct buf *why) {
    (void) now_ms, (void) why;
    if (pod->stage == POD_PENDING && pod->problem == REQUEST_OK)
        choose(self, pod);
    return true;
}

/* For pods bound before this process started, their cards show what they draw on. */
static void recognise(struct reservations *r, const struct reservation *v) {
    const struct state_reserved *reserved =
        is_held(v) ? state_reserved_find(r->state, v->id) : NULL;
    for (struct state_pod *pod = reserved ? reserved->node->pods : NULL; pod; pod = pod->next) {
        bool all = pod->stage == POD_BOUND && !pod->draws && pod->nallocations > 0 &&
                   pod->created >= v->object.created && is_for(v, pod);
        for (uint32_t i = 0; all && i < pod->nallocations; i++)
            all = has_device(reserved, pod->allocations[i].device.uuid);
        if (all)
            (void) state_draw(pod, NULL, v->id);
    }
}

/* The same for what claims have. */
static void recognise_claim(struct reservations *r, const struct reservation *v,
                            const struct state_reserved *reserved,
                            const struct state_reserved *kept) {
    bool all = kept->nusers > 0 && !kept->within;
    for (uint32_t i = 0; all && i < kept->nusers; i++) {
        const struct state_pod *pod = state_pod_find(r->state, kept->users[i]);
        all = pod && pod->created >= v->object.created && is_for(v, pod) &&
              (!pod->draws || drawn_by(r->state, pod) == reserved);
    }
    for (uint32_t i = 0; all && i < kept->ndevices; i++)
        all = has_device(reserved, kept->devices[i].uuid);
    if (!all || state_reserved_within(r->state, kept->id, v->id) < 0)
        return;
    for (uint32_t i = 0; i < kept->nusers; i++)
        (void) state_draw(state_pod_find(r->state, kept->users[i]), NULL, v->id);
}

static void recognise_claims(struct reservations *r, const struct reservation *v) {
    const struct state_reserved *reserved =
        is_held(v) ? state_reserved_find(r->state, v->id) : NULL;
    for (const struct state_reserved *kept = reserved ? reserved->node->reserved : NULL; kept;
         kept = kept->next)
        recognise_claim(r, v, reserved, kept);
}

static void find_draws(struct reservations *r) {
    for (const struct reservation *v = r->all; v; v = v->hh.next) {
        recognise(r, v);
        recognise_claims(r, v);
    }
    for (struct state_pod *pod = r->state->pods; pod; pod = pod->hh.next)
        if (pod->stage == POD_PENDING && pod->requeue.refused && pod->problem == REQUEST_OK)
            choose(r, pod);
}

/* ---- placing ---- */

static struct state_node *find_place(struct reservations *r, const struct reservation *v,
                                     const struct state_pod *self, struct place_result *ret) {
    struct state_node *best = NULL;
    int64_t score, most = 0;
    state_refresh_all(r->state);
    state_plan(r->state, self, &r->request, &r->plan);
    for (struct state_node *node = r->state->nodes; node; node = node->hh.next)
        if (node->exists && node->ncards > 0 &&
            (!v->object.node[0] || strcmp(v->object.node, node->name) == 0) &&
            state_judge(r->state, &r->plan, node->head, self, &score) == PLACE_OK &&
            (!best || score > most)) {
            best = node;
            most = score;
        }
    bool found = best && state_place(r->state, &r->plan, best, self, false, ret) == PLACE_OK;
    return found ? best : NULL;
}

static int note_place(struct reservation *v, const struct state_node *node,
                      const struct place_result *result) {
    uint32_t n = result->ngrants;
    struct assignment a = {.ncontainers = 1, .containers = calloc(1, sizeof(*a.containers))};
    if (!a.containers)
        return -ENOMEM;
    struct assigned_container *c = &a.containers[0];
    memcpy(a.node, node->name, sizeof(a.node));
    memcpy(c->name, v->object.request.container, sizeof(c->name));
    c->devices = calloc(n ? n : 1, sizeof(*c->devices));
    if (!c->devices) {
        free(a.containers);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < n; i++)
        c->devices[c->ndevices++] =
            state_device(node->cards[result->grants[i].card], &result->grants[i]);
    assignment_done(&v->object.held);
    v->object.held = a;
    return 0;
}

/* Each has its turn before any has a second one: many for which there is no room do not keep one
 * from its place, and not the loop for long. */
static bool may_place(struct reservations *r, struct reservation *v) {
    if (v->round == r->round || r->placed == PLACES_PER_TICK)
        return false;
    v->round = r->round;
    r->placed++;
    return true;
}

static bool place(struct reservations *r, struct reservation *v) {
    if (!may_place(r, v))
        return false;
    struct gpu_selection selection = {.use_models = v->object.model};
    const struct state_pod self = {.ncontainers = 1,
                                   .containers = &v->object.request,
                                   .selection = v->object.model[0] ? &selection : NULL};
    struct place_result result;
    struct state_node *node = find_place(r, v, &self, &result);
    return node && note_place(v, node, &result) == 0 && reserve(r, v) == 0;
}

/* Whether its node is gone, and no pod uses it. */
static bool is_lost(const struct reservations *r, const struct reservation *v, size_t users) {
    const struct state_reserved *reserved = state_reserved_find(r->state, v->id);
    return is_held(v) && users == 0 && (!reserved || !reserved->node->exists);
}

/* Whether a card of it is gone or not healthy, and no pod uses it: it has to move. */
static bool is_broken(const struct reservations *r, const struct reservation *v, size_t users) {
    const struct state_reserved *reserved = state_reserved_find(r->state, v->id);
    if (!is_held(v) || users > 0 || !reserved)
        return false;
    uint32_t good = 0;
    for (uint32_t c = 0; c < reserved->node->ncards; c++)
        good += reserved->node->cards[c]->healthy && !reserved->node->cards[c]->duplicate &&
                has_device(reserved, reserved->node->cards[c]->uuid);
    return good < reserved->ndevices;
}

/* ---- status ---- */

struct users {
    size_t n;
    const char *of[RESERVATION_USERS_MAX];
    char text[RESERVATION_USERS_MAX][KUBE_LABEL_MAX + KUBE_NAME_MAX];
};

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *) a, *(const char *const *) b);
}

static void find_users(const struct reservations *r, const struct reservation *v,
                       struct users *ret) {
    const struct state_reserved *reserved = state_reserved_find(r->state, v->id);
    ret->n = 0;
    for (const struct state_pod *pod = reserved ? reserved->node->pods : NULL; pod; pod = pod->next)
        if (pod->stage == POD_BOUND && drawn_by(r->state, pod) == reserved &&
            ret->n < RESERVATION_USERS_MAX) {
            (void) snprintf(ret->text[ret->n], sizeof(ret->text[0]), "%s/%s", pod->namespace,
                            pod->name);
            ret->of[ret->n] = ret->text[ret->n];
            ret->n++;
        }
    qsort(ret->of, ret->n, sizeof(ret->of[0]), by_text);
}

/* What the reservation is at that time; makes it so. */
static struct reservation_status update_status(struct reservations *r, struct reservation *v,
                                               int64_t now, struct users *users) {
    struct reservation_status status = {.phase = RESERVATION_PENDING};
    find_users(r, v, users);
    if (is_lost(r, v, users->n))
        let_go(r, v);
    if (v->object.expires != 0 && now >= v->object.expires) {
        let_go(r, v);
        return (struct reservation_status){.phase = RESERVATION_EXPIRED};
    }
    if (v->object.unreadable)
        status.message = "its owners, nodeName or model are wrong or too long";
    else if (v->object.problem != REQUEST_OK)
        status.message = request_problem_text(v->object.problem, v->object.mixed);
    else if (v->object.starts != 0 && now < v->object.starts)
        status.message = "it has not started";
    else if ((!is_held(v) || is_broken(r, v, users->n)) && !place(r, v))
        status.message = "no node has room for it";
    if (is_held(v))
        status = (struct reservation_status){RESERVATION_HELD, NULL, &v->object.held, users->of,
                                             users->n};
    return status;
}

void reservations_tick(struct reservations *r, int64_t now, unsigned max,
                       void (*patch)(const char *name, const struct reservation_status *status,
                                     void *userdata),
                       void *userdata) {
    struct users users;
    if (!r->all)
        return;
    sort(r);
    find_draws(r);
    r->placed = 0;
    for (struct reservation *v = r->all; v; v = v->hh.next) {
        _cleanup_buf_ struct buf text = BUF_INIT(0);
        const struct reservation_status status = update_status(r, v, now, &users);
        if (v->object.held.newer) /* it stays as a newer scheduler wrote it */
            continue;
        reservation_encode_status(&status, &text);
        if (max == 0 || v->had_turn || buf_error(&text) < 0 ||
            reservation_status_hash(buf_str(&text), text.len) == v->object.status_hash)
            continue;
        patch(v->object.name, &status, userdata);
        v->had_turn = true;
        max--;
    }
    if (r->placed < PLACES_PER_TICK)
        r->round++; /* all had their turn */
    /* In turns, so that objects whose status the API server rejects do not starve others. */
    for (struct reservation *v = max > 0 ? r->all : NULL; v; v = v->hh.next)
        v->had_turn = false;
}
