/* SPDX-License-Identifier: Apache-2.0 */

/* Feeds the workload model, see place/workload/workload_model.h. */

#include <string.h>

#include "place/workload/workload_model.h"
#include "scheduler/state/state_internal.h"

uint32_t state_model_id(struct state *s, const char *model) {
    if (*model == '\0' || strlen(model) >= sizeof(s->models[0]))
        return 0;
    for (uint32_t i = 1; i <= s->nmodels; i++)
        if (strcmp(s->models[i], model) == 0)
            return i;
    if (s->nmodels + 1 == STATE_MODELS_MAX)
        return 0;
    memcpy(s->models[++s->nmodels], model, strlen(model) + 1);
    return s->nmodels;
}

/* ---- pods ---- */

static void plan_of(struct state *s, const struct state_pod *pod, struct gpu_request *request,
                    struct place_plan *plan) {
    state_pod_request(pod, request);
    place_prepare(request, plan);
    plan->cpu = pod->room.cpu;
    plan->memory = pod->room.memory;
    plan->models = state_models_of(s, pod->selection);
    plan->model = s->model;
}

static bool is_new(struct state *s, int64_t created) {
    if (!s->model || (created != 0 && created <= s->model_since))
        return false;
    if (created > s->arrived_until)
        s->arrived_until = created;
    s->arrived++;
    return true;
}

void state_learn_arrival(struct state *s, const struct state_pod *pod) {
    struct gpu_request request;
    struct place_plan plan;
    if (pod->problem != REQUEST_OK || !is_new(s, pod->created))
        return;
    plan_of(s, pod, &request, &plan);
    place_model_arrive(s->model, &plan);
}

void state_learn_load(struct state *s, const struct state_load *load) {
    struct gpu_request request = {.n = 0};
    struct place_plan plan;
    if (!is_new(s, load->created))
        return;
    place_prepare(&request, &plan);
    plan.cpu = load->room.cpu;
    plan.memory = load->room.memory;
    place_model_arrive(s->model, &plan);
}

void state_learn_start(struct state *s, struct state_pod *pod) {
    struct gpu_request request;
    struct place_plan plan;
    if (!s->model || pod->counted || pod->ncontainers == 0 || pod->nallocations == 0)
        return;
    plan_of(s, pod, &request, &plan);
    place_model_start(s->model, &plan);
    pod->counted = true;
}

void state_learn_end(struct state *s, struct state_pod *pod) {
    struct gpu_request request;
    struct place_plan plan;
    if (!s->model || !pod->counted)
        return;
    plan_of(s, pod, &request, &plan);
    place_model_end(s->model, &plan);
    pod->counted = false;
}

/* ---- nodes ---- */

static void number(struct state *s, struct state_node *node) {
    for (uint32_t i = 0; i < STATE_NODE_IDS / 64; i++)
        if (s->node_ids[i] != UINT64_MAX) {
            uint32_t bit = (uint32_t) __builtin_ctzll(~s->node_ids[i]);
            s->node_ids[i] |= UINT64_C(1) << bit;
            node->id = i * 64 + bit;
            node->numbered = true;
            return;
        }
}

void state_learn_node(struct state *s, struct state_node *node, bool gone) {
    if (!s->model || (!node->numbered && (gone || node->ncards == 0)))
        return;
    if (gone) {
        place_model_node(s->model, node->id, NULL);
        s->node_ids[node->id / 64] &= ~(UINT64_C(1) << node->id % 64);
        node->numbered = false;
        return;
    }
    if (!node->numbered)
        number(s, node);
    struct place_node view = state_place_node(node);
    if (node->numbered)
        place_model_node(s->model, node->id, node->ncards > 0 ? &view : NULL);
}
