/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The claims of a scheduler whose watches, clock and API server are the test's. */

#include "scheduler-world.h"

#include "scheduler/elastic/elastic.h"

#define SLOT "\"elasticgpu.io/slot\":\"1\""
#define USES(claim) "\"egpuc.elasticgpu.io/main\":\"" claim "\""
#define META(name, rv)                                                                             \
    "\"metadata\":{\"name\":\"" name "\",\"uid\":\"u-" name "\",\"resourceVersion\":\"" rv "\""
#define GUARD ",\"finalizers\":[\"elasticgpu.io/claim-protection\"]"
#define EGPU_GUARD ",\"finalizers\":[\"elasticgpu.io/gpu-protection\"]"
#define REQUESTS                                                                                   \
    "\"resources\":{\"requests\":{\"elasticgpu.io/gpu-core\":10,\"elasticgpu.io/gpu-memory\":"     \
    "\"4Gi\"}}"
#define CLAIM(rv, notes, spec, status)                                                             \
    "{" META("c", rv) ",\"namespace\":\"d\"" GUARD notes "},\"spec\":{\"elasticGPUClassName\":"    \
                      "\"k\"," REQUESTS spec "}" status "}"
#define EGPU(rv, card, status)                                                                     \
    "{" META("egpu-u-c", rv) EGPU_GUARD                                                            \
        ",\"annotations\":{\"elasticgpu.io/provisioned-by\":\"elasticgpu.io/qgpu\"}},\"spec\":{"   \
        "\"capacity\":{\"elasticgpu.io/gpu-core\":\"10\",\"elasticgpu.io/gpu-memory\":\"4Gi\"},"   \
        "\"qGPU\":{\"gpuName\":\"" card "\"},\"claimRef\":{\"namespace\":\"d\",\"name\":\"c\","    \
        "\"uid\":\"u-c\"}}" status "}"
#define BOUND_CLAIM(rv)                                                                            \
    CLAIM(rv, ",\"annotations\":{\"elasticgpu.io/bind-completed\":\"yes\"}",                       \
          ",\"elasticGPUName\":\"egpu-u-c\"", ",\"status\":{\"phase\":\"Bound\"}")

#define DELETED_CLAIM(rv)                                                                          \
    CLAIM(rv,                                                                                      \
          ",\"deletionTimestamp\":\"2026-01-01T00:00:00Z\",\"annotations\":{"                      \
          "\"elasticgpu.io/bind-completed\":\"yes\"}",                                             \
          ",\"elasticGPUName\":\"egpu-u-c\"", ",\"status\":{\"phase\":\"Bound\"}")

#define PHASE(name) ",\"status\":{\"phase\":\"" name "\"}"

#define GROWING_CLAIM(rv)                                                                          \
    CLAIM(rv, ",\"annotations\":{\"elasticgpu.io/bind-completed\":\"yes\"}",                       \
          ",\"elasticGPUName\":\"egpu-u-c\"",                                                      \
          ",\"status\":{\"phase\":\"Bound\",\"capacity\":{\"elasticgpu.io/gpu-core\":\"10\","      \
          "\"elasticgpu.io/gpu-memory\":\"4Gi\"}}")

#define GROWN_EGPU(rv)                                                                             \
    "{" META("egpu-u-c", rv) EGPU_GUARD                                                            \
        ",\"annotations\":{\"elasticgpu.io/provisioned-by\":\"elasticgpu.io/qgpu\"}},\"spec\":{"   \
        "\"capacity\":{\"elasticgpu.io/gpu-core\":\"30\",\"elasticgpu.io/gpu-memory\":\"8Gi\"},"   \
        "\"qGPU\":{\"gpuName\":\"n-01\"},\"claimRef\":{\"namespace\":\"d\",\"name\":\"c\","        \
        "\"uid\":\"u-c\"}},\"status\":{\"phase\":\"Bound\"}}"

struct elastic_world {
    struct world *w;
    struct elastic elastic;
    struct gates gates;
};

static inline uint64_t elastic_now(void *userdata) {
    return ((struct world *) userdata)->now;
}

static inline void changed(void *userdata) {
    (void) userdata;
}

static inline int begin(void **state) {
    struct elastic_world *e = calloc(1, sizeof(*e));
    void *w = NULL;
    (void) setup(&w);
    e->w = w;
    e->elastic = (struct elastic){.state = e->w->state,
                                  .api = {fake_request, w},
                                  .binder = &e->w->binder,
                                  .events = e->w->events,
                                  .now = elastic_now,
                                  .changed = changed,
                                  .userdata = w};
    assert_int_equal(elastic_init(&e->elastic), 0);
    e->gates.rows[e->gates.n++] = (struct gate){"claims", &e->elastic, elastic_gate_open};
    e->w->extender.gates = &e->gates;
    e->w->binder.gates = &e->gates;
    show_node(e->w, "n", 2);
    *state = e;
    return 0;
}

