/* SPDX-License-Identifier: Apache-2.0 */

/* Where the claims of a pod go: node and cards by the placement and the state that the extender's
 * verbs use. All claims of a pod are placed together, each request as a container of its own. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/units.h"
#include "kube/objects/share_config.h"
#include "kube/objects/toleration.h"
#include "model/dra.h"
#include "model/quantity.h"
#include "place/policies/policies.h"
#include "scheduler/dra/dra_internal.h"

#define TRIES_MAX 64 /* combinations of choices of firstAvailable */
#define TALLY_MAX 32
#define CARDS_TOLD_MAX 16
#define CONSTRAINTS_MAX 8 /* of all claims of a pod that wait */
#define EFFORT 2048       /* steps of a search with constraints, beside those for each node */

/* ---- which cards a search may take ---- */

/* Cards of kube-scheduler's are left to it. Without such cards other pods are not restricted, so
 * that equivalence classes of nodes stay valid for them. */
static uint64_t select_key(void *self, const struct state_pod *pod) {
    const struct dra *d = self;
    bool restricted = pod == d->sought || d->others > 0 || d->unresolved > 0;
    return restricted ? (d->devices_version << 1 | (pod == d->sought)) + 2 : 0;
}

static bool takes_new(const struct slice_device *device, const struct container_request *req) {
    return !device->by_scheduler && device->ntaints == 0 && (device->shared || req->whole);
}

static bool select_allow(void *self, const struct state_pod *pod, const struct state_node *node,
                         uint64_t allowed[static GPU_CONTAINERS_MAX]) {
    const struct dra *d = self;
    const struct dra_node *known = d->unresolved > 0 ? dra_node_find(d, node->name) : NULL;
    uint64_t left = 0;
    if (known && known->unresolved > 0)
        return false;
    for (uint32_t c = 0; c < node->ncards; c++) {
        const struct dra_device *device = dra_device_find(d, node->name, node->cards[c]->uuid);
        for (uint32_t i = 0; i < pod->ncontainers; i++) {
            bool may = pod == d->sought ? device && takes_new(device->at, &pod->containers[i]) &&
                                              (!d->allowed || d->allowed[i] >> c & 1)
                                        : !device || !device->at->by_scheduler;
            if (!may)
                allowed[i] &= ~(UINT64_C(1) << c);
        }
    }
    for (uint32_t i = 0; i < pod->ncontainers; i++)
        left |= allowed[i];
    return left != 0;
}

int dra_selector_add(struct dra *d) {
    const struct state_selector selector = {"devices", PLACE_OTHER_WAY, d, select_key,
                                            select_allow};
    return state_add_selector(d->state, &selector);
}

/* ---- what the pod's claims want ---- */

struct want {
    struct dra_claim *claim;
    const struct device_request *request;
    uint32_t choice;
};

struct candidate {
    struct state_node *node;
    const char *why_not; /* see why_not() */
};

struct search {
    struct dra *d;
    struct dra_pod *pod;
    uint64_t now_ms;
    const char *node; /* the only one, where a claim or the pod is there already; NULL: any */
    uint32_t nclaims; /* that wait for us */
    struct dra_claim *claims[POD_DEVICE_CLAIMS_MAX];
    uint32_t n;
    struct want wants[GPU_CONTAINERS_MAX];
    struct container_request containers[GPU_CONTAINERS_MAX];
    const struct place_policy *policy;
    uint32_t nconstraints;
    uint32_t effort; /* nodes and steps with constraints that are left to try */
    uint32_t nnodes;
    struct candidate *nodes; /* all that have cards */
    struct buf *why;
};

static const struct device_choice *choice_of(const struct want *want) {
    return &want->request->choices[want->choice];
}

/* As constraints, configs and results name it. */
static void name_request(const struct want *want, char ret[static DEVICE_REQUEST_MAX]) {
    const struct device_choice *choice = choice_of(want);
    (void) snprintf(ret, DEVICE_REQUEST_MAX, "%s%s%s", want->request->name,
                    choice->name[0] ? "/" : "", choice->name);
}

