/* SPDX-License-Identifier: Apache-2.0 */

/* Nodes whose agent cannot serve a pod, and what GPU objects show of that and of shares without a
 * pod. */

#include "kube/objects/node.h"
#include "scheduler-world.h"

#define UNREGISTERED "node's agent is not registered with kubelet"
#define STOPPING "node's agent is stopping or starting"
#define UNREADY "node is not ready"

static void set_absence(struct world *w, const char *node, enum place_reason absence, int changed) {
    assert_int_equal(state_node_absence(w->state, node, absence), changed);
}

static void test_no_pod_without_an_agent(void **state) {
    struct world *w = *state;
    show_node(w, "n", 1);
    show_node(w, "m", 1); /* equivalent, so that one verdict counts for both */
    show_pod(w, "a", HALF, NULL, "");
    set_absence(w, "n", PLACE_NO_AGENT, 1);
    set_absence(w, "n", PLACE_NO_AGENT, 0);
    assert_string_equal(filter(w, "a", HALF, "\"n\",\"m\""), "m");
    state_release(w->state, state_pod_find(w->state, "a"));
    assert_string_equal(filter(w, "a", HALF, "\"n\""), "-" UNREGISTERED);
    assert_non_null(strstr(w->refusal, "n: " UNREGISTERED));
    set_absence(w, "n", PLACE_AGENT_STOPS, 1);
    assert_string_equal(filter(w, "a", HALF, "\"n\""), "-" STOPPING);
    set_absence(w, "n", PLACE_NODE_UNREADY, 1);
    assert_string_equal(filter(w, "a", HALF, "\"n\""), "-" UNREADY);
    set_absence(w, "n", PLACE_OK, 1);
    assert_string_equal(filter(w, "a", HALF, "\"n\""), "n");
}

/* The agent goes between filter and bind: an assumed allocation is no reason to bind. */
static void test_no_binding_without_an_agent(void **state) {
    struct world *w = *state;
    show_node(w, "n", 1);
    show_pod(w, "a", HALF, NULL, "");
    assert_string_equal(filter(w, "a", HALF, "\"n\""), "n");
    set_absence(w, "n", PLACE_AGENT_STOPS, 1);
    bind_pod(w, "a", "n");
    assert_int_equal(w->nasked, 0);
    assert_string_equal(w->bind_answer, "node n: " STOPPING);
    set_absence(w, "n", PLACE_OK, 1);
    bind_pod(w, "a", "n");
    assert_int_equal(w->nasked, 1);
    respond(w, 0, 201, false, NULL);
}

/* kubelet withdraws the resources of a node whose cards are all unhealthy, too. */
static void test_unhealthy_cards_are_the_reason(void **state) {
    struct world *w = *state;
    show_node(w, "n", 1);
    show_gpu(w, "n", 0, false);
    show_pod(w, "a", HALF, NULL, "");
    set_absence(w, "n", PLACE_NO_AGENT, 1);
    assert_string_equal(filter(w, "a", HALF, "\"n\""), "-no GPU of the node is healthy");
}

/* A healthy card that gives no shares any more says nothing of those that do. */
static void test_cards_of_the_past_are_no_reason(void **state) {
    struct world *w = *state;
    struct gpu_object second = {.name = "n-01",
                                .node = "n",
                                .uuid = "GPU-n-1",
                                .index = 1,
                                .memory = 80 * GIB,
                                .healthy = true,
                                .no_shares = true};
    show_node(w, "n", 2);
    show_gpu(w, "n", 0, false);
    show_pod(w, "a", HALF, NULL, "");
    set_absence(w, "n", PLACE_NO_AGENT, 1);
    assert_string_equal(filter(w, "a", HALF, "\"n\""), "-" UNREGISTERED);
    assert_int_equal(state_gpu_seen(w->state, &second, "{}"), 0);
    assert_string_equal(filter(w, "a", HALF, "\"n\""), "-no GPU of the node is healthy");
}

/* ---- what GPU objects show ---- */

#define NOTHING                                                                                    \
    "\"allocatable\":{\"elasticgpu.io/gpu-core\":\"0\",\"elasticgpu.io/gpu-memory\":\"0\"},"       \
    "\"allocated\":{}"
#define HALF_FREE                                                                                  \
    "\"allocatable\":{\"elasticgpu.io/gpu-core\":\"50\",\"elasticgpu.io/gpu-memory\":\"40Gi\"},"   \
    "\"allocated\":{}"
