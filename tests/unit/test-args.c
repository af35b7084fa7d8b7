/* SPDX-License-Identifier: Apache-2.0 */

/* Filter and prioritize asked with whole Node objects: by a kube-scheduler without
 * nodeCacheCapable, and by a cluster autoscaler about nodes that do not exist. */

#include "place/policies/policies.h"
#include "place/workload/workload_model.h"
#include "scheduler-world.h"

#define HALF "\"elasticgpu.io/gpu-core\":\"50\""
#define TFLOPS(n) "\"elasticgpu.io/slot\":\"1\",\"elasticgpu.io/gpu-tflops\":\"" n "\""
#define SHARE "\"elasticgpu.io/gpu-core\":\"50\",\"elasticgpu.io/gpu-memory\":\"20Gi\""

#define EMPTY                                                                                      \
    "{\"metadata\":{\"name\":\"new\",\"labels\":{\"zone\":\"z\"}},\"status\":{\"allocatable\":{"   \
    "\"elasticgpu.io/gpu-core\":\"200\",\"elasticgpu.io/gpu-memory\":\"80Gi\"}}}"
#define BY_LABELS                                                                                  \
    "{\"metadata\":{\"name\":\"cloud\",\"labels\":{\"nvidia.com/gpu.memory\":\"24576\","           \
    "\"nvidia.com/gpu.product\":\"NVIDIA-A10\"}},\"status\":{\"allocatable\":{\"nvidia.com/gpu\":" \
    "\"1\"}}}"
#define PLAIN "{\"metadata\":{\"name\":\"plain\"},\"status\":{\"allocatable\":{\"cpu\":\"4\"}}}"

/* Asks about the Node objects in `nodes` and returns the answer, which is valid until the next. */
static struct json ask_objects(struct world *w, bool prioritize, const char *uid,
                               const char *resources, const char *annotations, const char *nodes) {
    _cleanup_buf_ struct buf body = BUF_INIT(0), answer = BUF_INIT(0);
    struct json root;
    buf_puts(&body, "{\"pod\":");
    put_pod(&body, uid, resources, NULL, annotations, "Pending");
    buf_printf(&body, ",\"nodes\":{\"Items\":[%s]},\"NodeNames\":null}", nodes);
    if (prioritize)
        extender_prioritize(&w->extender, body.data, body.len, w->now, &answer);
    else
        extender_filter(&w->extender, body.data, body.len, w->now, &answer);
    assert_int_equal(json_parse(w->parser, answer.data, answer.len, &root, NULL), 0);
    return root;
}

/* The names that a filter lets pass, each with a blank behind it. */
static const char *passed(struct json answer) {
    static char out[1024];
    size_t len = 0;
    struct json_iter it = json_iter(JSON_PATH(answer, "Nodes", "items"));
    struct json node;
    assert_string_equal(json_string(json_get(answer, "Error")), "");
    assert_false(json_valid(json_get(answer, "NodeNames")));
    *out = '\0';
    while (json_next(&it, NULL, &node)) {
        len += (size_t) snprintf(out + len, sizeof(out) - len, "%s ",
                                 json_string(JSON_PATH(node, "metadata", "name")));
    }
    return out;
}

static const char *failed(struct json answer, const char *node) {
    return uncounted(json_string(JSON_PATH(answer, "FailedAndUnresolvableNodes", node)));
}

static void test_known_nodes_as_objects(void **state) {
    struct world *w = *state;
    static const char both[] =
        "{\"metadata\":{\"name\":\"a\",\"labels\":{\"zone\":\"z\"}},\"spec\":{\"x\":1}},"
        "{\"metadata\":{\"name\":\"b\"}}";
    show_node(w, "a", 1);
    show_node(w, "b", 0);
    struct json answer = ask_objects(w, false, "p", HALF, "", both);
    assert_string_equal(passed(answer), "a ");
    assert_non_null(failed(answer, "b"));
    struct json_iter it = json_iter(JSON_PATH(answer, "Nodes", "items"));
    struct json node;
    assert_true(json_next(&it, NULL, &node));
    assert_string_equal(json_string(JSON_PATH(node, "metadata", "labels", "zone")), "z");
    /* A node that is known is a real one: the pod is assumed on the only one that fits. */
    assert_int_equal(state_pod_find(w->state, "p")->stage, POD_ASSUMED);
}

