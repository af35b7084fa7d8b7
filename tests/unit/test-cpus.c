/* SPDX-License-Identifier: Apache-2.0 */

/* Cards on the NUMA node where kubelet will have the exclusive CPUs of a container. */

#include "scheduler-world.h"

#define CARDS 4 /* two on each of two NUMA nodes */
#define NEAR_0 (1 << 0 | 1 << 1)
#define NEAR_1 (1 << 2 | 1 << 3)
#define ALL (NEAR_0 | NEAR_1)

static void show_cards(struct world *w, bool known) {
    for (uint32_t i = 0; i < CARDS; i++) {
        struct gpu_object gpu = {.index = i, .memory = 80 * GIB, .healthy = true};
        gpu.numa = known ? (int8_t) (i / 2) : -1;
        snprintf(gpu.name, sizeof(gpu.name), "n-%02u", i);
        snprintf(gpu.uuid, sizeof(gpu.uuid), "GPU-%u", i);
        snprintf(gpu.node, sizeof(gpu.node), "n");
        assert_int_equal(state_gpu_seen(w->state, &gpu, NULL), 0);
    }
}

static void show_cpus(struct world *w, const char *text) {
    struct node_cpus cpus;
    node_cpus_read(text, &cpus);
    assert_int_equal(state_node_cpus(w->state, "n", &cpus), 0);
}

/* A pod that requests half of a card, or none, and so many CPUs. `node`: where it runs, or NULL. */
static void show_class(struct world *w, const char *uid, bool gpu, const char *cpu,
                       const char *node, const char *class) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    buf_printf(&text,
               "{\"metadata\":{\"name\":\"%s\",\"namespace\":\"d\",\"uid\":\"%s\"},\"spec\":{", uid,
               uid);
    if (node)
        buf_printf(&text, "\"nodeName\":\"%s\",", node);
    buf_printf(&text,
               "\"containers\":[{\"name\":\"main\",\"resources\":{\"limits\":{%s},"
               "\"requests\":{\"cpu\":\"%s\"}}}]},\"status\":{\"qosClass\":\"%s\"}}",
               gpu ? HALF : "", cpu, class);
    show_text(w, buf_str(&text));
}

static void show(struct world *w, const char *uid, bool gpu, const char *cpu, const char *node) {
    show_class(w, uid, gpu, cpu, node, "Guaranteed");
}

/* Where the pod is placed, as bits; it is bound there. */
static uint64_t place(struct world *w, const char *uid, const char *cpu, bool *ret_far) {
    struct state_node *node = state_node_find(w->state, "n");
    struct gpu_request request;
    struct place_plan plan;
    struct place_result result;
    show(w, uid, true, cpu, NULL);
    struct state_pod *pod = state_pod_find(w->state, uid);
    state_plan(w->state, pod, &request, &plan);
    assert_int_equal(state_place(w->state, &plan, node, pod, false, &result), PLACE_OK);
    assert_int_equal(state_allocate(w->state, pod, node, &result, POD_AWAITED, w->now), 0);
    *ret_far = result.worth.far;
    return result.cards[0];
}

static void expect(struct world *w, const char *uid, const char *cpu, uint64_t cards, bool far) {
    bool seen_far;
    uint64_t seen = place(w, uid, cpu, &seen_far);
    if ((seen & ~cards) || seen_far != far)
        fail_msg("%s with %s CPUs has cards %#x and is %s", uid, cpu, (unsigned) seen,
                 seen_far ? "far" : "near");
    state_release(w->state, state_pod_find(w->state, uid));
}

/* As expect(), and the pod stays. */
static void run(struct world *w, const char *uid, const char *cpu, uint64_t cards, bool far) {
    bool seen_far;
    expect(w, uid, cpu, cards, far);
    (void) place(w, uid, cpu, &seen_far);
}

