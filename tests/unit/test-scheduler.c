/* SPDX-License-Identifier: Apache-2.0 */
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
#include "scheduler/bind.h"
#include "scheduler/extender.h"
#include "scheduler/keys.h"
#include "scheduler/projection.h"
#include "wire/json.h"
#include "wire/json_write.h"

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
    struct projection projection;
    struct signing_key *key;
    struct signing_verifier *verifier;
    struct json_parser *parser;
    uint64_t now;
    bool ready;
    struct asked asked[REQUESTS_MAX];
    size_t nasked;
    char bind_answer[1024]; /* of the bind answered last */
    int binds_answered;
    char refusal[2048];
    int refusals;
};

static int fake_request(void *context, const char *method, const char *path,
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
static void respond(struct world *w, size_t i, int status, bool maybe, const char *body) {
    assert_in_range(i, 0, w->nasked - 1);
    struct asked a = w->asked[i];
    struct json_parser *parser = json_parser_new();
    struct kube_response response = {
        .status = status, .maybe_applied = maybe, .text = status / 100 == 2 ? "" : "test",
        .reason = ""};
    memmove(&w->asked[i], &w->asked[i + 1], (w->nasked - i - 1) * sizeof(a));
    w->nasked--;
    if (body)
        assert_int_equal(json_parse(parser, body, strlen(body), &response.body, NULL), 0);
    a.callback(&response, a.userdata);
    json_parser_free(parser);
    buf_done(&a.body);
}

static uint64_t fake_now(void *userdata) {
    return ((struct world *) userdata)->now;
}

static bool fake_ready(void *userdata) {
    return ((struct world *) userdata)->ready;
}

static int fake_verify(const char *uid, const char *node, const char *text, const char *signature,
                       void *userdata) {
    struct err err;
    return assignment_verify(((struct world *) userdata)->verifier, uid, node, text, signature,
                             &err);
}

static void on_refusal(struct state_pod *pod, const char *reason, const char *message,
                       void *userdata) {
    struct world *w = userdata;
    (void) pod;
    snprintf(w->refusal, sizeof(w->refusal), "%s: %s", reason, message);
    w->refusals++;
}

static void on_bind_done(const char *error, void *request) {
    struct world *w = request;
    snprintf(w->bind_answer, sizeof(w->bind_answer), "%s", error);
    w->binds_answered++;
}

static void start(struct world *w) {
    const struct api api = {fake_request, w};
    w->state = state_new(fake_verify, w);
    w->extender = (struct extender){.state = w->state, .policy = &place_binpack,
                                    .ready = fake_ready, .on_refusal = on_refusal, .userdata = w};
    w->binder = (struct binder){.state = w->state, .api = api, .policy = &place_binpack,
                                .key = w->key, .now = fake_now, .ready = fake_ready,
                                .userdata = w, .done = on_bind_done};
    w->projection =
        (struct projection){.state = w->state, .api = api, .now = fake_now, .userdata = w};
    assert_int_equal(extender_init(&w->extender), 0);
    assert_int_equal(binder_init(&w->binder), 0);
    w->ready = true;
}

static void stop(struct world *w) {
    extender_done(&w->extender);
    binder_done(&w->binder);
    w->state = state_free(w->state);
}

static int setup(void **state) {
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

static int teardown(void **state) {
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

static void show_gpu(struct world *w, const char *node, unsigned index, bool healthy) {
    struct gpu_object gpu = {.index = index, .memory = 80 * GIB, .healthy = healthy};
    snprintf(gpu.name, sizeof(gpu.name), "%s-%02u", node, index);
    snprintf(gpu.uuid, sizeof(gpu.uuid), "GPU-%s-%u", node, index);
    snprintf(gpu.node, sizeof(gpu.node), "%s", node);
    assert_int_equal(state_gpu_seen(w->state, &gpu, "{\"allocatable\":null,\"allocated\":null}"),
                     0);
}

static void show_node(struct world *w, const char *node, unsigned gpus) {
    assert_int_equal(state_node_seen(w->state, node), 0);
    for (unsigned i = 0; i < gpus; i++)
        show_gpu(w, node, i, true);
}

/* A pod object with one container. `node` may be NULL, `annotations` is JSON members or "". */
static void put_pod(struct buf *out, const char *uid, const char *resources, const char *node,
                    const char *annotations, const char *phase) {
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

static void show_text(struct world *w, const char *text) {
    struct json object;
    struct pod pod;
    struct err err;
    assert_int_equal(json_parse(w->parser, text, strlen(text), &object, &err), 0);
    assert_int_equal(pod_parse(object, &pod, &err), 0);
    assert_int_equal(state_pod_seen(w->state, &pod, w->now), 0);
    pod_done(&pod);
}

static void show_pod(struct world *w, const char *uid, const char *resources, const char *node,
                     const char *annotations) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    put_pod(&text, uid, resources, node, annotations, "Pending");
    show_text(w, buf_str(&text));
}

/* ---- what kube-scheduler asks ---- */

static struct json ask_nodes(struct world *w, bool prioritize, const char *uid,
                             const char *resources, const char *names) {
    _cleanup_buf_ struct buf body = BUF_INIT(0), answer = BUF_INIT(0);
    struct json root;
    buf_puts(&body, "{\"Pod\":");
    put_pod(&body, uid, resources, NULL, "", "Pending");
    buf_printf(&body, ",\"Nodes\":null,\"NodeNames\":[%s]}", names);
    if (prioritize)
        extender_prioritize(&w->extender, body.data, body.len, w->now, &answer);
    else
        extender_filter(&w->extender, body.data, body.len, w->now, &answer);
    assert_int_equal(json_parse(w->parser, answer.data, answer.len, &root, NULL), 0);
    return root;
}

/* "node,node" of a filter, or "!text" of its error, or "-reason" of the first node that failed. */
static const char *filter(struct world *w, const char *uid, const char *resources,
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
    snprintf(out, sizeof(out), "-%s", json_string(value));
    return out;
}

static void bind_pod(struct world *w, const char *uid, const char *node) {
    char body[512];
    snprintf(body, sizeof(body),
             "{\"PodName\":\"pod-%s\",\"PodNamespace\":\"d\",\"PodUID\":\"%s\",\"Node\":\"%s\"}",
             uid, uid, node);
    w->bind_answer[0] = '?';
    w->bind_answer[1] = '\0';
    binder_bind(&w->binder, body, strlen(body), w);
}

/* The annotations of a Binding that was posted, as members for put_pod(). */
static void annotations_of(struct world *w, const struct asked *asked, struct buf *out) {
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
static void run_pod(struct world *w, const char *uid, const char *resources, const char *node,
                    struct buf *annotations) {
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
static unsigned free_core(struct world *w, const char *node, unsigned card) {
    struct state_node *n = state_node_find(w->state, node);
    state_refresh(w->state, n);
    assert_in_range(card, 0, n->ncards - 1);
    return n->place[card].free.core;
}

/* ---- tests ---- */

static void test_one_pod(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf notes = BUF_INIT(0);
    show_node(w, "n", 2);
    run_pod(w, "a", HALF, "n", &notes);
    assert_int_equal(free_core(w, "n", 0), 50);
    assert_int_equal(free_core(w, "n", 1), 100);
    struct assignment a;
    const struct state_pod *pod = state_pod_find(w->state, "a");
    assert_int_equal(state_assignment(pod, &a), 0);
    assert_true(a.containers[0].devices[0].memory == 40 * GIB);
    assert_string_equal(a.containers[0].devices[0].uuid, "GPU-n-0");
    assignment_done(&a);
    state_pod_gone(w->state, "a");
    assert_int_equal(free_core(w, "n", 0), 100);
}

static void test_twenty_at_once(void **state) {
    struct world *w = *state;
    char uid[20][8];
    struct buf notes[20] = {{0}};
    show_node(w, "n", 2);
    for (int i = 0; i < 20; i++) {
        snprintf(uid[i], sizeof(uid[i]), "u%d", i);
        show_pod(w, uid[i], TENTH, NULL, "");
        assert_string_equal(filter(w, uid[i], TENTH, "\"n\""), "n");
    }
    for (int i = 19; i >= 0; i--) {
        bind_pod(w, uid[i], "n");
        annotations_of(w, &w->asked[19 - i], &notes[i]);
    }
    assert_int_equal(free_core(w, "n", 0) + free_core(w, "n", 1), 0);
    show_pod(w, "late", TENTH, NULL, "");
    assert_int_equal(filter(w, "late", TENTH, "\"n\"")[0], '!');
    while (w->nasked > 0)
        respond(w, w->nasked / 2, 201, false, NULL);
    assert_int_equal(w->binds_answered, 20);
    assert_string_equal(filter(w, "late", TENTH, "\"n\""), "-no GPU has enough free compute");
    for (int i = 0; i < 20; i++)
        show_pod(w, uid[i], TENTH, "n", buf_str(&notes[i]));
    assert_int_equal(free_core(w, "n", 0) + free_core(w, "n", 1), 0);
    const struct state_node *node = state_node_find(w->state, "n");
    assert_false(node->cards[0]->overcommitted || node->cards[1]->overcommitted);
    for (int i = 0; i < 20; i++)
        buf_done(&notes[i]);
}

static void test_bind_between_filters(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf notes = BUF_INIT(0);
    show_node(w, "n", 1);
    show_pod(w, "a", WHOLE, NULL, "");
    show_pod(w, "b", WHOLE, NULL, "");
    assert_string_equal(filter(w, "a", WHOLE, "\"n\""), "n");
    assert_int_equal(filter(w, "b", WHOLE, "\"n\"")[0], '!'); /* promised: comes again by itself */
    bind_pod(w, "a", "n");
    assert_int_equal(filter(w, "b", WHOLE, "\"n\"")[0], '!');
    annotations_of(w, &w->asked[0], &notes);
    respond(w, 0, 201, false, NULL);
    assert_int_equal(w->refusals, 0);
    assert_string_equal(filter(w, "b", WHOLE, "\"n\""), "-not enough whole GPUs free");
    assert_int_equal(w->refusals, 1);
    assert_non_null(strstr(w->refusal, "NoGPUFits: main wants 1 whole GPU; n has free GPU 0: 0 %"));
    show_pod(w, "a", WHOLE, "n", buf_str(&notes));
    assert_string_equal(filter(w, "b", WHOLE, "\"n\""), "-not enough whole GPUs free");
    state_pod_gone(w->state, "a");
    assert_string_equal(filter(w, "b", WHOLE, "\"n\""), "n");
}

static void test_filter_twice_is_one_promise(void **state) {
    struct world *w = *state;
    show_node(w, "n", 1);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(filter(w, "a", HALF, "\"n\""), "n");
        assert_int_equal(free_core(w, "n", 0), 50);
    }
    w->now += PROMISE_TTL_MS;
    binder_audit(&w->binder);
    assert_int_equal(free_core(w, "n", 0), 100);
}

static void test_prioritize_promises_the_best(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf notes = BUF_INIT(0);
    show_node(w, "n1", 1);
    show_node(w, "n2", 1);
    run_pod(w, "a", HALF, "n2", &notes);
    assert_string_equal(filter(w, "b", HALF, "\"n1\",\"n2\""), "n1,n2");
    assert_int_equal(state_pod_find(w->state, "b")->stage, POD_PENDING);
    struct json scores = ask_nodes(w, true, "b", HALF, "\"n1\",\"n2\"");
    struct json_iter it = json_iter(scores);
    struct json first, second;
    int64_t s1, s2;
    assert_true(json_next(&it, NULL, &first) && json_next(&it, NULL, &second));
    assert_string_equal(json_string(json_get(first, "Host")), "n1");
    assert_true(json_i64(json_get(first, "Score"), &s1));
    assert_true(json_i64(json_get(second, "Score"), &s2));
    assert_true(s2 > s1); /* the half-used card is filled first */
    assert_string_equal(state_pod_find(w->state, "b")->node->name, "n2");
    assert_int_equal(free_core(w, "n2", 0), 0);
    /* A third one must not be sent to the same half. */
    assert_string_equal(filter(w, "c", HALF, "\"n1\",\"n2\""), "n1");
    /* kube-scheduler chooses otherwise: the bind counts. */
    bind_pod(w, "b", "n1");
    assert_string_equal(w->asked[0].path, "/api/v1/namespaces/d/pods/pod-b/binding");
    assert_int_equal(free_core(w, "n2", 0), 50);
    respond(w, 0, 201, false, NULL);
    assert_string_equal(w->bind_answer, "");
}

static void test_restart(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf a = BUF_INIT(0), b = BUF_INIT(0);
    show_node(w, "n", 1);
    run_pod(w, "a", HALF, "n", &a);
    run_pod(w, "b", TENTH, "n", &b);
    stop(w);
    start(w);
    show_pod(w, "a", HALF, "n", buf_str(&a)); /* pods may come before the cards */
    show_node(w, "n", 1);
    show_pod(w, "b", TENTH, "n", buf_str(&b));
    assert_int_equal(free_core(w, "n", 0), 40);
    /* The same annotations on another pod, on another node, or changed, are nobody's. */
    show_pod(w, "c", TENTH, "n", buf_str(&b));
    show_node(w, "m", 1);
    show_pod(w, "d", TENTH, "m", buf_str(&b));
    assert_int_equal(free_core(w, "n", 0), 40);
    assert_int_equal(free_core(w, "m", 0), 100);
    assert_int_equal(w->state->forged, 2);
}

static void test_bind_after_restart(void **state) {
    struct world *w = *state;
    show_node(w, "n", 1);
    show_pod(w, "a", HALF, NULL, "");
    assert_string_equal(filter(w, "a", HALF, "\"n\""), "n");
    stop(w);
    start(w);
    w->ready = false;
    bind_pod(w, "a", "n");
    assert_non_null(strstr(w->bind_answer, "still reading"));
    assert_non_null(strstr(filter(w, "a", HALF, "\"n\""), "still reading"));
    w->ready = true;
    show_node(w, "n", 1);
    bind_pod(w, "a", "n");
    assert_non_null(strstr(w->bind_answer, "not been seen"));
    show_pod(w, "a", HALF, NULL, "");
    bind_pod(w, "a", "n"); /* no promise is left: placed now */
    assert_int_equal(w->nasked, 1);
    respond(w, 0, 201, false, NULL);
    assert_string_equal(w->bind_answer, "");
}

static void test_duplicate_and_late_events(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf notes = BUF_INIT(0);
    show_node(w, "n", 1);
    run_pod(w, "a", HALF, "n", &notes);
    for (int i = 0; i < 3; i++)
        show_pod(w, "a", HALF, "n", buf_str(&notes));
    show_pod(w, "a", HALF, NULL, ""); /* from before the Binding */
    show_node(w, "n", 1);
    assert_int_equal(free_core(w, "n", 0), 50);
    show_pod(w, "a", HALF, "n", "\"elasticgpu.io/assignment\":\"{}\""); /* tampered with later */
    assert_int_equal(free_core(w, "n", 0), 50);
    state_pod_gone(w->state, "a");
    state_pod_gone(w->state, "a");
    assert_int_equal(free_core(w, "n", 0), 100);
}

static void test_watch_before_answer(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf notes = BUF_INIT(0);
    show_node(w, "n", 1);
    show_pod(w, "a", HALF, NULL, "");
    bind_pod(w, "a", "n");
    annotations_of(w, &w->asked[0], &notes);
    show_pod(w, "a", HALF, "n", buf_str(&notes));
    respond(w, 0, 201, false, NULL);
    assert_string_equal(w->bind_answer, "");
    assert_int_equal(state_pod_find(w->state, "a")->stage, POD_BOUND);
    assert_int_equal(free_core(w, "n", 0), 50);
}

static void test_deleted_while_assumed(void **state) {
    struct world *w = *state;
    show_node(w, "n", 1);
    show_pod(w, "a", HALF, NULL, "");
    assert_string_equal(filter(w, "a", HALF, "\"n\""), "n");
    state_pod_gone(w->state, "a");
    assert_int_equal(free_core(w, "n", 0), 100);
    bind_pod(w, "a", "n");
    assert_int_equal(w->nasked, 0);
    show_pod(w, "b", HALF, NULL, "");
    bind_pod(w, "b", "n");
    assert_int_equal(free_core(w, "n", 0), 50);
    state_pod_gone(w->state, "b");
    assert_int_equal(free_core(w, "n", 0), 100);
    respond(w, 0, 404, false, NULL);
    assert_true(w->bind_answer[0] != '\0');
    assert_null(state_pod_find(w->state, "b"));
}

static void test_terminating_holds_until_gone(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf notes = BUF_INIT(0), text = BUF_INIT(0);
    show_node(w, "n", 1);
    run_pod(w, "a", WHOLE, "n", &notes);
    put_pod(&text, "a", WHOLE, "n", buf_str(&notes), "Running");
    char *meta = strstr(text.data, "\"name\"");
    _cleanup_buf_ struct buf deleting = BUF_INIT(0);
    buf_append(&deleting, text.data, (size_t) (meta - text.data));
    buf_printf(&deleting, "\"deletionTimestamp\":\"2026-01-01T00:00:00Z\",%s", meta);
    show_text(w, buf_str(&deleting));
    assert_int_equal(free_core(w, "n", 0), 0);
    buf_reset(&text);
    put_pod(&text, "a", WHOLE, "n", buf_str(&notes), "Succeeded");
    show_text(w, buf_str(&text));
    assert_int_equal(free_core(w, "n", 0), 100);
}

static void test_unknown_outcome(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf notes = BUF_INIT(0), pod = BUF_INIT(0), first = BUF_INIT(0);
    show_node(w, "n", 1);
    show_node(w, "m", 1);
    show_pod(w, "a", WHOLE, NULL, "");
    assert_string_equal(filter(w, "a", WHOLE, "\"n\""), "n");
    bind_pod(w, "a", "n");
    annotations_of(w, &w->asked[0], &notes);
    buf_puts(&first, buf_str(&w->asked[0].body));
    buf_done(&w->asked[0].body);
    respond(w, 0, 0, true, NULL); /* time-out */
    assert_string_equal(w->asked[0].method, "GET");
    put_pod(&pod, "a", WHOLE, NULL, "", "Pending");
    respond(w, 0, 200, false, buf_str(&pod));
    assert_true(w->bind_answer[0] != '\0');
    /* It may still be done: kept, nobody else gets it, and the pod can go nowhere else. */
    assert_int_equal(free_core(w, "n", 0), 0);
    assert_int_equal(filter(w, "b", WHOLE, "\"n\"")[0], '!');
    assert_int_equal(filter(w, "a", WHOLE, "\"m\"")[0], '!');
    assert_string_equal(filter(w, "a", WHOLE, "\"m\",\"n\""), "n");
    bind_pod(w, "a", "n"); /* the very same Binding again */
    assert_string_equal(buf_str(&w->asked[0].body), buf_str(&first));
    buf_done(&w->asked[0].body);
    respond(w, 0, 409, false, NULL);
    buf_reset(&pod);
    put_pod(&pod, "a", WHOLE, "n", buf_str(&notes), "Pending");
    respond(w, 0, 200, false, buf_str(&pod)); /* the first one had been carried out */
    assert_string_equal(w->bind_answer, "");
    assert_int_equal(state_pod_find(w->state, "a")->stage, POD_BOUND);
}

static void test_doubt_ends(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf pod = BUF_INIT(0);
    put_pod(&pod, "a", WHOLE, NULL, "", "Pending");
    show_node(w, "n", 1);
    show_pod(w, "a", WHOLE, NULL, "");
    bind_pod(w, "a", "n");
    respond(w, 0, 500, false, NULL);
    respond(w, 0, 0, false, NULL); /* the question gets no answer either */
    assert_int_equal(w->binds_answered, 1);
    for (int i = 0; i < 20 && state_pod_find(w->state, "a")->stage == POD_IN_DOUBT; i++) {
        assert_int_equal(free_core(w, "n", 0), 0);
        w->now += AUDIT_AFTER_MS;
        binder_audit(&w->binder);
        assert_int_equal(w->nasked, 1);
        respond(w, 0, 200, false, buf_str(&pod));
    }
    assert_int_equal(state_pod_find(w->state, "a")->stage, POD_PENDING);
    assert_int_equal(free_core(w, "n", 0), 100);
    assert_int_equal(w->binds_answered, 1);
}

static void test_bound_by_somebody_else(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf pod = BUF_INIT(0);
    show_node(w, "n", 1);
    show_pod(w, "a", WHOLE, NULL, "");
    bind_pod(w, "a", "n");
    respond(w, 0, 409, false, NULL);
    put_pod(&pod, "a", WHOLE, "n", "", "Pending");
    respond(w, 0, 200, false, buf_str(&pod));
    assert_non_null(strstr(w->bind_answer, "somebody else"));
    assert_int_equal(free_core(w, "n", 0), 100);
}

static void test_refused_binding(void **state) {
    struct world *w = *state;
    show_node(w, "n", 1);
    show_pod(w, "a", WHOLE, NULL, "");
    bind_pod(w, "a", "n");
    respond(w, 0, 403, false, NULL);
    assert_true(w->bind_answer[0] != '\0');
    assert_int_equal(free_core(w, "n", 0), 100);
    bind_pod(w, "a", "n"); /* and again, with nothing left behind */
    respond(w, 0, 201, false, NULL);
    assert_string_equal(w->bind_answer, "");
    bind_pod(w, "a", "n"); /* kube-scheduler did not hear it */
    assert_int_equal(w->nasked, 0);
    assert_string_equal(w->bind_answer, "");
}

static void test_promised_card_lost(void **state) {
    struct world *w = *state;
    show_node(w, "n", 2);
    show_pod(w, "a", HALF, NULL, "");
    assert_string_equal(filter(w, "a", HALF, "\"n\""), "n");
    assert_string_equal(state_pod_find(w->state, "a")->holds[0].device.uuid, "GPU-n-0");
    show_gpu(w, "n", 0, false);
    bind_pod(w, "a", "n");
    assert_string_equal(state_pod_find(w->state, "a")->holds[0].device.uuid, "GPU-n-1");
    respond(w, 0, 201, false, NULL);
    show_pod(w, "b", HALF, NULL, "");
    assert_string_equal(filter(w, "b", HALF, "\"n\""), "n");
    state_gpu_gone(w->state, "n-00");
    state_gpu_gone(w->state, "n-01");
    bind_pod(w, "b", "n");
    assert_int_equal(w->nasked, 0);
    assert_non_null(strstr(w->bind_answer, "node has no GPU"));
}

static void test_annotations_too_large(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf notes = BUF_INIT(0);
    buf_puts(&notes, "\"x\":\"");
    for (int i = 0; i < 262000; i++)
        buf_putc(&notes, 'x');
    buf_puts(&notes, "\"");
    show_node(w, "n", 1);
    show_pod(w, "a", HALF, NULL, buf_str(&notes));
    bind_pod(w, "a", "n");
    assert_int_equal(w->nasked, 0);
    assert_non_null(strstr(w->bind_answer, "no room for the assignment"));
    assert_int_equal(free_core(w, "n", 0), 100);
}

static void test_malformed_request(void **state) {
    struct world *w = *state;
    const char *bad = "\"elasticgpu.io/gpu-core\":\"150\"";
    show_node(w, "n", 1);
    assert_string_equal(filter(w, "a", bad, "\"n\",\"unknown\""),
                        "-GPU request is malformed: gpu-core must be below 100 or a multiple of 100");
    assert_non_null(strstr(w->refusal, "GPURequestMalformed: container main: "));
    show_pod(w, "a", bad, NULL, "");
    bind_pod(w, "a", "n");
    assert_non_null(strstr(w->bind_answer, "malformed"));
    assert_string_equal(filter(w, "b", "\"elasticgpu.io/gpu-memory\":\"999Gi\",\"elasticgpu.io/slot\":"
                                       "\"1\"", "\"n\""),
                        "-no GPU has that much memory");
    assert_string_equal(filter(w, "c", HALF, "\"unknown\""), "-node has no GPU");
    assert_string_equal(filter(w, "d", "\"cpu\":\"1\"", "\"n\",\"unknown\""), "n,unknown");
}

static void test_hostile_bodies(void **state) {
    struct world *w = *state;
    static const char *const bodies[] = {
        "", "{", "null", "[]", "7", "\"x\"", "{}", "{\"NodeNames\":{}}", "{\"NodeNames\":[1]}",
        "{\"NodeNames\":[\"a\"]}", "{\"NodeNames\":[\"a\"],\"Pod\":[]}",
        "{\"NodeNames\":null,\"Nodes\":{\"items\":[]},\"Pod\":{}}",
        "{\"PodName\":1}", "{\"PodName\":\"../x\",\"PodNamespace\":\"d\",\"PodUID\":\"u\",\"Node\":"
                          "\"n\"}",
    };
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        _cleanup_buf_ struct buf one = BUF_INIT(0), two = BUF_INIT(0);
        struct json root;
        assert_true(extender_filter(&w->extender, bodies[i], strlen(bodies[i]), 0, &one) < 0);
        assert_true(extender_prioritize(&w->extender, bodies[i], strlen(bodies[i]), 0, &two) < 0);
        assert_int_equal(json_parse(w->parser, one.data, one.len, &root, NULL), 0);
        assert_true(strlen(json_string(json_get(root, "Error"))) > 5);
        binder_bind(&w->binder, bodies[i], strlen(bodies[i]), w);
        assert_int_equal(w->binds_answered, (int) i + 1);
        assert_true(w->bind_answer[0] != '\0');
    }
    _cleanup_buf_ struct buf body = BUF_INIT(0), answer = BUF_INIT(0);
    buf_puts(&body, "{\"pod\":");
    put_pod(&body, "a", HALF, NULL, "", "Pending");
    buf_puts(&body, ",\"nodenames\":[\"x\"");
    for (int i = 0; i < 4999; i++)
        buf_printf(&body, ",\"node-%d\"", i);
    buf_puts(&body, "]}");
    assert_int_equal(extender_filter(&w->extender, body.data, body.len, 0, &answer), 0);
    assert_true(answer.len > 5000 * 20);
}

static void test_relist(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf a = BUF_INIT(0), b = BUF_INIT(0);
    show_node(w, "n", 2);
    run_pod(w, "a", HALF, "n", &a);
    run_pod(w, "b", HALF, "n", &b);
    show_pod(w, "c", HALF, NULL, "");
    bind_pod(w, "c", "n");
    state_sync_begin(w->state, STATE_PODS); /* a list from before c was bound */
    show_pod(w, "a", HALF, "n", buf_str(&a));
    state_sync_end(w->state, STATE_PODS);
    assert_null(state_pod_find(w->state, "b"));
    assert_int_equal(free_core(w, "n", 0) + free_core(w, "n", 1), 100);
    respond(w, 0, 201, false, NULL);
    state_sync_begin(w->state, STATE_GPUS);
    show_gpu(w, "n", 1, true);
    state_sync_end(w->state, STATE_GPUS);
    assert_int_equal(state_node_find(w->state, "n")->ncards, 1);
    state_sync_begin(w->state, STATE_NODES);
    state_sync_end(w->state, STATE_NODES);
    assert_false(state_node_find(w->state, "n")->exists);
    /* c never shows up: the audit asks, and hears that it is gone */
    w->now += AUDIT_AFTER_MS;
    binder_audit(&w->binder);
    respond(w, 0, 404, false, NULL);
    assert_null(state_pod_find(w->state, "c"));
}

static void test_card_listed_twice(void **state) {
    struct world *w = *state;
    struct gpu_object gpu = {.name = "zzz-00", .node = "n", .uuid = "GPU-n-0", .memory = 80 * GIB,
                             .healthy = true};
    show_node(w, "n", 1);
    assert_int_equal(state_gpu_seen(w->state, &gpu, NULL), 0); /* the address of the node changed */
    assert_string_equal(filter(w, "a", "\"elasticgpu.io/gpu-core\":\"200\"", "\"n\""),
                        "-not enough whole GPUs free");
    assert_string_equal(filter(w, "a2", WHOLE, "\"n\""), "n");
    state_gpu_gone(w->state, "n-00"); /* the other object takes over, with what is held */
    assert_int_equal(free_core(w, "n", 0), 0);
}

static void observe_patch(struct world *w, const char *uuid_node, unsigned index,
                          const char *observed) {
    struct gpu_object gpu = {.index = index, .memory = 80 * GIB, .healthy = true};
    snprintf(gpu.name, sizeof(gpu.name), "%s-%02u", uuid_node, index);
    snprintf(gpu.uuid, sizeof(gpu.uuid), "GPU-%s-%u", uuid_node, index);
    snprintf(gpu.node, sizeof(gpu.node), "%s", uuid_node);
    assert_int_equal(state_gpu_seen(w->state, &gpu, observed), 0);
}

#define FREE_ALL                                                                                   \
    "{\"allocatable\":{\"elasticgpu.io/gpu-core\":\"100\",\"elasticgpu.io/gpu-memory\":\"80Gi\"}," \
    "\"allocated\":{}}"
#define HALF_USED                                                                                  \
    "{\"allocatable\":{\"elasticgpu.io/gpu-core\":\"50\",\"elasticgpu.io/gpu-memory\":\"40Gi\"},"  \
    "\"allocated\":{\"a\":{\"containers\":[{\"container\":\"main\",\"resource\":"                  \
    "{\"elasticgpu.io/gpu-core\":\"50\",\"elasticgpu.io/gpu-memory\":\"40Gi\"}}],"                 \
    "\"namespace\":\"d\",\"pod\":\"pod-a\"}}}"

static void test_projection(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf notes = BUF_INIT(0);
    show_node(w, "n", 1);
    observe_patch(w, "n", 0, FREE_ALL);
    projection_run(&w->projection, w->parser);
    assert_int_equal(w->nasked, 0);
    run_pod(w, "a", HALF, "n", &notes);
    projection_run(&w->projection, w->parser);
    assert_int_equal(w->nasked, 1);
    assert_string_equal(w->asked[0].method, "PATCH");
    assert_string_equal(w->asked[0].path, "/apis/elasticgpu.io/v1alpha1/gpus/n-00/status");
    assert_string_equal(buf_str(&w->asked[0].body), "{\"status\":" HALF_USED "}");
    projection_run(&w->projection, w->parser); /* not twice */
    assert_int_equal(w->nasked, 1);
    respond(w, 0, 200, false, NULL);
    projection_run(&w->projection, w->parser); /* the watch has not shown it yet */
    assert_int_equal(w->nasked, 0);
    observe_patch(w, "n", 0, HALF_USED);
    w->now += 60000;
    projection_run(&w->projection, w->parser);
    assert_int_equal(w->nasked, 0);
    /* Somebody edits it: repaired. */
    observe_patch(w, "n", 0, "{\"allocatable\":null,\"allocated\":{\"b\":{\"pod\":\"x\"}}}");
    projection_run(&w->projection, w->parser);
    assert_non_null(strstr(buf_str(&w->asked[0].body), "\"b\":null,\"a\":{"));
    respond(w, 0, 500, false, NULL);
    w->now += 60000;
    projection_run(&w->projection, w->parser); /* and again after a failure */
    respond(w, 0, 200, false, NULL);
    observe_patch(w, "n", 0, HALF_USED);
    state_pod_gone(w->state, "a");
    projection_run(&w->projection, w->parser);
    assert_string_equal(buf_str(&w->asked[0].body),
                        "{\"status\":{\"allocatable\":{\"elasticgpu.io/gpu-core\":\"100\","
                        "\"elasticgpu.io/gpu-memory\":\"80Gi\"},\"allocated\":{\"a\":null}}}");
    respond(w, 0, 200, false, NULL);
    observe_patch(w, "n", 0, FREE_ALL);
}

/* ---- the signing key ---- */

struct keys_result {
    struct signing_key *key;
    struct signing_verifier *verifier;
    char error[512];
    int calls;
};

static void on_keys(struct signing_key *key, struct signing_verifier *verifier, const char *error,
                    void *userdata) {
    struct keys_result *r = userdata;
    r->key = key;
    r->verifier = verifier;
    snprintf(r->error, sizeof(r->error), "%s", error ? error : "");
    r->calls++;
}

static void keys_result_done(struct keys_result *r) {
    signing_key_free(r->key);
    signing_verifier_free(r->verifier);
}

/* The text of a member of data or stringData that was sent. */
static void sent_text(struct world *w, const char *map, const char *key, struct buf *out) {
    struct json root;
    const struct buf *body = &w->asked[0].body;
    assert_int_equal(json_parse(w->parser, body->data, body->len, &root, NULL), 0);
    const char *text = json_string(JSON_PATH(root, map, key));
    assert_non_null(text);
    buf_puts(out, text);
}

static void put_base64_secret(struct buf *out, const struct signing_key *key) {
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    _cleanup_buf_ struct buf pem = BUF_INIT(0);
    struct err err;
    assert_int_equal(signing_key_save(key, &pem, &err), 0);
    buf_puts(out, "{\"data\":{\"private.pem\":\"");
    for (size_t i = 0; i < pem.len; i += 3) {
        unsigned n = 0;
        for (size_t j = 0; j < 3; j++)
            n = n << 8 | (i + j < pem.len ? (unsigned char) pem.data[i + j] : 0);
        for (unsigned j = 0; j < 4; j++)
            buf_putc(out, i + j <= pem.len ? digits[n >> (18 - 6 * j) & 63] : '=');
    }
    buf_puts(out, "\"}}");
}

static void test_keys_made(void **state) {
    struct world *w = *state;
    struct keys_result r = {0};
    const struct api api = {fake_request, w};
    _cleanup_buf_ struct buf pem = BUF_INIT(0), public = BUF_INIT(0);
    keys_start(&api, "sys", on_keys, &r);
    assert_string_equal(w->asked[0].path, "/api/v1/namespaces/sys/secrets/aliquot-signing");
    respond(w, 0, 404, false, NULL);
    sent_text(w, "stringData", "private.pem", &pem);
    buf_done(&w->asked[0].body);
    respond(w, 0, 201, false, NULL);
    assert_string_equal(w->asked[0].path, "/api/v1/namespaces/sys/configmaps/aliquot-signing");
    respond(w, 0, 404, false, NULL);
    sent_text(w, "data", "public.pem", &public);
    assert_non_null(strstr(buf_str(&public), "BEGIN PUBLIC KEY"));
    respond(w, 0, 201, false, NULL);
    assert_true(r.calls == 1 && r.key && r.verifier && r.error[0] == '\0');
    keys_result_done(&r);
}

static void test_keys_race_and_older_key(void **state) {
    struct world *w = *state;
    struct keys_result r = {0};
    const struct api api = {fake_request, w};
    _cleanup_buf_ struct buf secret = BUF_INIT(0), old = BUF_INIT(0), map = BUF_INIT(0);
    struct signing_key *older;
    struct err err;
    char signature[SIGNATURE_TEXT_MAX], by_older[SIGNATURE_TEXT_MAX];
    assert_int_equal(signing_key_generate(&older, &err), 0);
    assert_int_equal(signing_key_public(older, &old, &err), 0);
    put_base64_secret(&secret, w->key);
    keys_start(&api, "sys", on_keys, &r);
    respond(w, 0, 404, false, NULL);
    respond(w, 0, 409, false, NULL); /* another scheduler made it in between: its key counts */
    respond(w, 0, 200, false, buf_str(&secret));
    struct json_writer writer = {.out = &map};
    json_object_begin(&writer, NULL);
    json_object_begin(&writer, "data");
    json_put_string(&writer, "public.pem", buf_str(&old));
    json_object_end(&writer);
    json_object_end(&writer);
    respond(w, 0, 200, false, buf_str(&map));
    assert_string_equal(w->asked[0].method, "PATCH");
    respond(w, 0, 200, false, NULL);
    assert_true(r.calls == 1 && r.key);
    assert_int_equal(assignment_sign(w->key, "u", "n", "t", signature, &err), 0);
    assert_int_equal(assignment_sign(older, "u", "n", "t", by_older, &err), 0);
    assert_int_equal(assignment_verify(r.verifier, "u", "n", "t", signature, &err), 0);
    assert_int_equal(assignment_verify(r.verifier, "u", "n", "t", by_older, &err), 0);
    keys_result_done(&r);
    signing_key_free(older);
}

static void test_keys_errors(void **state) {
    struct world *w = *state;
    struct keys_result r = {0};
    const struct api api = {fake_request, w};
    keys_start(&api, "sys", on_keys, &r);
    respond(w, 0, 403, false, NULL);
    assert_true(r.calls == 1 && !r.key && strstr(r.error, "Secret"));
    keys_start(&api, "sys", on_keys, &r);
    respond(w, 0, 200, false, "{\"data\":{}}");
    assert_true(r.calls == 2 && !r.key && strstr(r.error, "private.pem"));
    keys_start(&api, "sys", on_keys, &r);
    respond(w, 0, 200, false, "{\"data\":{\"private.pem\":\"aGVsbG8=\"}}");
    assert_true(r.calls == 3 && !r.key);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        T(test_one_pod),
        T(test_twenty_at_once),
        T(test_bind_between_filters),
        T(test_filter_twice_is_one_promise),
        T(test_prioritize_promises_the_best),
        T(test_restart),
        T(test_bind_after_restart),
        T(test_duplicate_and_late_events),
        T(test_watch_before_answer),
        T(test_deleted_while_assumed),
        T(test_terminating_holds_until_gone),
        T(test_unknown_outcome),
        T(test_doubt_ends),
        T(test_bound_by_somebody_else),
        T(test_refused_binding),
        T(test_promised_card_lost),
        T(test_annotations_too_large),
        T(test_malformed_request),
        T(test_hostile_bodies),
        T(test_relist),
        T(test_card_listed_twice),
        T(test_projection),
        T(test_keys_made),
        T(test_keys_race_and_older_key),
        T(test_keys_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
