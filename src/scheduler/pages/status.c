/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "kube/objects/signing.h"
#include "scheduler/pages/pages.h"
#include "wire/json_write.h"

#define REASONS_MAX 100 /* nodes listed per waiting pod */

static void write_allocations(struct json_writer *w, const struct state_pod *pod) {
    json_array_begin(w, "holds");
    for (uint32_t i = 0; i < pod->nallocations; i++) {
        const struct state_allocation *allocation = &pod->allocations[i];
        json_object_begin(w, NULL);
        const struct assigned_device *d = &allocation->device;
        json_put(w, "container", allocation->container, "gpu", d->index, "uuid", d->uuid, "core",
                 d->core, "memory", d->memory);
        json_object_end(w);
    }
    json_array_end(w);
}

/* Why filter would reject each node for a waiting pod now. */
static void write_reasons(struct json_writer *w, struct scheduler *s, const struct state_pod *pod) {
    struct gpu_request request;
    struct place_plan plan;
    unsigned shown = 0;
    state_plan(s->state, pod, &request, &plan);
    json_object_begin(w, "nodes");
    for (struct state_node *node = s->state->nodes; node && shown < REASONS_MAX;
         node = node->hh.next) {
        struct place_result result;
        if (node->ncards == 0)
            continue;
        enum place_reason reason = state_place(s->state, &plan, node, pod, false, &result);
        json_put_string(w, node->name, place_reason_text(reason));
        shown++;
    }
    json_object_end(w);
}

static void write_pod(struct json_writer *w, struct scheduler *s, const struct state_pod *pod) {
    json_object_begin(w, NULL);
    json_put_string(w, "uid", pod->uid);
    json_put_string(w, "namespace", pod->namespace);
    json_put_string(w, "pod", pod->name);
    json_put_string(w, "stage", state_stage_name(pod->stage));
    json_put_string(w, "node", pod->node ? pod->node->name : NULL);
    json_put_u64(w, "ageMilliseconds", scheduler_now(s) - pod->since_ms);
    if (pod->problem != REQUEST_OK)
        json_put_string(w, "problem", request_problem_text(pod->problem, pod->mixed));
    if (pod->stage == POD_PENDING && pod->problem == REQUEST_OK)
        write_reasons(w, s, pod);
    write_allocations(w, pod);
    json_object_end(w);
}

static void write_card(struct json_writer *w, const struct state_card *card,
                       const struct place_card *place) {
    json_object_begin(w, NULL);
    json_put(w, "name", card->name, "index", card->index, "uuid", card->uuid, "model", card->model);
    json_put(w, "healthy", place->healthy, "overcommitted", card->overcommitted, "memory",
             card->memory, "freeCore", place->free.core, "freeMemory", place->free.memory,
             "unattributed", card->unattributed);
    json_object_end(w);
}

static void write_node(struct json_writer *w, const struct state_node *node) {
    json_object_begin(w, NULL);
    json_put_string(w, "name", node->name);
    json_put_bool(w, "exists", node->exists);
    json_array_begin(w, "gpus");
    for (uint32_t i = 0; i < node->ncards; i++)
        write_card(w, node->cards[i], &node->place[i]);
    json_array_end(w);
    json_object_end(w);
}

/* Agents have to find it in ConfigMap aliquot-signing. */
static void write_public_key(struct json_writer *w, const struct signing_key *key) {
    _cleanup_buf_ struct buf pem = BUF_INIT(4096);
    if (key && signing_key_public(key, &pem, NULL) == 0 && buf_error(&pem) == 0)
        json_put_string(w, "publicKey", buf_str(&pem));
}

void scheduler_write_status(struct scheduler *s, struct buf *out) {
    struct json_writer w = {.out = out};
    state_refresh_all(s->state);
    json_object_begin(&w, NULL);
    json_put_string(&w, "version", ALIQUOT_VERSION);
    json_put_bool(&w, "ready", scheduler_answers(s));
    json_put_bool(&w, "acts", scheduler_leads(s));
    json_put_string(&w, "policy", s->state->policy->name);
    write_public_key(&w, s->key);
    json_array_begin(&w, "nodes");
    for (struct state_node *node = s->state->nodes; node; node = node->hh.next)
        if (node->ncards > 0)
            write_node(&w, node);
    json_array_end(&w);
    json_array_begin(&w, "pods");
    for (const struct state_pod *pod = s->state->pods; pod; pod = pod->hh.next)
        write_pod(&w, s, pod);
    json_array_end(&w);
    json_object_end(&w);
}