static void test_nodes_that_do_not_exist(void **state) {
    struct world *w = *state;
    struct json answer = ask_objects(w, false, "p", SHARE, "", EMPTY "," BY_LABELS "," PLAIN);
    assert_string_equal(passed(answer), "new cloud ");
    assert_string_equal(failed(answer, "plain"), place_reason_text(PLACE_NO_GPU));
    /* Nothing is remembered of the question. */
    assert_null(state_pod_find(w->state, "p"));
    assert_null(state_node_find(w->state, "new"));
    assert_int_equal(w->refusals, 0);

    answer =
        ask_objects(w, false, "p", "\"elasticgpu.io/gpu-core\":\"200\"", "", EMPTY "," BY_LABELS);
    assert_string_equal(passed(answer), "new ");
    assert_string_equal(failed(answer, "cloud"), place_reason_text(PLACE_TOO_FEW));
    answer = ask_objects(w, false, "p",
                         "\"elasticgpu.io/gpu-core\":\"10\",\"elasticgpu.io/gpu-memory\":\"30Gi\"",
                         "", EMPTY "," BY_LABELS);
    assert_string_equal(passed(answer), "new ");
    assert_string_equal(failed(answer, "cloud"), place_reason_text(PLACE_TOO_LARGE));

    /* An A10 has 125 TFLOPS; of the other the model is not known. */
    answer = ask_objects(w, false, "p", TFLOPS("125"), "", EMPTY "," BY_LABELS);
    assert_string_equal(passed(answer), "cloud ");
    assert_string_equal(failed(answer, "new"), place_reason_text(PLACE_NO_TFLOPS));
    answer = ask_objects(w, false, "p", TFLOPS("126"), "", BY_LABELS);
    assert_string_equal(failed(answer, "cloud"), place_reason_text(PLACE_TOO_SLOW));

    struct json scores = ask_objects(w, true, "p", HALF, "", EMPTY "," PLAIN);
    assert_int_equal(json_size(scores), 2);
    assert_null(state_pod_find(w->state, "p"));
}

/* A real pod that waits is asked about, too: what is known of it stays. */
static void test_a_pod_that_is_known(void **state) {
    struct world *w = *state;
    show_pod(w, "p", HALF, NULL, "");
    struct json answer = ask_objects(w, false, "p", HALF, "", EMPTY);
    assert_string_equal(passed(answer), "new ");
    assert_non_null(state_pod_find(w->state, "p"));
    assert_int_equal(state_pod_find(w->state, "p")->stage, POD_PENDING);
    assert_false(state_pod_find(w->state, "p")->requeue.refused);
    answer = ask_objects(w, false, "p", "\"elasticgpu.io/gpu-core\":\"150\"", "", EMPTY);
    assert_string_equal(passed(answer), "");
}

static bool is_rough(struct world *w, const char *node) {
    const struct state_verdict *v = state_node_find(w->state, node)->head->equivalence->verdicts.of;
    bool rough = false, fine = false;
    for (uint32_t i = 0; i < STATE_VERDICTS; i++) {
        rough |= v[i].shape && v[i].worth.rough;
        fine |= v[i].shape && !v[i].worth.rough;
    }
    assert_true(rough != fine);
    return rough;
}

/* All nodes are judged roughly, the best one closely: that is where the pod goes. Pods that are
 * only asked about have not arrived. */