static bool is_class_of_ours(const struct dra *d, const char *name) {
    const struct dra_class *class = dra_class_find(d, name);
    return class && class->object.by_aliquot;
}

bool dra_is_ours(const struct dra *d, const struct resource_claim *claim, bool *ret_mixed) {
    uint32_t ours = 0, all = 0;
    for (uint32_t i = 0; i < claim->nrequests; i++)
        for (uint32_t j = 0; j < claim->requests[i].nchoices; j++) {
            ours += is_class_of_ours(d, claim->requests[i].choices[j].class);
            all++;
        }
    *ret_mixed = ours > 0 && ours < all;
    return ours > 0 && ours == all;
}

static enum dra_found refuse(const struct search *s, const struct dra_claim *claim,
                             const char *format, ...) __attribute__((format(printf, 3, 4)));
static enum dra_found refuse(const struct search *s, const struct dra_claim *claim,
                             const char *format, ...) {
    va_list ap;
    buf_printf(s->why, "claim %s: ", claim->object.name);
    va_start(ap, format);
    buf_vprintf(s->why, format, ap);
    va_end(ap);
    return DRA_REFUSED;
}

static enum dra_found check_choice(const struct search *s, const struct dra_claim *claim,
                                   const struct device_choice *choice) {
    const struct device_amounts *a = &choice->amounts;
    if (choice->all || choice->admin)
        return refuse(s, claim, "%s is for kube-scheduler's class " DRA_FIRST_FIT_CLASS,
                      choice->all ? "allocationMode All" : "adminAccess");
    if (choice->selectors.n > 0)
        return refuse(s, claim,
                      "a selector is for kube-scheduler's class " DRA_FIRST_FIT_CLASS ": %.128s",
                      choice->selectors.v[0]);
    if (a->odd[0])
        return refuse(s, claim, "capacity %s is not a whole number of core or memory", a->odd);
    if (a->has_core && a->core > CORE_PER_CARD)
        return refuse(s, claim, "core is a percentage of one card, at most 100");
    if (a->has_memory && a->memory < MIB)
        return refuse(s, claim, "memory is below 1 MiB: it counts bytes");
    if (choice->count > PLACE_CARDS_MAX)
        return refuse(s, claim, "count is more than the cards of any node");
    return DRA_FOUND;
}

/* What it does not name is all of the card, but compute alone comes with the same part of the
 * memory. */
static struct container_request read_amounts(const struct device_choice *choice) {
    const struct device_amounts *a = &choice->amounts;
    struct container_request req = {
        .phase = CONTAINER_APP, .cards = choice->count, .scaling = DRA_SCALING};
    req.whole = (!a->has_core || a->core == CORE_PER_CARD) && !a->has_memory;
    if (req.whole)
        return req;
    req.core = a->has_core ? (uint32_t) a->core : CORE_PER_CARD;
    req.slot = req.core == 0;
    req.memory = a->has_memory ? (a->memory + MIB - 1) / MIB * MIB : 0;
    req.memory_percent = !a->has_memory && req.core == 0 ? 100 : 0;
    return req;
}

/* The configs of the classes of its requests and its own. */
static int read_policy(struct search *s, const struct want *want, struct err *err) {
    const struct dra_class *class = dra_class_find(s->d, choice_of(want)->class);
    char request[DEVICE_REQUEST_MAX];
    struct share_config of_class = {.weight = 0}, of_claim = {.weight = 0};
    name_request(want, request);
    int r = class ? share_config_of(class->object.configs, class->object.nconfigs, request,
                                    &of_class, err)
                  : 0;
    if (r == 0)
        r = share_config_of(want->claim->object.configs, want->claim->object.nconfigs, request,
                            &of_claim, err);
    const char *name =
        of_claim.placement_policy[0] ? of_claim.placement_policy : of_class.placement_policy;
    if (r == 0 && name[0] && !s->policy)
        s->policy = place_policy_find(name);
    return r;
}

