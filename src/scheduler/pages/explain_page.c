/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "scheduler/extender/explain.h"
#include "scheduler/pages/pages.h"
#include "wire/json_write.h"

/* The page /explain: why filter would reject each node for a pod now. */

static const struct state_pod *find_pod(const struct state *s, const char *namespace,
                                        const char *name) {
    for (const struct state_pod *pod = s->pods; pod; pod = pod->hh.next)
        if (strcmp(pod->namespace, namespace) == 0 && strcmp(pod->name, name) == 0)
            return pod;
    return NULL;
}

static void write_kept(struct json_writer *w, const struct state_node *node, uint32_t card) {
    json_array_begin(w, "kept");
    for (const struct state_reserved *kept = node->reserved; kept; kept = kept->next) {
        const struct place_amount rest = state_reserved_rest(kept, card, false);
        char keeper[STATE_KEEPER_MAX];
        if (rest.core == 0 && rest.memory == 0)
            continue;
        json_object_begin(w, NULL);
        state_reserved_keeper(kept, keeper);
        json_put_string(w, "for", keeper);
        json_put_u64(w, "core", rest.core);
        json_put_u64(w, "memory", rest.memory);
        json_object_end(w);
    }
    json_array_end(w);
}

static void write_gpus(struct json_writer *w, const struct state_node *node) {
    json_array_begin(w, "gpus");
    for (uint32_t i = 0; i < node->ncards; i++) {
        json_object_begin(w, NULL);
        json_put_u64(w, "index", node->cards[i]->index);
        if (node->cards[i]->profile[0])
            json_put_string(w, "profile", node->cards[i]->profile);
        json_put_bool(w, "healthy", node->place[i].healthy);
        json_put_u64(w, "freeCore", node->place[i].free.core);
        json_put_u64(w, "freeMemory", node->place[i].free.memory);
        if (node->place[i].mps_only)
            json_put_bool(w, "mpsOnly", true);
        json_put_u64(w, "unattributed", node->cards[i]->unattributed);
        write_kept(w, node, i);
        json_object_end(w);
    }
    json_array_end(w);
}

/* What a claim requests is not known before it is bound. */
static bool is_known(const struct state_pod *pod) {
    for (uint32_t i = 0; i < pod->ncontainers; i++) {
        const struct container_request *req = &pod->containers[i];
        if (req->claimed && req->cards > 0 && !req->whole && req->core == 0 && req->memory == 0)
            return false;
    }
    return true;
}

/* Returns how many nodes fit. */
static uint64_t write_nodes(struct json_writer *w, struct scheduler *s, const struct state_pod *pod,
                            struct place_plan *plan) {
    uint64_t fitting = 0, without = 0;
    int64_t score;
    json_array_begin(w, "nodes");
    for (struct state_node *node = s->state->nodes; node; node = node->hh.next) {
        if (node->ncards == 0 || !node->exists) {
            without += node->exists;
            continue;
        }
        enum place_reason reason = state_judge(s->state, plan, node->head, pod, &score);
        fitting += reason == PLACE_OK;
        json_object_begin(w, NULL);
        json_put_string(w, "name", node->name);
        json_put_bool(w, "fits", reason == PLACE_OK);
        json_put_string(w, "reason", place_reason_text(reason));
        write_gpus(w, node);
        json_object_end(w);
    }
    json_array_end(w);
    json_put_u64(w, "nodesThatFit", fitting);
    json_put_u64(w, "nodesWithoutGPU", without);
    return fitting;
}

/* A node that takes the pod when enough others have ended. */
static bool is_full(struct scheduler *s, const struct state_pod *pod, struct state_node *node) {
    int64_t score;
    if (node->ncards == 0 || !node->exists)
        return false;
    return !place_reason_is_final(state_judge(s->state, &s->preempt.plan, node->head, pod, &score));
}

/* Pods whose end makes room for the pod, on the node where the fewest have to: the fewest where few
 * pods have cards there (victims.h). Null where no end was found that does. */
static void write_ends(struct json_writer *w, struct scheduler *s, const struct state_pod *pod) {
    struct evict_plan best = {.node = NULL};
    uint32_t tests = PREEMPT_TESTS;
    state_plan(s->state, pod, &s->preempt.request, &s->preempt.plan);
    for (struct state_node *node = s->state->nodes; node && tests > 0; node = node->hh.next) {
        if (!is_full(s, pod, node))
            continue;
        const struct evict_plan plan = preempt_would_have_to_end(&s->preempt, pod, node, &tests);
        if (plan.node && (!best.node || plan.nvictims < best.nvictims))
            best = plan;
    }
    if (tests == 0)
        json_put_bool(w, "cutShort", true);
    if (!best.node) {
        json_put_null(w, "ends");
        return;
    }
    json_object_begin(w, "ends");
    json_put_string(w, "node", best.node->name);
    json_array_begin(w, "pods");
    for (uint32_t i = 0; i < best.nvictims; i++) {
        json_object_begin(w, NULL);
        json_put_string(w, "namespace", best.victims[i]->namespace);
        json_put_string(w, "name", best.victims[i]->name);
        json_object_end(w);
    }
    json_array_end(w);
    json_object_end(w);
}

/* Checks the gates only for a pod that one has refused: a check can make assumed allocations. */
static void write_held(struct json_writer *w, struct scheduler *s, struct state_pod *pod) {
    _cleanup_buf_ struct buf why = BUF_INIT(GATE_WHY_MAX);
    if (pod->requeue.gated && gates_closed(&s->gates, pod, scheduler_now(s), &why))
        json_put_string(w, "held", buf_str(&why));
}

/* Why the ResourceClaims of a pod wait that requests nothing else. */
static bool write_claims_only(struct json_writer *w, const char *claims) {
    if (!claims)
        return false;
    json_object_begin(w, NULL);
    json_put_string(w, "wants", "what its ResourceClaims request");
    json_put_string(w, "claims", claims[0] ? claims : NULL);
    json_object_end(w);
    return true;
}

bool scheduler_write_explanation(struct scheduler *s, const char *namespace, const char *name,
                                 struct buf *out) {
    struct json_writer w = {.out = out};
    const struct state_pod *found = find_pod(s->state, namespace, name);
    struct state_pod *pod = found ? state_pod_find(s->state, found->uid) : NULL;
    const char *claims = dra_why(&s->dra, namespace, name);
    char wants[EXPLAIN_MAX];
    struct gpu_request request;
    struct place_plan plan;
    if (!pod)
        return write_claims_only(&w, claims);
    state_refresh_all(s->state);
    json_object_begin(&w, NULL);
    json_put_string(&w, "uid", pod->uid);
    json_put_string(&w, "node", pod->node ? pod->node->name : NULL);
    if (pod->foreign.scheduler)
        json_put_string(&w, "foreignScheduler", pod->foreign.scheduler);
    if (pod->problem != REQUEST_OK) {
        json_put_string(&w, "wants", request_problem_text(pod->problem, pod->mixed));
    } else {
        write_held(&w, s, pod);
        state_plan(s->state, pod, &request, &plan);
        if (is_known(pod) && write_nodes(&w, s, pod, &plan) == 0 && !pod->node)
            write_ends(&w, s, pod);
        explain_wants(&request, wants);
        json_put_string(&w, "wants", wants);
    }
    if (claims && claims[0])
        json_put_string(&w, "claims", claims);
    json_object_end(&w);
    return true;
}