#define ALL_FREE                                                                                   \
    "\"allocatable\":{\"elasticgpu.io/gpu-core\":\"100\",\"elasticgpu.io/gpu-memory\":\"80Gi\"},"  \
    "\"allocated\":{}"

static void show_card(struct world *w, bool healthy, const char *observed) {
    struct gpu_object gpu = {.name = "n-00", .node = "n", .uuid = "GPU-n-0", .memory = 80 * GIB};
    gpu.healthy = healthy;
    gpu.unknown = !healthy;
    assert_int_equal(state_gpu_seen(w->state, &gpu, observed), 0);
}

static void show_status(struct world *w, const char *observed) {
    show_card(w, true, observed);
}

static void show_unknown(struct world *w, const char *observed) {
    show_card(w, false, observed);
}

static void check_made_unknown(struct world *w) {
    const char *begin = "{\"status\":{" NOTHING ",\"state\":\"Unknown\",\"since\":\"2";
    const char *end = "Z\",\"unavailable\":\"" UNREGISTERED "\"}}", *body;
    gpu_status_run(&w->gpu_status, w->parser);
    assert_int_equal(w->nasked, 1);
    body = buf_str(&w->asked[0].body);
    assert_int_equal(strncmp(body, begin, strlen(begin)), 0);
    assert_string_equal(body + strlen(body) - strlen(end), end);
    respond(w, 0, 200, false, NULL);
}

/* The one patch that is sent, and its answer. */
static void check_patch(struct world *w, const char *wanted) {
    gpu_status_run(&w->gpu_status, w->parser);
    assert_int_equal(w->nasked, 1);
    assert_string_equal(buf_str(&w->asked[0].body), wanted);
    respond(w, 0, 200, false, NULL);
}

static void test_absence_is_shown(void **state) {
    struct world *w = *state;
    show_node(w, "n", 1);
    show_status(w, "{" ALL_FREE "}");
    gpu_status_run(&w->gpu_status, w->parser);
    assert_int_equal(w->nasked, 0);
    set_absence(w, "n", PLACE_NO_AGENT, 1);
    check_made_unknown(w);
    show_unknown(w, "{" NOTHING ",\"unavailable\":\"" UNREGISTERED "\"}");
    gpu_status_run(&w->gpu_status, w->parser);
    assert_int_equal(w->nasked, 0);
    set_absence(w, "n", PLACE_NODE_UNREADY, 1);
    check_patch(w, "{\"status\":{" NOTHING ",\"unavailable\":\"" UNREADY "\"}}");
    show_unknown(w, "{" NOTHING ",\"unavailable\":\"" UNREADY "\"}");
    /* The agent writes the state when it is back. */
    set_absence(w, "n", PLACE_OK, 1);
    check_patch(w, "{\"status\":{" NOTHING ",\"unavailable\":null}}");
    show_unknown(w, "{" NOTHING "}");
    gpu_status_run(&w->gpu_status, w->parser);
    assert_int_equal(w->nasked, 0);
    show_status(w, "{" NOTHING "}");
    check_patch(w, "{\"status\":{" ALL_FREE "}}");
    show_status(w, "{" ALL_FREE "}");
}

/* ---- devices that give no shares ---- */

static void show_apart(struct world *w, const char *state) {
    struct gpu_object gpu = {
        .name = "n-00", .node = "n", .uuid = "GPU-n-0", .memory = 80 * GIB, .no_shares = true};
    gpu.healthy = strcmp(state, "Healthy") == 0;
    gpu.unknown = strcmp(state, "Unknown") == 0;
    assert_int_equal(state_gpu_seen(w->state, &gpu, "{" NOTHING "}"), 0);
}

