/* SPDX-License-Identifier: Apache-2.0 */

/* The Event NoGPUFits: which nodes it shows, and when it is another one. */

#include "scheduler-world.h"

#define CORE(percent) "\"elasticgpu.io/gpu-core\":\"" percent "\""
#define OFFERED "\"n1\",\"n2\",\"n3\",\"n4\",\"n5\",\"n6\""
#define ROTATED "\"n4\",\"n5\",\"n6\",\"n1\",\"n2\",\"n3\""

static void take(struct world *w, const char *uid, const char *resources, const char *node) {
    _cleanup_buf_ struct buf notes = BUF_INIT(0);
    run_pod(w, uid, resources, node, &notes);
}

static void show_nodes(struct world *w) {
    char name[8];
    for (int i = 1; i <= 6; i++) {
        snprintf(name, sizeof(name), "n%d", i);
        show_node(w, name, 1);
    }
    take(w, "1", CORE("90"), "n1");
    take(w, "2", CORE("50"), "n2");
    take(w, "3", CORE("100"), "n3");
    take(w, "4", CORE("60"), "n4");
    take(w, "5", CORE("80"), "n5");
    take(w, "6", CORE("70"), "n6");
}

/* Those that come nearest, however kube-scheduler orders the nodes. */
static void test_nearest_nodes(void **state) {
    struct world *w = *state;
    char first[sizeof(w->refusal)];
    const char *at;
    static const char *const order[] = {"; n2 has free GPU 0: 50 %", "; n4 has free GPU 0: 40 %",
                                        "; n6 has free GPU 0: 30 %", "; n5 has free GPU 0: 20 %",
                                        "; and 2 more nodes"};
    show_nodes(w);
    show_pod(w, "p", CORE("60"), NULL, "");
    assert_int_equal(filter(w, "p", CORE("60"), OFFERED)[0], '-');
    snprintf(first, sizeof(first), "%s", w->refusal);
    at = first;
    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
        if (!strstr(at, order[i]))
            fail_msg("'%s' is not in its place in: %s", order[i], first);
        at = strstr(at, order[i]);
    }
    assert_int_equal(filter(w, "p", CORE("60"), ROTATED)[0], '-');
    assert_string_equal(w->refusal, first);
}

/* Other figures are the same reason; another request, or room that no node could ever give, is not.
 */
static void test_key(void **state) {
    struct world *w = *state;
    uint64_t key;
    show_nodes(w);
    show_pod(w, "p", CORE("60"), NULL, "");
    (void) filter(w, "p", CORE("60"), OFFERED);
    key = w->refusal_key;
    assert_int_not_equal(key, 0);
    take(w, "7", CORE("20"), "n2");
    state_pod_gone(w->state, "3");
    take(w, "8", CORE("70"), "n3");
    (void) filter(w, "p", CORE("60"), ROTATED);
    assert_true(w->refusal_key == key);
    show_pod(w, "q", CORE("55"), NULL, "");
    (void) filter(w, "q", CORE("55"), OFFERED);
    assert_true(w->refusal_key != key);
    show_pod(w, "r", CORE("60"), NULL, "");
    (void) filter(w, "r", CORE("60"), OFFERED);
    assert_true(w->refusal_key == key); /* which pod it is, the writer knows */
}

static void show_model(struct world *w, const char *node, unsigned index, const char *model) {
    struct gpu_object gpu = {.index = index, .memory = 80 * GIB, .healthy = true};
    snprintf(gpu.name, sizeof(gpu.name), "%s-%02u", node, index);
    snprintf(gpu.uuid, sizeof(gpu.uuid), "GPU-%s-%u", node, index);
    snprintf(gpu.node, sizeof(gpu.node), "%s", node);
    snprintf(gpu.model, sizeof(gpu.model), "%s", model);
    assert_int_equal(state_gpu_seen(w->state, &gpu, "{\"allocatable\":null,\"allocated\":null}"),
                     0);
}

/* Free parts of cards that the pod does not want say nothing. */
static void test_models(void **state) {
    struct world *w = *state;
    assert_int_equal(state_node_seen(w->state, "n1"), 0);
    show_model(w, "n1", 0, "NVIDIA A100-SXM4-80GB");
    show_model(w, "n1", 1, "NVIDIA A100-SXM4-80GB");
    show_model(w, "n1", 2, "NVIDIA L4");
    w->annotations = "\"nvidia.com/use-gputype\":\"H100\"";
    show_pod(w, "p", CORE("60"), NULL, w->annotations);
    assert_int_equal(filter(w, "p", CORE("60"), "\"n1\"")[0], '-');
    if (!strstr(w->refusal, "of model H100; n1 has 2 NVIDIA A100-SXM4-80GB, 1 NVIDIA L4"))
        fail_msg("%s", w->refusal);
    assert_null(strstr(w->refusal, "free"));
}

static void note_refusal(struct state_pod *pod, const char *reason, uint64_t key,
                         const char *message, void *userdata) {
    struct world *w = userdata;
    const struct event event = {.namespace = pod->namespace,
                                .name = pod->name,
                                .uid = pod->uid,
                                .api_version = "v1",
                                .kind = "Pod",
                                .reason = reason,
                                .message = message};
    event_writer_note(w->events, &event, key, false, w->now);
}

static void count_events(struct world *w, unsigned *posts, unsigned *patches) {
    for (; w->nasked > 0; respond(w, 0, 201, false, NULL)) {
        *posts += strcmp(w->asked[0].method, "POST") == 0;
        *patches += strcmp(w->asked[0].method, "PATCH") == 0;
    }
}

/* Of 300 pods that wait, with others coming and going and nodes in another order each time, there
 * is one Event object each. */
static void test_one_event_for_each_waiting_pod(void **state) {
    struct world *w = *state;
    unsigned posts = 0, patches = 0;
    char uid[16];
    show_nodes(w);
    w->extender.on_refusal = note_refusal;
    for (int i = 0; i < 300; i++) {
        snprintf(uid, sizeof(uid), "w%d", i);
        show_pod(w, uid, i % 2 ? CORE("60") : CORE("75"), NULL, "");
    }
    for (int round = 0; round < 60; round++) { /* 9 minutes */
        state_pod_gone(w->state, round % 2 ? "7" : "8");
        take(w, round % 2 ? "8" : "7", round % 3 ? CORE("20") : CORE("10"), "n2");
        for (int i = 0; i < 300; i++) {
            snprintf(uid, sizeof(uid), "w%d", i);
            assert_int_equal(
                filter(w, uid, i % 2 ? CORE("60") : CORE("75"), round % 2 ? OFFERED : ROTATED)[0],
                '-');
            count_events(w, &posts, &patches);
        }
        for (int second = 0; second < 9; second++) {
            w->now += 1000;
            event_writer_run(w->events, w->now);
            count_events(w, &posts, &patches);
        }
    }
    assert_int_equal(posts, 300);
    assert_in_range(patches, 300, 300 * 8); /* at 5 s, 15 s, 35 s, 75 s, 155 s, 315 s ... */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        T(test_nearest_nodes),
        T(test_key),
        T(test_models),
        T(test_one_event_for_each_waiting_pod),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