static void test_where_kubelet_has_them(void **state) {
    struct world *w = *state;
    show_cards(w, true);
    expect(w, "p", "4", 1, false); /* nothing is known: as the policy says */
    show_cpus(w, "0=2/8,1=8/8");
    expect(w, "p", "4", NEAR_1, false);
    expect(w, "p", "2", NEAR_0, false); /* the first NUMA node that has enough */
    expect(w, "p", "9", 1, true);
    expect(w, "p", "1500m", 1, false); /* not for itself */
    show_cpus(w, "1=1/8");
    expect(w, "p", "1", NEAR_1, false);
    show_cards(w, false);
    expect(w, "p", "1", 1, false);
}

/* The first NUMA node that has enough, although the other one has a card in use. */
static void test_the_first_of_two(void **state) {
    struct world *w = *state;
    show_cards(w, true);
    show_cpus(w, "0=0/8,1=8/8");
    run(w, "u", "1", NEAR_1, false);
    expect(w, "p", "1500m", NEAR_1, false);
    show_cpus(w, "0=8/8,1=7/8");
    expect(w, "p", "4", NEAR_0, false);
}

/* kubelet is told the NUMA node of shares where all cards are on one. */
static void test_cards_on_one_numa_node(void **state) {
    struct world *w = *state;
    show_cards(w, true);
    show_cpus(w, "0=8/8,1=4/8");
    expect(w, "p", "4", NEAR_0, false);
    state_gpu_gone(w->state, "n-00");
    state_gpu_gone(w->state, "n-01");
    expect(w, "p", "4", 1, false);
    expect(w, "p", "5", 1, true);
}

/* Pods are bound faster than kubelet starts them and the agent sees it. */
static void test_cpus_that_the_agent_has_not_seen(void **state) {
    struct world *w = *state;
    show_cards(w, true);
    show_cpus(w, "0=8/8,1=8/8");
    run(w, "a", "4", NEAR_0, false);
    run(w, "b", "4", NEAR_0, false);
    run(w, "c", "4", NEAR_1, false);
    show_cpus(w, "0=4/8,1=8/8"); /* of a */
    expect(w, "d", "4", NEAR_1, false);
    show_cpus(w, "0=0/8,1=4/8");
    expect(w, "d", "4", NEAR_1, false);
    expect(w, "d", "5", ALL, true);
    state_pod_gone(w->state, "a");
    expect(w, "d", "4", NEAR_1, false); /* kubelet may still have them for it */
    show_cpus(w, "0=4/8,1=4/8");
    expect(w, "d", "4", NEAR_0, false);
}

/* What a pod has does not keep it from where it is, and what others without cards have counts. */
static void test_whose_cpus(void **state) {
    struct world *w = *state;
    bool far;
    show_cards(w, true);
    show_cpus(w, "0=0/4,1=4/4");
    show(w, "load", false, "4", "n");
    run(w, "a", "4", NEAR_1, false);
    assert_int_equal(place(w, "a", "4", &far) & ~(uint64_t) NEAR_1, 0);
    assert_false(far);
    expect(w, "b", "1", ALL, true);
    state_pod_gone(w->state, "load");
    show_cpus(w, "0=4/4,1=0/4");
    expect(w, "b", "1", NEAR_0, false);
}

/* kubelet gives a pod without cards CPUs anywhere; those of the others are seen already. */
static void test_cpus_of_others_that_the_agent_has_not_seen(void **state) {
    struct world *w = *state;
    show_cards(w, true);
    show_cpus(w, "0=8/8,1=8/8");
    run(w, "a", "4", NEAR_0, false);
    show_cpus(w, "0=4/8,1=8/8");
    show(w, "load", false, "4", "n");
    expect(w, "b", "4", NEAR_0, false);
    show_cpus(w, "0=4/8,1=4/8");
    run(w, "b", "4", NEAR_0, false);
    expect(w, "c", "4", NEAR_1, false);
    show(w, "more", false, "2", "n");
    expect(w, "c", "4", NEAR_1, false);
}

