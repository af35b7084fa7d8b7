/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A scheduler without network and clock: tests play kube-scheduler, the watches and the API server.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "kube/api/event_writer.h"
#include "scheduler/cluster/gpu_status.h"
#include "scheduler/extender/bind.h"
#include "scheduler/extender/extender.h"
#include "wire/json.h"

#define GIB ((uint64_t) 1 << 30)
#define REQUESTS_MAX 64

/* A request to the API server that has not been answered. */
struct asked {
    char method[8];
    char path[256];
    struct buf body;
    kube_response_cb callback;
    void *userdata;
};

/* One scheduler without network and clock. */
struct world {
    struct state *state;
    struct extender extender;
    struct binder binder;
    struct gpu_status gpu_status;
    struct event_writer *events;
    struct signing_key *key;
    struct signing_verifier *verifier;
    struct json_parser *parser;
    uint64_t now;
    const char *annotations; /* of pods that kube-scheduler asks about; NULL: none */
    bool ready;
    struct asked asked[REQUESTS_MAX];
    size_t nasked;
    char bind_answer[1024]; /* of the bind answered last */
    int binds_answered;
    char refusal[2048];
    uint64_t refusal_key;
    int refusals;
};

static inline int fake_request(void *context, const char *method, const char *path,
                               const char *content_type, const char *body, size_t size,
                               unsigned timeout_ms, kube_response_cb on_response, void *userdata,
                               struct err *err) {
    struct world *w = context;
    (void) content_type, (void) timeout_ms, (void) err;
    assert_in_range(w->nasked, 0, REQUESTS_MAX - 1);
    struct asked *a = &w->asked[w->nasked++];
    *a = (struct asked){.body = BUF_INIT(0), .callback = on_response, .userdata = userdata};
    snprintf(a->method, sizeof(a->method), "%s", method);
    snprintf(a->path, sizeof(a->path), "%s", path);
    buf_append(&a->body, body ? body : "", size);
    return 0;
}

/* Answers request i; the others move up. */
static inline void respond(struct world *w, size_t i, int status, bool maybe, const char *body) {
    assert_in_range(i, 0, w->nasked - 1);
    struct asked a = w->asked[i];
    struct json_parser *parser = json_parser_new();
    struct kube_response response = {.status = status,
                                     .maybe_applied = maybe,
                                     .text = status / 100 == 2 ? "" : "test",
                                     .reason = ""};
    memmove(&w->asked[i], &w->asked[i + 1], (w->nasked - i - 1) * sizeof(a));
    w->nasked--;
    if (body)
        assert_int_equal(json_parse(parser, body, strlen(body), &response.body, NULL), 0);
    a.callback(&response, a.userdata);
    json_parser_free(parser);
    buf_done(&a.body);
}

static inline uint64_t fake_now(void *userdata) {
    return ((struct world *) userdata)->now;
}

static inline bool fake_ready(void *userdata) {
    return ((struct world *) userdata)->ready;
}

static inline int fake_verify(const char *uid, const char *node, const char *text,
                              const char *signature, uint64_t *ret_signer, void *userdata) {
    struct err err;
    return assignment_signer(((struct world *) userdata)->verifier, uid, node, text, signature,
                             ret_signer, &err);
}

static inline void on_refusal(struct state_pod *pod, const char *reason, uint64_t key,
                              const char *message, void *userdata) {
    struct world *w = userdata;
    (void) pod;
    w->refusal_key = key;
    snprintf(w->refusal, sizeof(w->refusal), "%s: %s", reason, message);
    w->refusals++;
}

static inline void on_bind_done(const char *error, void *request) {
    struct world *w = request;
    snprintf(w->bind_answer, sizeof(w->bind_answer), "%s", error);
    w->binds_answered++;
}