static enum dra_found add_claim(struct search *s, struct dra_claim *claim) {
    const struct resource_claim *object = &claim->object;
    for (uint32_t i = 0; i < object->nrequests; i++) {
        if (s->n == GPU_CONTAINERS_MAX)
            return refuse(s, claim, "the claims of a pod have more than %d requests",
                          GPU_CONTAINERS_MAX);
        struct want *want = &s->wants[s->n++];
        struct err err;
        *want = (struct want){.claim = claim, .request = &object->requests[i]};
        for (uint32_t j = 0; j < want->request->nchoices; j++) {
            want->choice = j;
            enum dra_found found = check_choice(s, claim, choice_of(want));
            if (found != DRA_FOUND)
                return found;
            if (read_policy(s, want, &err) < 0)
                return refuse(s, claim, "%s", err.text);
        }
        want->choice = 0;
    }
    s->nconstraints += object->nconstraints;
    if (s->nconstraints > CONSTRAINTS_MAX)
        return refuse(s, claim, "the claims of a pod have more than %d constraints",
                      CONSTRAINTS_MAX);
    s->claims[s->nclaims++] = claim;
    return DRA_FOUND;
}

static bool is_of_another_pod(const struct search *s, const struct dra_claim *claim) {
    return claim->object.owner_pod[0] && strcmp(claim->object.owner_pod, s->pod->object.uid) != 0;
}

/* All that is allocated to one pod is on one node. */
static enum dra_found read_pod_claim(struct search *s, const struct pod_device_claim *of) {
    struct dra_claim *claim =
        of->claim[0] ? dra_claim_find(s->d, s->pod->object.namespace, of->claim) : NULL;
    bool mixed;
    const char *late = !claim                         ? "it is not there, or cannot be read"
                       : claim->object.deleting       ? "it is being deleted"
                       : claim->stage == DRA_IN_DOUBT ? "a write of it has got no answer"
                       : is_of_another_pod(s, claim)  ? "it is the one of an earlier pod"
                                                      : NULL;
    if (late) {
        buf_printf(s->why, "claim %s: %s", of->claim[0] ? of->claim : of->name, late);
        return DRA_LATER;
    }
    const char *node = dra_claim_node(claim);
    if (node[0] && s->node && strcmp(node, s->node) != 0)
        return refuse(s, claim, "it is on node %s, and another claim of the pod on node %s", node,
                      s->node);
    if (node[0])
        s->node = node;
    if (claim->object.allocated || claim->plan)
        return DRA_FOUND;
    if (dra_is_ours(s->d, &claim->object, &mixed))
        return add_claim(s, claim);
    return mixed
               ? refuse(s, claim,
                        "its requests are of classes of several allocators; make a claim for each")
               : DRA_FOUND;
}

static enum dra_found read_pod(struct search *s) {
    const struct pod_devices *pod = &s->pod->object;
    if (pod->node[0])
        s->node = pod->node;
    for (uint32_t i = 0; i < pod->nclaims; i++) {
        enum dra_found found = read_pod_claim(s, &pod->claims[i]);
        if (found != DRA_FOUND)
            return found;
    }
    return s->n > 0 ? DRA_FOUND : DRA_NOT_OURS;
}

/* ---- which nodes can take the pod ---- */

/* Why nodes were left out, and how many. */
struct tally {
    uint32_t n;
    struct {
        const char *text;
        uint32_t nodes;
    } of[TALLY_MAX];
};

static void count_reason(struct tally *tally, const char *text) {
    uint32_t i = 0;
    while (i < tally->n && strcmp(tally->of[i].text, text) != 0)
        i++;
    if (i == TALLY_MAX)
        return;
    if (i == tally->n) {
        tally->of[i].text = text;
        tally->of[i].nodes = 0;
        tally->n++;
    }
    tally->of[i].nodes++;
}

