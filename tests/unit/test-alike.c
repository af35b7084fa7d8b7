/* SPDX-License-Identifier: Apache-2.0 */

/* Verdicts are kept by node, and shared by nodes that are alike. Whatever has happened, they must
 * be what a look at the node itself would say. */

#include "scheduler-world.h"

#include "kube/gpu_link.h"

#define NODES 16
#define CARDS 2
#define PODS 10
#define STEPS 4000
#define ODD 20 /* one in so many is another */

static uint32_t chance = 1;

static uint32_t below(uint32_t n) {
    chance = chance * 1664525 + 1013904223;
    return (chance >> 8) % n;
}

static const char *node_name(uint32_t i) {
    static char name[16];
    snprintf(name, sizeof(name), "n%02u", i);
    return name;
}

static const char *pod_name(uint32_t i) {
    static char name[16];
    snprintf(name, sizeof(name), "p%02u", i);
    return name;
}

/* Mostly the same everywhere, so that nodes are alike again and again. */
static void change_card(struct world *w, const char *node, uint32_t index) {
    static const char *const models[] = {"Made-up One", "Made-up Two"};
    struct gpu_object gpu = {.index = index, .memory = 80 * GIB, .healthy = below(ODD) > 0};
    snprintf(gpu.name, sizeof(gpu.name), "%s-%02u", node, index);
    snprintf(gpu.uuid, sizeof(gpu.uuid), "GPU-%s-%u", node, index);
    snprintf(gpu.node, sizeof(gpu.node), "%s", node);
    snprintf(gpu.model, sizeof(gpu.model), "%s", models[below(ODD) == 0]);
    gpu.numa = below(ODD) == 0 ? 1 : 0;
    gpu.capacity = below(ODD) == 0 ? 160 * GIB : 0;
    if (below(ODD) == 0) {
        gpu.nlinks = CARDS;
        memset(gpu.links, LINK_NVLINK, CARDS);
    }
    assert_int_equal(state_gpu_seen(w->state, &gpu, NULL), 0);
}

static void show_all(struct world *w) {
    for (uint32_t n = 0; n < NODES; n++) {
        assert_int_equal(state_node_seen(w->state, node_name(n)), 0);
        for (uint32_t c = 0; c < CARDS; c++)
            change_card(w, node_name(n), c);
    }
}

/* ---- pods ---- */

static const char *const wishes[] = {
    "",
    "",
    "",
    "\"elasticgpu.io/gpu-model\":\"One\"",
    "\"nvidia.com/nouse-gputype\":\"Two\"",
    "\"nvidia.com/use-gpuuuid\":\"GPU-n03-1,GPU-n05-0\"",
    "\"nvidia.com/nouse-gpuuuid\":\"GPU-n03-1\"",
    "\"elasticgpu.io/topology\":\"restricted\"",
    "\"elasticgpu.io/placement-policy\":\"spread\"",
    "\"elasticgpu.io/placement-policy\":\"fgd\"",
};

static const char *resources(void) {
    static char text[128];
    static const char *const rows[] = {
        "\"elasticgpu.io/gpu-core\":\"%u\"",
        "\"elasticgpu.io/gpu-core\":\"%u\",\"elasticgpu.io/gpu-memory\":\"8Gi\"",
        "\"elasticgpu.io/gpu-memory\":\"%uGi\",\"elasticgpu.io/slot\":\"1\"",
        "\"elasticgpu.io/gpu-core\":\"%u00\""};
    uint32_t row = below(4);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(text, sizeof(text), rows[row], row == 3 ? 1 + below(3) : 10 * (1 + below(6)));
#pragma GCC diagnostic pop
    return text;
}

static struct state_pod *make_pod(struct world *w, uint32_t i) {
    state_pod_gone(w->state, pod_name(i));
    show_pod(w, pod_name(i), resources(), NULL, wishes[below(sizeof(wishes) / sizeof(*wishes))]);
    struct state_pod *pod = state_pod_find(w->state, pod_name(i));
    assert_int_equal(state_draw(pod, NULL, below(4) ? NULL : "nobody"), 0);
    return pod;
}

static void place_somewhere(struct world *w, struct state_pod *pod) {
    struct state_node *node = state_node_find(w->state, node_name(below(NODES)));
    struct gpu_request request;
    struct place_plan plan;
    struct place_result result;
    state_plan(w->state, pod, &request, &plan);
    if (node && state_place(w->state, &plan, node, pod, false, &result) == PLACE_OK)
        assert_int_equal(
            state_promise(w->state, pod, node, &result, POD_PROMISED + below(2), w->now), 0);
}

static void hold_somewhere(struct world *w) {
    struct assigned_device device = {.core = 30, .memory = 20 * GIB};
    const char *node = node_name(below(NODES));
    snprintf(device.uuid, sizeof(device.uuid), "GPU-%s-%u", node, below(CARDS));
    /* For somebody who is there, or for nobody. */
    const char *id = below(2) ? pod_name(below(PODS)) : "nobody";
    if (below(3) == 0)
        state_unreserve(w->state, id);
    else
        assert_int_equal(state_reserve(w->state, id, node, &device, 1), 0);
}

/* ---- what happens ---- */

static void step(struct world *w) {
    struct state_pod *pod;
    switch (below(8)) {
    case 0:
        change_card(w, node_name(below(NODES)), below(CARDS));
        break;
    case 1:
        hold_somewhere(w);
        break;
    case 2:
        assert_int_equal(
            state_node_room(w->state, node_name(below(NODES)),
                            (struct cpu_memory){8000 * (1 + (below(ODD) == 0)), 64 * GIB}),
            0);
        break;
    case 3:
        if ((pod = state_pod_find(w->state, pod_name(below(PODS)))))
            state_release(w->state, pod);
        break;
    default:
        place_somewhere(w, make_pod(w, below(PODS)));
    }
}