static inline void start(struct world *w) {
    const struct api api = {fake_request, w};
    const struct event_writer_options events = {
        .component = "aliquot-scheduler", .request = fake_request, .context = w};
    w->state = state_new(fake_verify, w);
    w->events = event_writer_new(&events);
    assert_non_null(w->events);
    w->extender = (struct extender){
        .state = w->state, .ready = fake_ready, .on_refusal = on_refusal, .userdata = w};
    w->binder = (struct binder){.state = w->state,
                                .api = api,
                                .key = w->key,
                                .now = fake_now,
                                .ready = fake_ready,
                                .userdata = w,
                                .done = on_bind_done};
    w->gpu_status =
        (struct gpu_status){.state = w->state, .api = api, .now = fake_now, .userdata = w};
    assert_int_equal(extender_init(&w->extender), 0);
    assert_int_equal(binder_init(&w->binder), 0);
    w->ready = true;
}

static inline void stop(struct world *w) {
    extender_done(&w->extender);
    binder_done(&w->binder);
    w->state = state_free(w->state);
    event_writer_free(w->events);
}

static inline int setup(void **state) {
    struct world *w = calloc(1, sizeof(*w));
    struct err err;
    _cleanup_buf_ struct buf pem = BUF_INIT(0);
    w->now = 1000000;
    w->parser = json_parser_new();
    assert_int_equal(signing_key_generate(&w->key, &err), 0);
    assert_int_equal(signing_key_public(w->key, &pem, &err), 0);
    assert_int_equal(signing_verifier_load(pem.data, pem.len, &w->verifier, &err), 0);
    start(w);
    *state = w;
    return 0;
}

static inline int teardown(void **state) {
    struct world *w = *state;
    assert_int_equal(w->nasked, 0);
    stop(w);
    json_parser_free(w->parser);
    signing_key_free(w->key);
    signing_verifier_free(w->verifier);
    free(w);
    return 0;
}

/* ---- what the watches show ---- */

static inline void show_gpu(struct world *w, const char *node, unsigned index, bool healthy) {
    struct gpu_object gpu = {.index = index, .memory = 80 * GIB, .healthy = healthy};
    snprintf(gpu.name, sizeof(gpu.name), "%s-%02u", node, index);
    snprintf(gpu.uuid, sizeof(gpu.uuid), "GPU-%s-%u", node, index);
    snprintf(gpu.node, sizeof(gpu.node), "%s", node);
    assert_int_equal(state_gpu_seen(w->state, &gpu, "{\"allocatable\":null,\"allocated\":null}"),
                     0);
}

static inline void show_node(struct world *w, const char *node, unsigned gpus) {
    assert_int_equal(state_node_seen(w->state, node), 0);
    for (unsigned i = 0; i < gpus; i++)
        show_gpu(w, node, i, true);
}

/* A pod object with one container. `node` may be NULL, `annotations` is JSON members or "". */
static inline void put_pod(struct buf *out, const char *uid, const char *resources,
                           const char *node, const char *annotations, const char *phase) {
    buf_printf(out,
               "{\"metadata\":{\"name\":\"pod-%s\",\"namespace\":\"d\",\"uid\":\"%s\","
               "\"annotations\":{%s}},\"spec\":{",
               uid, uid, annotations);
    if (node)
        buf_printf(out, "\"nodeName\":\"%s\",", node);
    buf_printf(out,
               "\"containers\":[{\"name\":\"main\",\"resources\":{\"limits\":{%s}}}]},"
               "\"status\":{\"phase\":\"%s\"}}",
               resources, phase);
}

static inline void show_text(struct world *w, const char *text) {
    struct json object;
    struct pod pod;
    struct err err;
    assert_int_equal(json_parse(w->parser, text, strlen(text), &object, &err), 0);
    assert_int_equal(pod_parse(object, &pod, &err), 0);
    assert_int_equal(state_pod_seen(w->state, &pod, w->now), 0);
    pod_done(&pod);
}

static inline void show_pod(struct world *w, const char *uid, const char *resources,
                            const char *node, const char *annotations) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    put_pod(&text, uid, resources, node, annotations, "Pending");
    show_text(w, buf_str(&text));
}

/* ---- what kube-scheduler asks ---- */