static void add_room(struct cpu_memory *sum, const struct cpu_memory *more) {
    sum->cpu += more->cpu;
    sum->memory += more->memory;
}

/* Until kube-scheduler binds it, the state does not count the pod. */
static void count_arriving(struct dra *d, struct dra_pod *pod, const char *name) {
    struct dra_node *node = !pod->object.node[0] && !pod->object.deleting && !pod->arriving
                                ? dra_node_find(d, name)
                                : NULL;
    if (!node)
        return;
    pod->arriving = true;
    add_room(&node->arriving, &pod->object.room);
}

void dra_count_arriving(struct dra *d) {
    for (struct dra_node *node = d->nodes; node; node = node->hh.next)
        node->arriving = (struct cpu_memory){0};
    for (struct dra_pod *pod = d->pods; pod; pod = pod->hh.next) {
        pod->arriving = false;
        for (uint32_t i = 0; i < pod->object.nclaims && !pod->object.node[0]; i++) {
            const struct dra_claim *claim =
                dra_claim_find(d, pod->object.namespace, pod->object.claims[i].claim);
            const char *node = claim ? dra_claim_node(claim) : "";
            if (node[0])
                count_arriving(d, pod, node);
        }
    }
}

static bool has_room(const struct search *s, const struct state_node *node,
                     const struct dra_node *known) {
    const struct cpu_memory *all = &node->room;
    struct cpu_memory sum = node->used;
    add_room(&sum, &known->arriving);
    if (!s->pod->arriving)
        add_room(&sum, &s->pod->object.room);
    return (all->cpu == 0 || sum.cpu <= all->cpu) &&
           (all->memory == 0 || sum.memory <= all->memory);
}

/* What kube-scheduler will refuse the node for, as far as it is known here; NULL: nothing. A pod
 * that is bound stays where it is. */
static const char *why_not(const struct search *s, const struct state_node *node) {
    const struct pod_devices *pod = &s->pod->object;
    const struct dra_node *known = dra_node_find(s->d, node->name);
    if (s->node && strcmp(s->node, node->name) != 0)
        return "other claims of the pod, or the pod itself, are on another node";
    if (pod->node[0])
        return NULL;
    if (!known)
        return "they are gone";
    if (!pod_devices_may_be_on(pod, known->labels, node->name))
        return "the pod's node selector or affinity excludes them";
    if (known->unschedulable)
        return "they are cordoned";
    if (!taints_are_tolerated(known->taints, pod->tolerations))
        return "they have a taint that the pod does not tolerate";
    if (!has_room(s, node, known))
        return "too little CPU or memory for the pod";
    if (dra_is_shunned(s->pod, node->name, s->now_ms))
        return "kube-scheduler took the allocation back a moment ago";
    return NULL;
}

/* Of each node once, as it is the same for all choices. Each node can be tried with every choice of
 * one request. */
static bool list_nodes(struct search *s) {
    struct state *state = s->d->state;
    state_refresh_all(state);
    s->nodes = calloc(HASH_COUNT(state->nodes) + 1, sizeof(*s->nodes));
    for (struct state_node *node = state->nodes; s->nodes && node; node = node->hh.next)
        if (node->exists && node->ncards > 0)
            s->nodes[s->nnodes++] = (struct candidate){node, why_not(s, node)};
    s->effort = EFFORT + s->nnodes * DEVICE_CHOICES_MAX;
    return s->nodes != NULL;
}

/* ---- constraints ---- */