static inline int end(void **state) {
    struct elastic_world *e = *state;
    void *w = e->w;
    elastic_done(&e->elastic);
    free(e);
    return teardown(&w);
}

/* ---- what the watches show ---- */

static inline void see(struct elastic_world *e, enum claims_kind kind, const char *text) {
    struct json root;
    struct err err;
    assert_int_equal(json_parse(e->w->parser, text, strlen(text), &root, &err), 0);
    if (claims_seen(e->elastic.claims, kind, root, &err) < 0)
        fail_msg("%s", err.text);
}

static inline void see_pod_of(struct elastic_world *e, const char *uid, const char *resources,
                              const char *node, const char *annotations) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    struct json object;
    struct pod pod;
    struct err err;
    put_pod(&text, uid, resources, node, annotations, "Pending");
    assert_int_equal(json_parse(e->w->parser, text.data, text.len, &object, &err), 0);
    assert_int_equal(pod_parse(object, &pod, &err), 0);
    assert_int_equal(state_pod_seen(e->w->state, &pod, e->w->now), 0);
    elastic_pod(&e->elastic, pod.uid, &pod);
    pod_done(&pod);
}

static inline void see_pod(struct elastic_world *e, const char *uid, const char *node,
                           const char *annotations) {
    see_pod_of(e, uid, SLOT, node, annotations);
}

/* A pass; Events that come of it are taken for written. */
static inline void run(struct elastic_world *e) {
    e->w->now += 6000; /* past every hold-off */
    elastic_run(&e->elastic);
    for (size_t i = 0; i < e->w->nasked;)
        if (strstr(e->w->asked[i].path, "/events"))
            respond(e->w, i, 201, false, NULL);
        else
            i++;
}

/* The one request that is open is such a one; it is answered. */
static inline void answer(struct elastic_world *e, const char *method, const char *path,
                          const char *text, int status) {
    assert_int_equal(e->w->nasked, 1);
    assert_string_equal(e->w->asked[0].method, method);
    if (!strstr(e->w->asked[0].path, path) || !strstr(buf_str(&e->w->asked[0].body), text))
        fail_msg("%s %s: %s", method, e->w->asked[0].path, buf_str(&e->w->asked[0].body));
    respond(e->w, 0, status, false, NULL);
}

static inline void bind_by(struct elastic_world *e, const char *uid) {
    char body[512];
    snprintf(body, sizeof(body),
             "{\"PodName\":\"pod-%s\",\"PodNamespace\":\"d\",\"PodUID\":\"%s\",\"Node\":\"n\"}",
             uid, uid);
    snprintf(e->w->bind_answer, sizeof(e->w->bind_answer), "?");
    elastic_bind(&e->elastic, body, strlen(body), e->w);
}

static inline const char *ask(struct elastic_world *e, const char *uid) {
    e->w->annotations = USES("c");
    return filter(e->w, uid, SLOT, "\"n\"");
}

#define QGPU "{" META("k", "1") "},\"provisioner\":\"elasticgpu.io/qgpu\"}"
#define LATE                                                                                       \
    "{" META("k", "1") "},\"provisioner\":\"elasticgpu.io/qgpu\",\"bindingMode\":"                 \
                       "\"WaitForFirstConsumer\"}"

#define LATE_FOR_TWO                                                                               \
    "{" META("k", "1") "},\"provisioner\":\"elasticgpu.io/qgpu\",\"bindingMode\":"                 \
                       "\"WaitForFirstConsumer\",\"podsPerClaim\":2}"

/* Places a pod that uses the claim and shows it bound; `annotations` are what it has then. */
static inline void bind_user(struct elastic_world *e, const char *uid, struct buf *annotations) {
    see_pod(e, uid, NULL, USES("c"));
    assert_string_equal(ask(e, uid), "n");
    bind_by(e, uid);
    annotations_of(e->w, &e->w->asked[0], annotations);
    respond(e->w, 0, 201, false, NULL);
    buf_puts(annotations, "," USES("c"));
    see_pod(e, uid, "n", buf_str(annotations));
}

/* Another pod, with core of its own. */
static inline void bind_other(struct elastic_world *e, const char *uid, const char *core) {
    _cleanup_buf_ struct buf annotations = BUF_INIT(0);
    char limits[64];
    snprintf(limits, sizeof(limits), "\"elasticgpu.io/gpu-core\":\"%s\"", core);
    e->w->annotations = "";
    assert_string_equal(filter(e->w, uid, limits, "\"n\""), "n");
    bind_by(e, uid);
    annotations_of(e->w, &e->w->asked[0], &annotations);
    respond(e->w, 0, 201, false, NULL);
    show_pod(e->w, uid, limits, "n", buf_str(&annotations));
}