static inline struct json ask_nodes(struct world *w, bool prioritize, const char *uid,
                                    const char *resources, const char *names) {
    _cleanup_buf_ struct buf body = BUF_INIT(0), answer = BUF_INIT(0);
    struct json root;
    buf_puts(&body, "{\"Pod\":");
    put_pod(&body, uid, resources, NULL, w->annotations ? w->annotations : "", "Pending");
    buf_printf(&body, ",\"Nodes\":null,\"NodeNames\":[%s]}", names);
    if (prioritize)
        extender_prioritize(&w->extender, body.data, body.len, w->now, &answer);
    else
        extender_filter(&w->extender, body.data, body.len, w->now, &answer);
    assert_int_equal(json_parse(w->parser, answer.data, answer.len, &root, NULL), 0);
    return root;
}

/* A reason without the words before it that make it read well behind kube-scheduler's number of
 * nodes. */
static inline const char *uncounted(const char *reason) {
    static const char before[] = "node(s): ";
    assert_non_null(reason);
    assert_memory_equal(reason, before, sizeof(before) - 1);
    return reason + sizeof(before) - 1;
}

/* "node,node" of a filter, or "!text" of its error, or "-reason" of the first node that failed. */
static inline const char *filter(struct world *w, const char *uid, const char *resources,
                                 const char *names) {
    static char out[2048];
    struct json answer = ask_nodes(w, false, uid, resources, names);
    const char *error = json_string(json_get(answer, "Error"));
    if (error && *error) {
        snprintf(out, sizeof(out), "!%s", error);
        return out;
    }
    struct json_iter it = json_iter(json_get(answer, "NodeNames"));
    struct json value;
    size_t len = 0;
    while (json_next(&it, NULL, &value))
        len += (size_t) snprintf(out + len, sizeof(out) - len, "%s%s", len ? "," : "",
                                 json_string(value));
    if (len > 0)
        return out;
    it = json_iter(json_get(answer, "FailedAndUnresolvableNodes"));
    assert_true(json_next(&it, NULL, &value));
    snprintf(out, sizeof(out), "-%s", uncounted(json_string(value)));
    return out;
}

static inline void bind_pod(struct world *w, const char *uid, const char *node) {
    char body[512];
    snprintf(body, sizeof(body),
             "{\"PodName\":\"pod-%s\",\"PodNamespace\":\"d\",\"PodUID\":\"%s\",\"Node\":\"%s\"}",
             uid, uid, node);
    w->bind_answer[0] = '?';
    w->bind_answer[1] = '\0';
    binder_bind(&w->binder, body, strlen(body), w);
}

/* The annotations of a Binding that was posted, as members for put_pod(). */
static inline void annotations_of(struct world *w, const struct asked *asked, struct buf *out) {
    struct json root;
    assert_string_equal(asked->method, "POST");
    assert_int_equal(json_parse(w->parser, asked->body.data, asked->body.len, &root, NULL), 0);
    struct json_iter it = json_iter(JSON_PATH(root, "metadata", "annotations"));
    struct json value;
    const char *key;
    for (int i = 0; json_next(&it, &key, &value); i++) {
        buf_printf(out, "%s\"%s\":", i ? "," : "", key);
        json_print(out, value);
    }
}

#define HALF "\"elasticgpu.io/gpu-core\":\"50\""
#define WHOLE "\"elasticgpu.io/gpu-core\":\"100\""
#define TENTH "\"elasticgpu.io/gpu-core\":\"10\""

/* Filter, bind, the API server's 201, and the watch. */
static inline void run_pod(struct world *w, const char *uid, const char *resources,
                           const char *node, struct buf *annotations) {
    char quoted[128];
    snprintf(quoted, sizeof(quoted), "\"%s\"", node);
    show_pod(w, uid, resources, NULL, "");
    assert_string_equal(filter(w, uid, resources, quoted), node);
    bind_pod(w, uid, node);
    assert_int_equal(w->nasked, 1);
    annotations_of(w, &w->asked[0], annotations);
    respond(w, 0, 201, false, NULL);
    assert_string_equal(w->bind_answer, "");
    show_pod(w, uid, resources, node, buf_str(annotations));
    assert_int_equal(state_pod_find(w->state, uid)->stage, POD_BOUND);
}

/* What is free of core on a card. */
static inline unsigned free_core(struct world *w, const char *node, unsigned card) {
    struct state_node *n = state_node_find(w->state, node);
    state_refresh(w->state, n);
    assert_in_range(card, 0, n->ncards - 1);
    return n->place[card].free.core;
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