/* The value of an attribute; "": the device has none. */
static void attribute_of(const struct slice_device *d, const char *name,
                         char ret[static SLICE_TEXT_MAX]) {
    const char *own = strncmp(name, DRA_DRIVER "/", strlen(DRA_DRIVER "/")) == 0
                          ? name + strlen(DRA_DRIVER "/")
                          : "";
    const char *text = strcmp(own, DRA_UUID) == 0             ? d->uuid
                       : strcmp(own, DRA_MODEL) == 0          ? d->model
                       : strcmp(own, DRA_PROFILE) == 0        ? d->profile
                       : strcmp(own, DRA_PARENT_UUID) == 0    ? d->parent
                       : strcmp(own, DRA_DRIVER_VERSION) == 0 ? d->driver_version
                                                              : "";
    if (strcmp(own, DRA_INDEX) == 0)
        (void) snprintf(ret, SLICE_TEXT_MAX, "%u", d->index);
    else if (strcmp(own, DRA_NUMA) == 0 && d->numa >= 0)
        (void) snprintf(ret, SLICE_TEXT_MAX, "%d", d->numa);
    else
        slice_text(ret, text);
}

static void attribute_at(const struct dra *d, const struct state_node *node, uint32_t c,
                         const char *name, char ret[static SLICE_TEXT_MAX]) {
    const struct dra_device *device = dra_device_find(d, node->name, node->cards[c]->uuid);
    ret[0] = '\0';
    if (device)
        attribute_of(device->at, name, ret);
}

/* The cards of the node with that value. */
static uint64_t cards_with(const struct dra *d, const struct state_node *node, const char *name,
                           const char *value) {
    uint64_t cards = 0;
    for (uint32_t c = 0; c < node->ncards; c++) {
        char own[SLICE_TEXT_MAX];
        attribute_at(d, node, c, name, own);
        if (own[0] && strcmp(own, value) == 0)
            cards |= UINT64_C(1) << c;
    }
    return cards;
}

static uint32_t containers_of(const struct search *s, const struct dra_claim *claim,
                              const struct device_constraint *constraint) {
    uint32_t set = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        char request[DEVICE_REQUEST_MAX];
        name_request(&s->wants[i], request);
        if (s->wants[i].claim == claim && device_requests_have(&constraint->requests, request))
            set |= UINT32_C(1) << i;
    }
    return set;
}

struct limits {
    uint64_t allowed[GPU_CONTAINERS_MAX];
};

/* False: one of the containers has no card left. */
static bool narrow(struct limits *limits, uint32_t containers, uint64_t cards) {
    bool left = true;
    for (uint32_t i = 0; i < GPU_CONTAINERS_MAX; i++)
        if (containers >> i & 1)
            left &= (limits->allowed[i] &= cards) != 0;
    return left;
}

static enum place_reason place_with(struct search *s, struct state_node *node,
                                    const struct state_pod *self, const struct limits *limits,
                                    struct place_result *ret) {
    s->d->allowed = limits->allowed;
    enum place_reason reason = state_place(s->d->state, &s->d->plan, node, self, false, ret);
    s->d->allowed = NULL;
    return reason;
}

/* Whether no two cards of these containers have the same value. Else narrows `limits`: what comes
 * before the first that shares its value stays where it is, and that one has to take another. */
static bool is_distinct(struct search *s, const struct state_node *node, uint32_t containers,
                        const char *name, const struct place_result *result,
                        struct limits *limits) {
    uint64_t taken = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        uint64_t accepted = 0;
        for (uint32_t c = 0; (containers >> i & 1) && c < node->ncards; c++) {
            char value[SLICE_TEXT_MAX];
            if (!(result->cards[i] >> c & 1))
                continue;
            attribute_at(s->d, node, c, name, value);
            uint64_t same = cards_with(s->d, node, name, value) | UINT64_C(1) << c;
            if (!value[0] || same & taken) {
                limits->allowed[i] = (limits->allowed[i] & ~(taken | UINT64_C(1) << c)) | accepted;
                return false;
            }
            taken |= same;
            accepted |= UINT64_C(1) << c;
        }
        if (containers >> i & 1)
            limits->allowed[i] = accepted;
    }
    return true;
}

/* One constraint after the other: `at` is the claim and the constraint of it from which on they are
 * to be met. A constraint of equal values tries each value; one of different values moves what
 * collides, so that it can fail where another order of moves would not. */
