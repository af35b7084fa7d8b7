/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "place/policies/policies.h"
#include "place/workload/workload_model.h"
#include "scheduler/state/state_internal.h"

static uint64_t selection_key(void *self, const struct state_pod *pod);

/* ---- what a pod wants ---- */

static uint64_t mix_hash(uint64_t hash, uint64_t part) {
    return hash_bytes(hash, &part, sizeof(part));
}

/* Whether the pod accepts any card, or any of certain models, so that equivalence classes of nodes
 * are valid for it. */
static bool uses_equivalence(const struct state *s, const struct state_pod *pod) {
    const struct gpu_selection *own = pod->selection;
    for (size_t i = 0; i < s->nselectors; i++) {
        const struct state_selector *sel = &s->selectors[i];
        if (sel->key(sel->self, pod) != 0 && sel->key != selection_key)
            return false;
    }
    return !pod->draws && !(s->reserved && state_reserved_find(s, pod->uid)) &&
           !(own && (own->use_uuids || own->avoid_uuids || own->use_indexes));
}

/* The last bit of a shape is uses_equivalence(). */
static bool equivalence_applies(const struct place_plan *plan, const struct state_head *head) {
    return plan->shape & 1 && head->equivalence;
}

static uint64_t shape_of(const struct state *s, const struct state_pod *pod,
                         const struct gpu_request *request, const struct place_plan *plan) {
    uint64_t hash = HASH_START;
    for (uint32_t i = 0; i < request->n; i++) {
        const struct container_request *req = &request->containers[i];
        const uint64_t parts[] = {
            req->phase,          req->cards,      req->whole,        req->core,   req->memory,
            req->memory_percent, req->slot,       req->memory_floor, req->tflops, req->scaling,
            req->replicas,       req->as_replica, req->as_cards,     req->cpus,   req->takes_mps};
        for (size_t j = 0; j < sizeof(parts) / sizeof(parts[0]); j++)
            hash = mix_hash(hash, parts[j]);
        if (pod->draws) /* which are by container */
            hash = state_hash(hash, req->container);
    }
    for (size_t i = 0; i < s->nselectors; i++)
        hash = mix_hash(hash, s->selectors[i].key(s->selectors[i].self, pod));
    for (const struct state_draw *d = pod->draws; d; d = d->next)
        hash = state_hash(state_hash(hash, d->container), d->id);
    if (s->reserved && state_reserved_find(s, pod->uid))
        hash = state_hash(hash, pod->uid);
    hash = state_hash(hash, plan->policy.name);
    hash = mix_hash(hash, (uint64_t) (uintptr_t) plan->policy.card_cost);
    hash = mix_hash(hash, (uint64_t) plan->topology << 1 | plan->numa_bind);
    hash = mix_hash(mix_hash(mix_hash(hash, plan->cpu), plan->memory), plan->models);
    hash = mix_hash(hash, s->model ? place_model_epoch(s->model) : 0) & ~UINT64_C(1);
    if (uses_equivalence(s, pod))
        return hash | 1;
    return hash ? hash : 2;
}

/* ---- by which policy ---- */

static struct state_namespace *namespace_find(const struct state *s, const char *name) {
    struct state_namespace *ns;
    HASH_FIND_STR(s->namespaces, name, ns);
    return ns;
}

static void copy_name(char to[static POLICY_NAME_MAX], const char *from) {
    size_t len = from ? strnlen(from, POLICY_NAME_MAX - 1) : 0;
    if (len > 0)
        memcpy(to, from, len);
    to[len] = '\0';
}

int state_namespace_policy(struct state *s, const char *name, const char *node_policy,
                           const char *card_policy) {
    struct state_namespace *ns = namespace_find(s, name);
    bool any = (node_policy && *node_policy) || (card_policy && *card_policy);
    if (!any) {
        if (ns)
            HASH_DEL(s->namespaces, ns);
        free(ns);
        return 0;
    }
    if (!ns) {
        if (strlen(name) >= sizeof(ns->name) || !(ns = calloc(1, sizeof(*ns))))
            return -ENOMEM;
        memcpy(ns->name, name, strlen(name) + 1);
        HASH_ADD_STR(s->namespaces, name, ns);
        if (!(ns = hash_added_or_freed(ns)))
            return -ENOMEM;
    }
    copy_name(ns->node_policy, node_policy);
    copy_name(ns->card_policy, card_policy);
    ns->listed = true;
    return 0;
}

void state_namespaces_unlisted(struct state *s) {
    struct state_namespace *ns, *next;
    HASH_ITER(hh, s->namespaces, ns, next)
        if (!ns->listed)
            (void) state_namespace_policy(s, ns->name, NULL, NULL);
}

