/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* scheduler-world.h with quotas and gangs. */

#include "scheduler-world.h"

#include "kube/objects/gang.h"
#include "kube/objects/quota_object.h"
#include "scheduler/daemon/requeue.h"
#include "scheduler/gates/gang.h"
#include "scheduler/gates/quota.h"
#include "scheduler/state/namespace_usage.h"

/* The scheduler of scheduler-world.h with gates. */
struct governed {
    struct world *w;
    struct gates gates;
    struct quotas quotas;
    struct gangs gangs;
    struct requeue requeue;
    char told[1024]; /* the last Event of gangs */
    int tellings;
};

static inline void on_told(struct state_pod *pod, const char *reason, uint64_t key,
                           const char *message, void *userdata) {
    struct governed *g = userdata;
    (void) pod, (void) key;
    snprintf(g->told, sizeof(g->told), "%s: %s", reason, message);
    g->tellings++;
}

static inline void govern(struct governed *g, struct world *w) {
    const struct api api = {fake_request, w};
    *g = (struct governed){.w = w};
    g->quotas = (struct quotas){.state = w->state};
    g->gangs =
        (struct gangs){.state = w->state, .gates = &g->gates, .refuse = on_told, .userdata = g};
    g->gates.rows[g->gates.n++] = (struct gate){"quota", &g->quotas, quotas_open};
    g->gates.rows[g->gates.n++] = (struct gate){"gang", &g->gangs, gangs_open};
    g->requeue =
        (struct requeue){.state = w->state, .api = api, .gates = &g->gates, .name_space = "s"};
    w->extender.gates = w->binder.gates = &g->gates;
}

static inline void ungovern(struct governed *g) {
    quotas_done(&g->quotas);
    gangs_done(&g->gangs);
    g->w->extender.gates = g->w->binder.gates = NULL;
}

/* ---- objects ---- */

static inline void parse(struct world *w, const char *text, struct json *ret) {
    struct err err;
    assert_int_equal(json_parse(w->parser, text, strlen(text), ret, &err), 0);
}

#define CORES(n) "\"elasticgpu.io/gpu-core\":" #n
#define GIBS(n) "\"elasticgpu.io/gpu-memory\":\"" #n "Gi\""

static inline void show_quota(struct governed *g, const char *namespace, const char *name,
                              const char *spec) {
    struct json object;
    struct quota_object quota;
    struct err err;
    char text[1024];
    snprintf(text, sizeof(text),
             "{\"metadata\":{\"name\":\"%s\",\"namespace\":\"%s\"},\"spec\":{%s}}", name, namespace,
             spec);
    parse(g->w, text, &object);
    assert_int_equal(quota_object_parse(object, &quota, &err), 0);
    assert_int_equal(quotas_seen(&g->quotas, QUOTA_OF_OURS, &quota), 0);
}

static inline void show_resource_quota(struct governed *g, const char *namespace,
                                       const char *spec) {
    struct json object;
    struct quota_object quota;
    struct err err;
    char text[1024];
    snprintf(text, sizeof(text),
             "{\"metadata\":{\"name\":\"q\",\"namespace\":\"%s\"},\"spec\":{%s}}", namespace, spec);
    parse(g->w, text, &object);
    assert_int_equal(resource_quota_parse(object, &quota, &err), 0);
    assert_int_equal(quotas_seen(&g->quotas, QUOTA_OF_KUBERNETES, &quota), 0);
}

/* A pending pod of any namespace. */
static inline void put_any(struct buf *out, const char *namespace, const char *uid,
                           const char *resources, const char *annotations, const char *created) {
    buf_printf(out,
               "{\"metadata\":{\"name\":\"pod-%s\",\"namespace\":\"%s\",\"uid\":\"%s\","
               "\"creationTimestamp\":\"%s\",\"annotations\":{%s}},\"spec\":{\"containers\":[{"
               "\"name\":\"main\",\"resources\":{\"limits\":{%s}}}]},\"status\":{}}",
               uid, namespace, uid, created, annotations, resources);
}

#define EPOCH "2026-01-01T00:00:00Z"