static enum place_reason place_constrained(struct search *s, struct state_node *node,
                                           const struct state_pod *self, uint32_t claim,
                                           uint32_t at, struct limits *limits,
                                           struct place_result *ret);

static enum place_reason place_equal(struct search *s, struct state_node *node,
                                     const struct state_pod *self, uint32_t claim, uint32_t at,
                                     const struct limits *limits, struct place_result *ret) {
    const struct device_constraint *constraint = &s->claims[claim]->object.constraints[at];
    const uint32_t containers = containers_of(s, s->claims[claim], constraint);
    struct place_result *found = malloc(sizeof(*found));
    enum place_reason best = PLACE_NOT_TOGETHER;
    uint64_t tried = 0;
    for (uint32_t c = 0; found && s->effort > 0 && c < node->ncards; c++) {
        char value[SLICE_TEXT_MAX];
        struct limits fewer = *limits;
        attribute_at(s->d, node, c, constraint->match, value);
        uint64_t cards = value[0] ? cards_with(s->d, node, constraint->match, value) : 0;
        if (cards == 0 || tried >> c & 1)
            continue;
        tried |= cards;
        if (!narrow(&fewer, containers, cards))
            continue;
        enum place_reason reason = place_constrained(s, node, self, claim, at + 1, &fewer, found);
        if (reason == PLACE_OK && (best != PLACE_OK || found->score > ret->score))
            place_result_copy(ret, found);
        best = best == PLACE_OK ? best : reason;
    }
    free(found);
    return best;
}

static enum place_reason place_distinct(struct search *s, struct state_node *node,
                                        const struct state_pod *self, uint32_t claim, uint32_t at,
                                        struct limits *limits, struct place_result *ret) {
    const struct device_constraint *constraint = &s->claims[claim]->object.constraints[at];
    const uint32_t containers = containers_of(s, s->claims[claim], constraint);
    for (uint32_t tries = 0; tries < PLACE_CARDS_MAX; tries++) {
        struct limits kept = *limits;
        enum place_reason reason = place_constrained(s, node, self, claim, at + 1, &kept, ret);
        if (reason != PLACE_OK ||
            is_distinct(s, node, containers, constraint->distinct, ret, limits))
            return reason;
    }
    return PLACE_NOT_TOGETHER;
}

static enum place_reason place_constrained(struct search *s, struct state_node *node,
                                           const struct state_pod *self, uint32_t claim,
                                           uint32_t at, struct limits *limits,
                                           struct place_result *ret) {
    if (s->nconstraints > 0 && s->effort == 0)
        return PLACE_NOT_TOGETHER;
    s->effort -= s->nconstraints > 0;
    while (claim < s->nclaims && at >= s->claims[claim]->object.nconstraints)
        claim++, at = 0;
    if (claim == s->nclaims)
        return place_with(s, node, self, limits, ret);
    const struct device_constraint *constraint = &s->claims[claim]->object.constraints[at];
    if (constraint->match[0])
        return place_equal(s, node, self, claim, at, limits, ret);
    if (constraint->distinct[0])
        return place_distinct(s, node, self, claim, at, limits, ret);
    return PLACE_NOT_TOGETHER; /* of a kind that is not known */
}

/* ---- the choice ---- */

static enum place_reason try_node(struct search *s, struct state_node *node,
                                  const struct state_pod *self, int64_t *ret_score) {
    struct limits limits;
    if (s->nconstraints == 0)
        return state_judge(s->d->state, &s->d->plan, node->head, self, ret_score);
    memset(&limits, 0xff, sizeof(limits));
    enum place_reason reason = place_constrained(s, node, self, 0, 0, &limits, &s->d->result);
    *ret_score = s->d->result.score;
    return reason;
}