/* The same while the agent has not seen them. */
static void test_own_cpus_that_the_agent_has_not_seen(void **state) {
    struct world *w = *state;
    bool far;
    show_cards(w, true);
    show_cpus(w, "0=4/4,1=8/8");
    run(w, "a", "4", NEAR_0, false);
    run(w, "b", "4", NEAR_1, false);
    run(w, "c", "4", NEAR_1, false);
    assert_int_equal(place(w, "c", "4", &far) & ~(uint64_t) NEAR_1, 0);
    assert_false(far);
    show_cpus(w, "0=0/4,1=4/8"); /* of a and b */
    assert_int_equal(place(w, "c", "4", &far) & ~(uint64_t) NEAR_1, 0);
    assert_false(far);
}

/* A node where they are near goes first, whatever else the policy says. */
static void test_of_two_nodes(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf annotations = BUF_INIT(0);
    struct gpu_request request;
    struct place_plan plan;
    int64_t score[2], same[2];
    show_cards(w, true);
    show_node(w, "other", 1);
    run_pod(w, "x", HALF, "other", &annotations); /* bin-packing goes there */
    show(w, "p", true, "4", NULL);
    show(w, "q", true, "4500m", NULL);
    const struct state_pod *pods[] = {state_pod_find(w->state, "p"), state_pod_find(w->state, "q")};
    struct state_head *heads[] = {state_node_find(w->state, "n")->head,
                                  state_node_find(w->state, "other")->head};
    show_cpus(w, "0=4/4,1=4/4");
    struct node_cpus none = {.all = {4}};
    assert_int_equal(state_node_cpus(w->state, "other", &none), 0);
    for (int i = 0; i < 2; i++) {
        state_plan(w->state, pods[0], &request, &plan);
        assert_int_equal(state_judge(w->state, &plan, heads[i], pods[0], &score[i]), PLACE_OK);
        state_plan(w->state, pods[1], &request, &plan);
        assert_int_equal(state_judge(w->state, &plan, heads[i], pods[1], &same[i]), PLACE_OK);
    }
    assert_true(score[0] > score[1]);
    assert_true(same[0] < same[1]);
    show_cpus(w, "0=3/4,1=3/4");
    state_plan(w->state, pods[0], &request, &plan);
    assert_int_equal(state_judge(w->state, &plan, heads[0], pods[0], &score[0]), PLACE_OK);
    assert_true(score[0] < score[1]);
}

/* What is remembered of one is not true of the other. */
static void test_pods_of_two_classes(void **state) {
    struct world *w = *state;
    static const char *const classes[] = {"Burstable", "Guaranteed"};
    struct state_head *head;
    show_cards(w, true);
    show_cpus(w, "0=0/4,1=0/4");
    head = state_node_find(w->state, "n")->head;
    for (int i = 0; i < 2; i++) {
        struct state_node *node = head->node;
        struct gpu_request request;
        struct place_plan plan;
        struct place_result result;
        int64_t score;
        show_class(w, classes[i], true, "4", NULL, classes[i]);
        const struct state_pod *pod = state_pod_find(w->state, classes[i]);
        state_plan(w->state, pod, &request, &plan);
        assert_int_equal(state_judge(w->state, &plan, head, pod, &score), PLACE_OK);
        assert_int_equal(state_place(w->state, &plan, node, pod, false, &result), PLACE_OK);
        assert_true(score == result.score);
        assert_int_equal(result.worth.far, i);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        T(test_where_kubelet_has_them),
        T(test_the_first_of_two),
        T(test_cards_on_one_numa_node),
        T(test_cpus_that_the_agent_has_not_seen),
        T(test_whose_cpus),
        T(test_cpus_of_others_that_the_agent_has_not_seen),
        T(test_own_cpus_that_the_agent_has_not_seen),
        T(test_of_two_nodes),
        T(test_pods_of_two_classes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