/* A card in MIG mode is no card to place on, and is Unknown without its agent as others are. */
static void test_cards_without_shares(void **state) {
    struct world *w = *state;
    show_node(w, "n", 1);
    show_pod(w, "a", HALF, NULL, "");
    assert_string_equal(filter(w, "a", HALF, "\"n\""), "n");
    state_release(w->state, state_pod_find(w->state, "a"));
    show_apart(w, "Healthy");
    assert_string_equal(filter(w, "a", HALF, "\"n\""), "-node has no GPU");
    gpu_status_run(&w->gpu_status, w->parser);
    assert_int_equal(w->nasked, 0);
    /* The node offers no shares at all, which says nothing of the agent. */
    set_absence(w, "n", PLACE_NO_AGENT, 1);
    gpu_status_run(&w->gpu_status, w->parser);
    assert_int_equal(w->nasked, 0);
    assert_int_equal(state_node_apart_absence(w->state, "n", PLACE_NO_AGENT), 1);
    assert_int_equal(state_node_apart_absence(w->state, "n", PLACE_NO_AGENT), 0);
    check_made_unknown(w);
    show_apart(w, "Unknown");
    assert_int_equal(state_node_apart_absence(w->state, "n", PLACE_OK), 1);
    gpu_status_run(&w->gpu_status, w->parser);
    assert_int_equal(w->nasked, 0);
    /* MIG mode is off again. */
    set_absence(w, "n", PLACE_OK, 1);
    show_card(w, true, "{" NOTHING "}");
    assert_string_equal(filter(w, "a", HALF, "\"n\""), "n");
}

static void see_agent(struct world *w, const char *uid, bool runs) {
    assert_int_equal(state_agent_pod_seen(w->state, "n", uid, runs), 0);
}

static void check_nothing_written(struct world *w) {
    gpu_status_run(&w->gpu_status, w->parser);
    assert_int_equal(w->nasked, 0);
}

/* Nothing in a Node that has never offered anything to pods shows that there is an agent. */
static void test_by_the_pod_of_the_agent(void **state) {
    struct world *w = *state;
    show_node(w, "n", 1);
    show_apart(w, "Healthy");
    set_absence(w, "n", PLACE_NO_AGENT, 1);
    see_agent(w, "first", true);
    see_agent(w, "second", false); /* it has not started yet */
    check_nothing_written(w);
    see_agent(w, "second", true);
    see_agent(w, "first", false);
    check_nothing_written(w);
    see_agent(w, "second", false);
    check_made_unknown(w);
    show_apart(w, "Unknown");
    /* The next one writes before its pod is shown. */
    show_apart(w, "Healthy");
    check_nothing_written(w);
    see_agent(w, "third", true);
    check_nothing_written(w);
    state_sync_begin(w->state, STATE_PODS);
    see_agent(w, "third", true);
    state_sync_end(w->state, STATE_PODS);
    check_nothing_written(w);
    w->now += 60000;
    state_sync_begin(w->state, STATE_PODS);
    state_sync_end(w->state, STATE_PODS);
    check_made_unknown(w);
}

/* An instance with a capacity is placed on by what it has of a card; a whole card is never it. */
static void test_shares_of_an_instance(void **state) {
    struct world *w = *state;
    struct gpu_object gpu = {.name = "n-00-gi1-ci0",
                             .node = "n",
                             .uuid = "MIG-1",
                             .parent = "GPU-n-0",
                             .memory = 20 * GIB,
                             .core = 28,
                             .healthy = true,
                             .mig = {.profile = "2g.20gb"}};
    show_node(w, "n", 1);
    show_apart(w, "Healthy");
    assert_int_equal(state_gpu_seen(w->state, &gpu, "{" NOTHING "}"), 0);
    check_patch(w, "{\"status\":{\"allocatable\":{\"elasticgpu.io/gpu-core\":\"28\","
                   "\"elasticgpu.io/gpu-memory\":\"20Gi\"},\"allocated\":{}}}");
    show_pod(w, "a", HALF, NULL, "");
    assert_string_equal(filter(w, "a", HALF, "\"n\""),
                        "-no GPU or MIG instance has that much compute");
    assert_non_null(strstr(w->refusal, "n has free GPU 0 MIG 2g.20gb: 28 % and 20 GiB"));
    show_pod(w, "b", "\"elasticgpu.io/gpu-core\":\"20\"", NULL, "");
    assert_string_equal(filter(w, "b", "\"elasticgpu.io/gpu-core\":\"20\"", "\"n\""), "n");
    /* It is given out whole again, and b keeps its allocation until the pod ends. */
    gpu.no_shares = true;
    assert_int_equal(state_gpu_seen(w->state, &gpu, "{" NOTHING "}"), 0);
    show_pod(w, "c", "\"elasticgpu.io/gpu-core\":\"1\"", NULL, "");
    assert_string_equal(filter(w, "c", "\"elasticgpu.io/gpu-core\":\"1\"", "\"n\""),
                        "-node has no GPU");
}