static struct state_node *best_node(struct search *s, const struct state_pod *self,
                                    struct tally *tally) {
    struct state_node *best = NULL;
    int64_t score, most = 0;
    state_plan(s->d->state, self, &s->d->request, &s->d->plan);
    for (uint32_t i = 0; i < s->nnodes && s->effort > 0; i++) {
        struct state_node *node = s->nodes[i].node;
        const char *text = s->nodes[i].why_not;
        s->effort -= !text;
        enum place_reason reason = text ? PLACE_OK : try_node(s, node, self, &score);
        if (text || reason != PLACE_OK)
            count_reason(tally, text ? text : place_reason_text(reason));
        else if (!best || score > most) {
            best = node;
            most = score;
        }
    }
    return best;
}

/* The cards of the best node, in d->result. */
static struct state_node *find_place(struct search *s, struct tally *tally) {
    struct state_pod self = {.ncontainers = s->n, .containers = s->containers};
    struct limits limits;
    struct err err;
    memcpy(self.namespace, s->pod->object.namespace, sizeof(self.namespace));
    self.room = s->pod->object.room;
    s->policy = NULL;
    for (uint32_t i = 0; i < s->n; i++) {
        (void) read_policy(s, &s->wants[i], &err); /* as it was read before */
        s->containers[i] = read_amounts(choice_of(&s->wants[i]));
        (void) snprintf(s->containers[i].container, sizeof(s->containers[i].container), "%u", i);
    }
    self.class_policy = s->policy;
    memset(&limits, 0xff, sizeof(limits));
    s->d->sought = &self;
    struct state_node *node = best_node(s, &self, tally);
    if (node) {
        s->effort = EFFORT; /* what was found with what is used up is found again */
        if (place_constrained(s, node, &self, 0, 0, &limits, &s->d->result) != PLACE_OK)
            node = NULL;
    }
    s->d->sought = NULL;
    return node;
}

/* The next combination of choices, those of the last request first. False: there is none. */
static bool next_choices(struct search *s) {
    for (uint32_t i = s->n; i-- > 0;) {
        if (++s->wants[i].choice < s->wants[i].request->nchoices)
            return true;
        s->wants[i].choice = 0;
    }
    return false;
}

/* ---- the plans ---- */

static bool add_part(struct search *s, const struct state_node *node,
                     const struct place_grant *grant, struct dra_plan *plan) {
    const struct want *want = &s->wants[grant->container];
    const struct state_card *card = node->cards[grant->card];
    const struct dra_device *device = dra_device_find(s->d, node->name, card->uuid);
    if (!device || plan->nparts == DEVICE_RESULTS_MAX)
        return false;
    struct dra_part *part = &plan->parts[plan->nparts++];
    name_request(want, part->request);
    memcpy(part->class, choice_of(want)->class, sizeof(part->class));
    memcpy(part->pool, device->slice->pool, sizeof(part->pool));
    memcpy(part->device, device->at->name, sizeof(part->device));
    part->shared = device->at->shared;
    part->share = state_device(card, grant);
    return true;
}

static struct dra_plan *make_plan(struct search *s, const struct dra_claim *claim,
                                  const struct state_node *node) {
    struct dra_plan *plan = calloc(1, sizeof(*plan) + DEVICE_RESULTS_MAX * sizeof(plan->parts[0]));
    if (!plan)
        return NULL;
    memcpy(plan->node, node->name, sizeof(plan->node));
    memcpy(plan->pod_uid, s->pod->object.uid, sizeof(plan->pod_uid));
    memcpy(plan->pod_name, s->pod->object.name, sizeof(plan->pod_name));
    for (uint32_t i = 0; i < s->d->result.ngrants; i++) {
        const struct place_grant *grant = &s->d->result.grants[i];
        if (s->wants[grant->container].claim == claim && !add_part(s, node, grant, plan)) {
            free(plan);
            return NULL;
        }
    }
    return plan;
}