/* A verdict, the first time or from memory, against a look at the node. */
static void compare_all(struct world *w, const struct state_pod *pod) {
    struct gpu_request request;
    struct place_plan plan;
    state_plan(w->state, pod, &request, &plan);
    for (uint32_t n = 0; n < NODES; n++) {
        struct state_node *node = state_node_find(w->state, node_name(n));
        struct place_result result = {.score = 0};
        int64_t score;
        enum place_reason verdict = state_judge(w->state, &plan, node, pod, &score);
        enum place_reason reason = state_place(w->state, &plan, node, pod, false, &result);
        assert_int_equal(verdict, reason);
        assert_true(verdict != PLACE_OK || score == result.score);
    }
}

static void test_verdicts_are_what_a_look_says(void **state) {
    struct world *w = *state;
    uint32_t shared = 0;
    show_all(w);
    for (uint32_t i = 0; i < PODS; i++)
        (void) make_pod(w, i);
    for (uint32_t i = 0; i < STEPS; i++) {
        struct state_pod *pod;
        step(w);
        for (uint32_t asked = 0; asked < 3; asked++)
            if ((pod = state_pod_find(w->state, pod_name(below(PODS)))))
                compare_all(w, pod);
        shared += HASH_COUNT(w->state->alikes) < NODES;
    }
    assert_in_range(shared, STEPS / 2, STEPS); /* or it was not about nodes that are alike */
}

/* However many nodes there are, a new kind of pod is judged once for each state they are in. */
static void test_a_state_is_judged_once(void **state) {
    struct world *w = *state;
    for (uint32_t n = 0; n < NODES; n++)
        show_node(w, node_name(n), CARDS);
    _cleanup_buf_ struct buf a = BUF_INIT(0);
    run_pod(w, "a", HALF, "n03", &a);
    state_refresh_all(w->state);
    assert_int_equal(HASH_COUNT(w->state->alikes), 2);
    assert_int_equal(state_node_find(w->state, "n00")->alike->nodes, NODES - 1);
    assert_int_equal(state_node_find(w->state, "n03")->alike->nodes, 1);
    state_pod_gone(w->state, "a");
    state_refresh_all(w->state);
    assert_int_equal(HASH_COUNT(w->state->alikes), 1);
    for (uint32_t n = 0; n < NODES; n++) {
        for (uint32_t c = 0; c < CARDS; c++) {
            char gpu[32];
            snprintf(gpu, sizeof(gpu), "%s-%02u", node_name(n), c);
            state_gpu_gone(w->state, gpu);
        }
        state_node_gone(w->state, node_name(n));
    }
    assert_int_equal(HASH_COUNT(w->state->alikes), 0);
}

/* ---- of many nodes only the best are named ---- */

#define MANY (3 * EXTENDER_LIST)

static void put_names(struct buf *out, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        buf_printf(out, "%s\"m%03u\"", i ? "," : "", i);
}

static void test_the_best_are_named(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf names = BUF_INIT(0), some = BUF_INIT(0), a = BUF_INIT(0);
    put_names(&names, MANY);
    put_names(&some, EXTENDER_LIST);
    for (uint32_t n = 0; n < MANY; n++) {
        char name[16];
        snprintf(name, sizeof(name), "m%03u", n);
        show_node(w, name, n % 7 > 0); /* every seventh has no GPU */
    }
    run_pod(w, "a", TENTH, "m400", &a); /* the one that binpack likes best, far behind */
    struct json answer = ask_nodes(w, false, "b", TENTH, buf_str(&names));
    struct json_iter it = json_iter(json_get(answer, "NodeNames"));
    struct json name;
    size_t n = 0;
    bool best = false;
    for (; json_next(&it, NULL, &name); n++)
        best |= strcmp(json_string(name), "m400") == 0;
    assert_int_equal(n, EXTENDER_LIST);
    assert_true(best);
    assert_int_equal(json_size(json_get(answer, "FailedAndUnresolvableNodes")), 0);

    /* It comes again: whatever kept the pod off those nodes, the others are to be tried. */
    answer = ask_nodes(w, false, "b", TENTH, buf_str(&names));
    assert_int_equal(json_size(json_get(answer, "NodeNames")), MANY - (MANY + 6) / 7);
    assert_int_equal(json_size(ask_nodes(w, true, "b", TENTH, buf_str(&names))), MANY);
    answer = ask_nodes(w, false, "e", TENTH, buf_str(&names));
    assert_int_equal(json_size(json_get(answer, "NodeNames")), EXTENDER_LIST);

    /* Of few, all; and when nobody can take it, why. */
    answer = ask_nodes(w, false, "c", TENTH, buf_str(&some));
    n = json_size(json_get(answer, "NodeNames"));
    assert_int_equal(n, EXTENDER_LIST - (EXTENDER_LIST + 6) / 7);
    assert_int_equal(json_size(json_get(answer, "FailedAndUnresolvableNodes")), EXTENDER_LIST - n);
    answer = ask_nodes(w, false, "d", "\"elasticgpu.io/gpu-core\":\"200\"", buf_str(&names));
    assert_int_equal(json_size(json_get(answer, "NodeNames")), 0);
    assert_int_equal(json_size(json_get(answer, "FailedAndUnresolvableNodes")), MANY);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        T(test_verdicts_are_what_a_look_says),
        T(test_a_state_is_judged_once),
        T(test_the_best_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