static inline void arrive(struct world *w, const char *namespace, const char *uid,
                          const char *resources, const char *annotations) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    put_any(&text, namespace, uid, resources, annotations, EPOCH);
    show_text(w, buf_str(&text));
}

#define CONTAINER(name, limits) "{\"name\":\"" name "\",\"resources\":{\"limits\":{" limits "}}}"
#define SIDECAR(name, limits)                                                                      \
    "{\"name\":\"" name "\",\"restartPolicy\":\"Always\",\"resources\":{\"limits\":{" limits "}}}"
#define CORE(n) "\"elasticgpu.io/gpu-core\":\"" #n "\""
/* So many cards, 1 GiB and a percentage of the compute of each. */
#define CARDS(n, percent)                                                                          \
    "\"nvidia.com/gpu\":\"" #n "\",\"nvidia.com/gpumem\":\"1024\",\"nvidia.com/gpucores\":"        \
    "\"" #percent "\",\"elasticgpu.io/slot\":\"1\""

/* A pending pod with any containers. */
static inline struct state_pod *arrive_with(struct world *w, const char *namespace, const char *uid,
                                            const char *init, const char *containers,
                                            const char *annotations) {
    char text[2048];
    snprintf(text, sizeof(text),
             "{\"metadata\":{\"name\":\"pod-%s\",\"namespace\":\"%s\",\"uid\":\"%s\","
             "\"creationTimestamp\":\"" EPOCH "\",\"annotations\":{%s}},"
             "\"spec\":{\"initContainers\":[%s],\"containers\":[%s]},\"status\":{}}",
             uid, namespace, uid, annotations, init, containers);
    show_text(w, text);
    struct state_pod *pod = state_pod_find(w->state, uid);
    assert_int_equal(pod->problem, REQUEST_OK);
    return pod;
}

/* As filter() of the world, for a pod that arrive() has shown, on nodes "n" and "m". */
static inline const char *ask(struct world *w, const char *namespace, const char *uid,
                              const char *resources, const char *annotations) {
    static char out[2048];
    _cleanup_buf_ struct buf body = BUF_INIT(0), answer = BUF_INIT(0);
    struct json root, value;
    buf_puts(&body, "{\"Pod\":");
    put_any(&body, namespace, uid, resources, annotations, EPOCH);
    buf_puts(&body, ",\"NodeNames\":[\"n\",\"m\"]}");
    extender_filter(&w->extender, body.data, body.len, w->now, &answer);
    assert_int_equal(json_parse(w->parser, answer.data, answer.len, &root, NULL), 0);
    const char *error = json_string(json_get(root, "Error"));
    struct json_iter it = json_iter(json_get(root, "NodeNames"));
    if (error && *error)
        snprintf(out, sizeof(out), "!%s", error);
    else if (json_next(&it, NULL, &value))
        snprintf(out, sizeof(out), "%s", "fits");
    else {
        it = json_iter(json_get(root, "FailedAndUnresolvableNodes"));
        if (!json_next(&it, NULL, &value)) {
            it = json_iter(json_get(root, "FailedNodes"));
            assert_true(json_next(&it, NULL, &value));
        }
        snprintf(out, sizeof(out), "-%s", uncounted(json_string(value)));
    }
    return out;
}

/* Has the pod hold its request on node "n", as a Binding would. */
static inline const char *hold(struct world *w, const char *namespace, const char *uid,
                               const char *resources) {
    arrive(w, namespace, uid, resources, "");
    const char *answer = ask(w, namespace, uid, resources, "");
    struct state_pod *pod = state_pod_find(w->state, uid);
    if (strcmp(answer, "fits") != 0)
        return answer;
    struct gpu_request request;
    struct place_plan plan;
    struct place_result result;
    state_plan(w->state, pod, &request, &plan);
    assert_int_equal(
        state_place(w->state, &plan, state_node_find(w->state, "n"), pod, false, &result),
        PLACE_OK);
    assert_int_equal(
        state_allocate(w->state, pod, state_node_find(w->state, "n"), &result, POD_BINDING, w->now),
        0);
    return answer;
}

static inline uint64_t rnd(uint64_t *seed) {
    *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return *seed >> 33;
}