static const struct place_policy *first_named(const char *pod, const struct place_policy *class,
                                              const char *ns,
                                              const struct place_policy *otherwise) {
    const struct place_policy *found = pod && *pod ? place_policy_find(pod) : NULL;
    if (!found)
        found = class;
    if (!found && ns && *ns)
        found = place_policy_find(ns);
    return found ? found : otherwise;
}

/* The pod's own, or its class's, or its namespace's, or the default; one for nodes and one for
 * cards. */
static struct place_policy policy_of(const struct state *s, const struct state_pod *pod) {
    const struct gpu_selection *own = pod->selection;
    const struct state_namespace *ns = namespace_find(s, pod->namespace);
    const struct place_policy *node = first_named(own ? own->node_policy : NULL, pod->class_policy,
                                                  ns ? ns->node_policy : NULL, s->policy);
    const struct place_policy *card = first_named(own ? own->card_policy : NULL, pod->class_policy,
                                                  ns ? ns->card_policy : NULL, s->policy);
    struct place_policy mixed = *node;
    mixed.card_cost = card->card_cost;
    return mixed;
}

void state_plan(const struct state *s, const struct state_pod *pod, struct gpu_request *request,
                struct place_plan *plan) {
    const struct gpu_selection *selection = pod->selection;
    state_pod_request(pod, request);
    place_prepare(request, plan);
    plan->policy = policy_of(s, pod);
    plan->cpu = pod->room.cpu;
    plan->memory = pod->room.memory;
    plan->models = state_models_of(s, selection);
    plan->model = s->model;
    if (s->model)
        place_model_allow(s->model, PLACE_MODEL_STATES);
    if (selection) {
        plan->topology = selection->topology;
        plan->numa_bind = selection->numa_bind;
    }
    plan->shape = shape_of(s, pod, request, plan);
}

/* ---- which cards it may take ---- */

static uint64_t selection_key(void *self, const struct state_pod *pod) {
    (void) self;
    return pod->selection ? selection_hash(pod->selection) : 0;
}

static bool selection_allow(void *self, const struct state_pod *pod, const struct state_node *node,
                            uint64_t allowed[static GPU_CONTAINERS_MAX]) {
    uint64_t fit = 0;
    (void) self;
    if (!pod->selection)
        return true;
    for (uint32_t c = 0; c < node->ncards; c++)
        if (selection_model(pod->selection, node->cards[c]->model) &&
            selection_uuid(pod->selection, node->cards[c]->uuid) &&
            selection_index(pod->selection, node->cards[c]->index))
            fit |= UINT64_C(1) << c;
    for (uint32_t i = 0; i < pod->ncontainers; i++)
        allowed[i] &= fit;
    return fit != 0;
}

const struct state_selector state_selection = {"selection", PLACE_WRONG_GPU, NULL, selection_key,
                                               selection_allow};

int state_add_selector(struct state *s, const struct state_selector *selector) {
    if (s->nselectors == STATE_SELECTORS_MAX)
        return -ENOSPC;
    s->selectors[s->nselectors++] = *selector;
    return 0;
}

/* Whether each container has as many cards left to choose from as it wants. */
static bool enough_left(const struct state_pod *pod, const struct state_node *node,
                        const uint64_t *allowed) {
    uint64_t all = node->ncards < 64 ? (UINT64_C(1) << node->ncards) - 1 : UINT64_MAX;
    for (uint32_t i = 0; i < pod->ncontainers; i++)
        if ((uint32_t) __builtin_popcountll(allowed[i] & all) < pod->containers[i].cards)
            return false;
    return true;
}

static enum place_reason select_cards(const struct state *s, const struct state_node *node,
                                      const struct state_pod *pod, struct state_view *view) {
    for (uint32_t i = 0; i < GPU_CONTAINERS_MAX; i++)
        view->allowed[i] = UINT64_MAX;
    for (size_t i = 0; pod && i < s->nselectors; i++) {
        const struct state_selector *sel = &s->selectors[i];
        bool could = enough_left(pod, node, view->allowed);
        if (!sel->allow(sel->self, pod, node, view->allowed) ||
            (could && !enough_left(pod, node, view->allowed)))
            return sel->reason;
    }
    view->node.allowed = view->allowed;
    return PLACE_OK;
}