/* Beside a card that gives shares they have its node's absence. */
static void test_a_node_with_both(void **state) {
    struct world *w = *state;
    unsigned unknown = 0;
    show_node(w, "n", 2);
    show_apart(w, "Healthy");
    set_absence(w, "n", PLACE_NO_AGENT, 1);
    gpu_status_run(&w->gpu_status, w->parser);
    for (unsigned i = 0; i < w->nasked; i++)
        unknown += strstr(w->asked[i].path, "/n-00/status") &&
                   strstr(buf_str(&w->asked[i].body), "\"state\":\"Unknown\"");
    assert_int_equal(unknown, 1);
    while (w->nasked > 0)
        respond(w, w->nasked - 1, 200, false, NULL);
}

/* The reason of a card that is Unknown because of its node is the node's. */
static void test_unknown_cards_have_the_reason_of_the_node(void **state) {
    struct world *w = *state;
    show_node(w, "n", 1);
    show_unknown(w, "{" NOTHING "}");
    show_pod(w, "a", HALF, NULL, "");
    assert_string_equal(filter(w, "a", HALF, "\"n\""), "-no GPU of the node is healthy");
    set_absence(w, "n", PLACE_NO_AGENT, 1);
    assert_string_equal(filter(w, "a", HALF, "\"n\""), "-" UNREGISTERED);
    show_status(w, "{" NOTHING "}");
    set_absence(w, "n", PLACE_OK, 1);
    assert_string_equal(filter(w, "a", HALF, "\"n\""), "n");
}

/* A reservation or a claim that no pod uses. */
static void test_holds_without_a_pod_are_shown(void **state) {
    struct world *w = *state;
    const struct assigned_device half = {.uuid = "GPU-n-0", .core = 50, .memory = 40 * GIB};
    show_node(w, "n", 1);
    show_status(w, "{" ALL_FREE "}");
    gpu_status_run(&w->gpu_status, w->parser);
    assert_int_equal(state_reserve(w->state, "reservation/r", "n", &half, 1), 0);
    const char *held =
        "{\"status\":{" HALF_FREE ",\"held\":[{\"by\":\"reservation r\",\"resource\":{"
        "\"elasticgpu.io/gpu-core\":\"50\",\"elasticgpu.io/gpu-memory\":\"40Gi\"}}],"
        "\"heldBy\":\"reservation r\"}}";
    check_patch(w, held);
    show_status(w, "{" HALF_FREE ",\"held\":[{\"by\":\"reservation r\",\"resource\":{"
                   "\"elasticgpu.io/gpu-core\":\"50\",\"elasticgpu.io/gpu-memory\":\"40Gi\"}}],"
                   "\"heldBy\":\"reservation r\"}");
    gpu_status_run(&w->gpu_status, w->parser);
    assert_int_equal(w->nasked, 0);
    state_reserved_name(w->state, "reservation/r", "claim d/c (ElasticGPU e)");
    gpu_status_run(&w->gpu_status, w->parser);
    assert_non_null(strstr(buf_str(&w->asked[0].body), "\"by\":\"claim d/c (ElasticGPU e)\""));
    respond(w, 0, 200, false, NULL);
    const struct assigned_device fifth = {.uuid = "GPU-n-0", .core = 20, .memory = 8 * GIB};
    assert_int_equal(state_reserve(w->state, "reservation/s", "n", &fifth, 1), 0);
    gpu_status_run(&w->gpu_status, w->parser);
    assert_non_null(strstr(buf_str(&w->asked[0].body), " and 1 more\"}}"));
    respond(w, 0, 200, false, NULL);
    state_unreserve(w->state, "reservation/s");
    state_unreserve(w->state, "reservation/r");
    check_patch(w, "{\"status\":{" ALL_FREE ",\"held\":null,\"heldBy\":null}}");
    show_status(w, "{" ALL_FREE "}");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        T(test_no_pod_without_an_agent),
        T(test_no_binding_without_an_agent),
        T(test_unhealthy_cards_are_the_reason),
        T(test_cards_of_the_past_are_no_reason),
        T(test_absence_is_shown),
        T(test_cards_without_shares),
        T(test_by_the_pod_of_the_agent),
        T(test_shares_of_an_instance),
        T(test_a_node_with_both),
        T(test_holds_without_a_pod_are_shown),
        T(test_unknown_cards_have_the_reason_of_the_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