static void test_what_is_learned(void **state) {
    struct world *w = *state;
    struct place_model *m = place_model_new();
    assert_non_null(m);
    w->state->policy = &place_esc;
    state_learn_from(w->state, m, 0);
    for (int i = 0; i < 20; i++) {
        char uid[8];
        snprintf(uid, sizeof(uid), "u%d", i);
        show_pod(w, uid, HALF, NULL, "");
    }
    uint64_t arrived = w->state->arrived;
    assert_int_equal(arrived, 20);
    assert_true(place_model_knows(m));
    (void) ask_objects(w, false, "p", HALF, "", EMPTY);
    (void) ask_objects(w, true, "p", HALF, "", EMPTY);
    assert_int_equal(w->state->arrived, arrived);

    static const char both[] = "{\"metadata\":{\"name\":\"a\"}},{\"metadata\":{\"name\":\"b\"}}";
    show_node(w, "a", 2);
    show_node(w, "b", 2);
    (void) ask_objects(w, false, "p", HALF, "", both);
    assert_int_equal(w->state->arrived, arrived + 1);
    assert_true(is_rough(w, "a") && is_rough(w, "b"));
    (void) ask_objects(w, true, "p", HALF, "", both);
    const char *best = state_pod_find(w->state, "p")->node->name;
    assert_false(is_rough(w, best));
    w->state->model = NULL;
    place_model_free(m);
}

static const char *no_name(void *self, uint32_t model) {
    (void) self, (void) model;
    return NULL;
}

/* What is learned of compute in TFLOPS is the part that it is of the cards that are there, also of
 * pods that were there before anything was learned. */
static void test_tflops_are_learned(void **state) {
    struct world *w = *state;
    static const char quarter[] =
        "\"elasticgpu.io/gpu-tflops\":\"78\",\"elasticgpu.io/slot\":\"1\"";
    const struct workload_names names = {NULL, no_name, NULL};
    struct place_model *m = place_model_new();
    struct gpu_object gpu = {.memory = 80 * GIB, .healthy = true};
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    assert_non_null(m);
    assert_int_equal(state_node_seen(w->state, "n"), 0);
    snprintf(gpu.name, sizeof(gpu.name), "n-00");
    snprintf(gpu.uuid, sizeof(gpu.uuid), "GPU-n-0");
    snprintf(gpu.node, sizeof(gpu.node), "n");
    snprintf(gpu.model, sizeof(gpu.model), "NVIDIA A100-SXM4-80GB"); /* 312 TFLOPS */
    assert_int_equal(state_gpu_seen(w->state, &gpu, NULL), 0);
    show_pod(w, "a", quarter, NULL, "");
    state_learn_from(w->state, m, 0);
    show_pod(w, "b", quarter, NULL, "");
    place_model_write(m, &names, &text);
    assert_non_null(strstr(buf_str(&text), "shape 1 25 0 0 any 2"));
    w->state->model = NULL;
    place_model_free(m);
}

static void test_no_nodes(void **state) {
    struct world *w = *state;
    static const char *const lists[] = {"7", "{\"metadata\":{}}", "{\"metadata\":{\"name\":5}}",
                                        "\"a\""};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        struct json answer = ask_objects(w, false, "p", HALF, "", lists[i]);
        assert_non_null(strstr(json_string(json_get(answer, "Error")), "nodes with a name"));
    }
    struct json answer = ask_objects(w, false, "p", HALF, "", "");
    assert_string_equal(passed(answer), "");
}

/* 5,000 unknown names. */
static void test_unknown_names(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf body = BUF_INIT(0), answer = BUF_INIT(0);
    struct json root;
    buf_puts(&body, "{\"Pod\":");
    put_pod(&body, "p", HALF, NULL, "", "Pending");
    buf_puts(&body, ",\"NodeNames\":[\"x\"");
    for (int i = 0; i < 5000; i++)
        buf_printf(&body, ",\"node-%d\"", i);
    buf_puts(&body, "]}");
    assert_int_equal(extender_filter(&w->extender, body.data, body.len, 0, &answer), 0);
    assert_int_equal(json_parse(w->parser, answer.data, answer.len, &root, NULL), 0);
    assert_int_equal(json_size(json_get(root, "NodeNames")), 0);
    assert_int_equal(json_size(json_get(root, "FailedAndUnresolvableNodes")), 5001);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_known_nodes_as_objects, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nodes_that_do_not_exist, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_pod_that_is_known, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_learned, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tflops_are_learned, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_nodes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unknown_names, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