enum place_reason state_view(struct state *s, struct state_node *node, const struct state_pod *self,
                             bool settled_only, struct state_view *ret) {
    enum place_reason absent = state_node_absent(node);
    if (absent != PLACE_OK)
        return absent;
    state_refresh(s, node);
    ret->node = state_place_node(node);
    if (self && self->node == node) {
        ret->node.cpu_free += self->room.cpu;
        ret->node.memory_free += self->room.memory;
    }
    bool draws = self && state_draws_here(s, self, node);
    if (settled_only || draws || (self && self->node == node)) {
        state_count(node, self, settled_only, ret->cards);
        ret->node.cards = ret->cards;
    }
    if (draws) {
        ret->node.ndraws = state_list_draws(self, node, settled_only, ret->draws);
        ret->node.draws = ret->draws;
    }
    return node->ncards > 0 ? select_cards(s, node, self, ret) : PLACE_OK;
}

/* ---- placing ---- */

enum place_reason state_place(struct state *s, struct place_plan *plan, struct state_node *node,
                              const struct state_pod *self, bool settled_only,
                              struct place_result *ret) {
    struct state_view view;
    enum place_reason reason = state_view(s, node, self, settled_only, &view);
    return reason == PLACE_OK ? place_on_node(&plan->policy, plan, &view.node, ret) : reason;
}

/* Where the verdict on requests of that shape may be. */
static struct state_verdict *verdict_set(struct state_verdicts *verdicts, uint64_t shape) {
    uint64_t set = (shape >> 32) % (STATE_VERDICTS / STATE_VERDICT_SET);
    return &verdicts->of[set * STATE_VERDICT_SET];
}

/* Whether a better verdict can be had now. */
static bool is_outdated(const struct state *s, const struct state_verdict *v) {
    return v->worth.rough && s->model && place_model_has_time(s->model);
}

static uint64_t short_estimates(const struct state *s) {
    return s->model ? place_model_short_estimates(s->model) : 0;
}

void state_judge_soon(const struct state_head *head, const struct place_plan *plan) {
    uint64_t set = (plan->shape >> 32) % (STATE_VERDICTS / STATE_VERDICT_SET);
    const struct state_verdicts *verdicts =
        equivalence_applies(plan, head) ? &head->equivalence->verdicts : &head->node->verdicts;
    const char *from = (const char *) &verdicts->of[set * STATE_VERDICT_SET];
    __builtin_prefetch(from);
    __builtin_prefetch(from + 64);
    __builtin_prefetch(from + 128);
}

/* As state_judge(); `verdicts` is where the verdict is kept, NULL: nowhere. */
static enum place_reason judge_anew(struct state *s, struct place_plan *plan,
                                    struct state_head *head, const struct state_pod *self,
                                    struct state_verdicts *verdicts, int64_t *ret_score) {
    struct place_result result;
    uint64_t estimates = short_estimates(s);
    enum place_reason reason = state_place(s, plan, head->node, self, false, &result);
    if (reason != PLACE_OK) {
        result.worth = (struct place_worth){0};
        result.score = 0;
    }
    result.worth.rough = short_estimates(s) != estimates;
    *ret_score = result.score;
    bool searched = reason == PLACE_NOT_TOGETHER || reason == PLACE_NOT_LINKED;
    bool certain = !searched || plan->effort > 0;
    if (verdicts && certain)
        verdict_set(verdicts, plan->shape)[verdicts->next++ % STATE_VERDICT_SET] =
            (struct state_verdict){plan->shape,
                                   equivalence_applies(plan, head) ? 0 : head->node->version,
                                   result.worth, reason};
    return reason;
}

enum place_reason state_judge(struct state *s, struct place_plan *plan, struct state_head *head,
                              const struct state_pod *self, int64_t *ret_score) {
    *ret_score = 0;
    if (s->ranks_dirty || head->dirty)
        state_refresh(s, head->node);
    if (head->absence != PLACE_OK && state_node_absent(head->node) != PLACE_OK)
        return head->absence; /* which is not part of the class */
    if (self && self->node == head->node)
        return judge_anew(s, plan, head, self, NULL, ret_score);
    bool by_class = equivalence_applies(plan, head);
    struct state_verdicts *verdicts =
        by_class ? &head->equivalence->verdicts : &head->node->verdicts;
    uint64_t version = by_class ? 0 : head->node->version;
    struct state_verdict *set = verdict_set(verdicts, plan->shape);
    for (uint32_t i = 0; i < STATE_VERDICT_SET; i++) {
        struct state_verdict *v = &set[i];
        if (v->shape == plan->shape && v->version == version) {
            if (is_outdated(s, v)) {
                v->shape = 0;
                break;
            }
            if (v->reason == PLACE_OK)
                *ret_score = place_score(&plan->policy, plan, &v->worth, head->rank);
            return v->reason;
        }
    }
    return judge_anew(s, plan, head, self, verdicts, ret_score);
}