/* Why the API server would refuse the allocation; NULL: it takes it. */
static const char *why_not_written(const struct search *s, const struct dra_claim *claim,
                                   const struct dra_plan *plan) {
    if (!plan)
        return "it has more devices than fit into an allocation";
    return dra_configs_of(s->d, claim, plan) > 2 * DEVICE_REQUESTS_MAX
               ? "it and its classes have more configs than fit into an allocation: those of a "
                 "class count for each request"
               : NULL;
}

static void drop_plans(struct search *s) {
    for (uint32_t i = 0; i < s->nclaims; i++)
        dra_plan_drop(s->d, s->claims[i]);
}

/* Each claim holds its part from here on, so that quotas see those before it. */
static enum dra_found plan_all(struct search *s, const struct state_node *node) {
    for (uint32_t i = 0; i < s->nclaims; i++) {
        struct dra_claim *claim = s->claims[i];
        _cleanup_buf_ struct buf text = BUF_INIT(GATE_WHY_MAX);
        struct dra_plan *plan = make_plan(s, claim, node);
        const struct quota_use use = plan ? dra_use_of(plan) : (struct quota_use){0};
        const char *problem = why_not_written(s, claim, plan);
        bool admitted =
            !problem && (!s->d->quotas || quotas_admit(s->d->quotas, claim->object.namespace, &use,
                                                       NULL, QUOTA_CLAIM, &text));
        if (!admitted) {
            drop_plans(s);
            buf_printf(s->why, "claim %s: %s", claim->object.name,
                       problem ? problem : buf_str(&text));
            free(plan);
            return DRA_NO_ROOM;
        }
        claim->plan = plan;
        claim->stage = DRA_PLANNED;
        dra_hold(s->d, claim);
    }
    count_arriving(s->d, s->pod, node->name);
    return DRA_FOUND;
}

/* ---- why there is no room ---- */

static void tell_cards(struct search *s, const struct state_node *node, unsigned *told) {
    for (uint32_t c = 0; c < node->ncards && *told < CARDS_TOLD_MAX; c++, ++*told) {
        char text[24];
        buf_printf(s->why, "%s %s card %u: %u %%, %s", *told ? ";" : " Free:", node->name,
                   node->cards[c]->index, node->place[c].free.core,
                   quantity_format_bytes(node->place[c].free.memory / MIB * MIB, text));
    }
}

static void tell(struct search *s, const struct tally *tally) {
    unsigned told = 0;
    buf_printf(s->why, "no node has room for the claims of pod %s: ", s->pod->object.name);
    for (uint32_t i = 0; i < tally->n; i++)
        buf_printf(s->why, "%s%u node(s): %s", i ? "; " : "", tally->of[i].nodes,
                   tally->of[i].text);
    buf_puts(s->why, tally->n ? "." : "there is no node with a GPU.");
    for (uint32_t i = 0; i < s->nnodes && told < CARDS_TOLD_MAX; i++)
        if (!s->nodes[i].why_not)
            tell_cards(s, s->nodes[i].node, &told);
}

static void search_done(struct search *s) {
    free(s->nodes);
}

enum dra_found dra_choose(struct dra *d, struct dra_pod *pod, uint64_t now_ms, struct buf *why) {
    _cleanup_(search_done) struct search s = {.d = d, .pod = pod, .now_ms = now_ms, .why = why};
    struct state_node *node = NULL;
    struct tally tally = {0};
    enum dra_found found = read_pod(&s);
    if (found == DRA_FOUND && pod->object.too_many) {
        buf_printf(why, "the pod uses more than %d claims", POD_DEVICE_CLAIMS_MAX);
        return DRA_REFUSED;
    }
    if (found != DRA_FOUND)
        return found;
    if (!list_nodes(&s))
        return DRA_LATER;
    for (unsigned tries = 0; !node && s.effort > 0 && tries < TRIES_MAX; tries++) {
        tally.n = 0;
        node = find_place(&s, &tally);
        if (!node && !next_choices(&s))
            break;
    }
    if (node)
        return plan_all(&s, node);
    tell(&s, &tally);
    return DRA_NO_ROOM;
}
