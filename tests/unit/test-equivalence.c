/* SPDX-License-Identifier: Apache-2.0 */

/* Verdicts are kept by node, and shared by equivalent nodes. Whatever has happened, they must
 * be what a search of the node itself would find. */

#include "scheduler-world.h"

#include "model/gpu_link.h"
#include "place/policies/policies.h"
#include "place/workload/workload_model.h"

#define NODES 16
#define CARDS 2
#define PODS 10
#define STEPS 8000
#define TWO_CARDS "\"elasticgpu.io/gpu-core\":\"200\""
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

/* Mostly the same everywhere, so that nodes are equivalent again and again. */
static void change_card(struct world *w, const char *node, uint32_t index) {
    struct gpu_object gpu = {.index = index, .memory = 80 * GIB, .healthy = below(ODD) > 0};
    snprintf(gpu.name, sizeof(gpu.name), "%s-%02u", node, index);
    /* Two objects may say for a moment that they are the same card. */
    snprintf(gpu.uuid, sizeof(gpu.uuid), "GPU-%s-%u", node, below(ODD) == 0 ? 0 : index);
    snprintf(gpu.node, sizeof(gpu.node), "%s", node);
    snprintf(gpu.model, sizeof(gpu.model), "%s", "Made-up One");
    if (below(ODD) == 0) /* in the end there are more than have an id */
        snprintf(gpu.model, sizeof(gpu.model), "Made-up %u Two%s", below(2 * STATE_MODELS_MAX),
                 below(2) ? " One" : "");
    else if (below(ODD) == 0)
        snprintf(gpu.model, sizeof(gpu.model), "%s", below(2) ? "NVIDIA A100-SXM4-80GB" : "");
    gpu.numa = below(ODD) == 0 ? 1 : 0;
    gpu.capacity = (below(ODD) == 0 ? 160 : 80) * GIB;
    if (below(ODD) == 0)
        gpu.memory = 40 * GIB;
    bool even = (node[strlen(node) - 1] - '0') % 2 == 0;
    if (even != (below(ODD) == 0)) {
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

static const char *const selections[] = {
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
    "\"elasticgpu.io/placement-policy\":\"esc\"",
    "\"elasticgpu.io/numa-bind\":\"true\"",
    "\"hami.io/node-scheduler-policy\":\"esc\",\"elasticgpu.io/gpu-model\":\"Two\"",
    "\"elasticgpu.io/memory-scaling\":\"1.5\"",
};

static const char *resources(void) {
    static char text[128];
    static const char *const rows[] = {
        "\"elasticgpu.io/gpu-core\":\"%u\"",
        "\"elasticgpu.io/gpu-core\":\"%u\",\"elasticgpu.io/gpu-memory\":\"8Gi\"",
        "\"elasticgpu.io/gpu-memory\":\"%uGi\",\"elasticgpu.io/slot\":\"1\"",
        "\"elasticgpu.io/gpu-core\":\"%u00\"",
        "\"elasticgpu.io/gpu-tflops\":\"%u\",\"elasticgpu.io/slot\":\"1\""};
    uint32_t row = below(5);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(text, sizeof(text), rows[row], row == 3 ? 1 + below(3) : 10 * (1 + below(6)));
#pragma GCC diagnostic pop
    return text;
}

/* Of one to three containers "a", "b" and "c", in any order; one of them may be a sidecar, or run
 * before the others. */
static void put_containers(struct buf *out) {
    uint32_t n = below(3) ? 1 : 1 + below(3), turn = below(3), init = n > 1 ? below(3) : 0;
    for (uint32_t i = 0; i < n; i++) {
        const char *list = i == 0           ? (init ? "\"initContainers\":[" : "\"containers\":[")
                           : i == 1 && init ? "],\"containers\":["
                                            : ",";
        buf_printf(out,
                   "%s{\"name\":\"%c\",%s\"resources\":{\"limits\":{%s},"
                   "\"requests\":{\"cpu\":\"%u\"}}}",
                   list, (char) ('a' + (i + turn) % 3),
                   i == 0 && init == 2 ? "\"restartPolicy\":\"Always\"," : "", resources(),
                   below(4));
    }
    buf_puts(out, "]");
}

static struct state_pod *make_pod(struct world *w, uint32_t i) {
    static const char *const namespaces[] = {"d", "e"};
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    state_pod_gone(w->state, pod_name(i));
    buf_printf(&text,
               "{\"metadata\":{\"name\":\"p\",\"namespace\":\"%s\",\"uid\":\"%s\","
               "\"annotations\":{%s}},\"spec\":{",
               namespaces[below(2)], pod_name(i),
               selections[below(sizeof(selections) / sizeof(*selections))]);
    put_containers(&text);
    buf_printf(&text, "},\"status\":{\"phase\":\"Pending\",\"qosClass\":\"%s\"}}",
               below(2) ? "Guaranteed" : "Burstable");
    show_text(w, buf_str(&text));
    struct state_pod *pod = state_pod_find(w->state, pod_name(i));
    static const char *const containers[] = {NULL, "a", "b"};
    for (uint32_t c = 0; c < 3; c++)
        assert_int_equal(state_draw(pod, containers[c],
                                    below(4)   ? NULL
                                    : below(2) ? "x"
                                               : "no-pod"),
                         0);
    pod->class_policy = below(ODD) ? NULL : place_policy_at(below(6));
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
            state_allocate(w->state, pod, node, &result, POD_ASSUMED + below(5), w->now), 0);
}

static void hold_somewhere(struct world *w) {
    struct assigned_device devices[SLOTS_PER_CARD] = {{.core = 30, .memory = 20 * GIB}};
    const char *node = node_name(below(NODES));
    uint32_t card = below(CARDS), n = below(3) ? 1 : SLOTS_PER_CARD; /* as much, in more slots */
    for (uint32_t i = 0; i < n; i++) {
        if (n > 1 || below(2))
            devices[i] = (struct assigned_device){.memory = 20 * GIB / n};
        snprintf(devices[i].uuid, sizeof(devices[i].uuid), "GPU-%s-%u", node, card);
    }
    /* For an existing pod, or for none. */
    const char *id = below(2) ? pod_name(below(PODS)) : below(2) ? "x" : "no-pod";
    if (below(3) == 0)
        state_unreserve(w->state, id);
    else
        assert_int_equal(state_reserve(w->state, id, node, devices, n), 0);
}

/* ---- what happens ---- */

/* It comes back at the next change of a card. */
static void lose_card(struct world *w) {
    char name[32];
    snprintf(name, sizeof(name), "%s-%02u", node_name(below(NODES)), below(CARDS));
    state_gpu_gone(w->state, name);
}

static void load_node(struct world *w) {
    struct pod load = {.room = {1000 * below(3), below(2) * GIB, below(4)}, .finished = below(2)};
    snprintf(load.uid, sizeof(load.uid), "load%u", below(4));
    snprintf(load.node, sizeof(load.node), "%s", node_name(below(NODES)));
    assert_int_equal(state_pod_seen(w->state, &load, w->now), 0);
}

static void change_cpus(struct world *w) {
    struct node_cpus cpus = {.all = {4, 4}, .free = {2, 4}};
    if (below(ODD) == 0)
        cpus.free[below(2)] = (uint16_t) below(5);
    if (below(ODD) == 0)
        cpus = (struct node_cpus){0};
    assert_int_equal(state_node_cpus(w->state, node_name(below(NODES)), &cpus), 0);
}

static void step(struct world *w) {
    struct state_pod *pod;
    switch (below(13)) {
    case 12:
        change_cpus(w);
        break;
    case 8:
        if (below(4) == 0)
            lose_card(w);
        break;
    case 9:
        load_node(w);
        break;
    case 10:
        assert_int_equal(state_namespace_policy(w->state, "e", below(2) ? "spread" : NULL,
                                                below(2) ? "esc" : NULL),
                         0);
        break;
    case 11:
        w->state->policy = place_policy_at(below(6));
        break;
    case 0:
        change_card(w, node_name(below(NODES)), below(CARDS));
        break;
    case 1:
        hold_somewhere(w);
        break;
    case 2:
        assert_int_equal(
            state_node_room(w->state, node_name(below(NODES)),
                            (struct cpu_memory){8000 * (1 + (below(ODD) == 0)), 64 * GIB, 0}),
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

/* A verdict, the first time or from memory, against a search of the node. */
static void compare_all(struct world *w, const struct state_pod *pod) {
    struct gpu_request request;
    struct place_plan plan;
    state_plan(w->state, pod, &request, &plan);
    if (w->state->model)
        place_model_allow(w->state->model, UINT32_MAX);
    for (uint32_t n = 0; n < NODES; n++) {
        struct state_node *node = state_node_find(w->state, node_name(n));
        struct place_result result = {.score = 0};
        int64_t score;
        if (!node)
            continue;
        enum place_reason verdict = state_judge(w->state, &plan, node->head, pod, &score);
        enum place_reason reason = state_place(w->state, &plan, node, pod, false, &result);
        assert_int_equal(verdict, reason);
        /* Which cards esc takes depends on prices, which change while the node does not. */
        assert_true(verdict != PLACE_OK || score == result.score ||
                    plan.policy.card_cost == place_esc.card_cost);
    }
}

static void test_verdicts_are_what_a_look_says(void **state) {
    struct world *w = *state;
    struct place_model *model = place_model_new();
    uint32_t shared = 0;
    assert_non_null(model);
    state_learn_from(w->state, model, 0);
    show_all(w);
    for (uint32_t i = 0; i < PODS; i++)
        (void) make_pod(w, i);
    for (uint32_t i = 0; i < STEPS; i++) {
        struct state_pod *pod;
        step(w);
        for (uint32_t asked = 0; asked < 3; asked++)
            if ((pod = state_pod_find(w->state, pod_name(below(PODS)))))
                compare_all(w, pod);
        shared += HASH_COUNT(w->state->equivalences) < NODES;
    }
    assert_in_range(shared, STEPS / 2, STEPS); /* or it was not about equivalent nodes */
    w->state->model = NULL;
    place_model_free(model);
}

/* ---- pods of different requests ---- */

static uint64_t shape_of(struct world *w, const char *uid) {
    struct gpu_request request;
    struct place_plan plan;
    state_plan(w->state, state_pod_find(w->state, uid), &request, &plan);
    return plan.shape;
}

static struct state_pod *show_two(struct world *w, const char *uid, const char *first,
                                  const char *second) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    buf_printf(&text,
               "{\"metadata\":{\"name\":\"p\",\"namespace\":\"d\",\"uid\":\"%s\"},\"spec\":{"
               "\"containers\":[{\"name\":\"%s\",\"resources\":{\"limits\":{" HALF "}}},"
               "{\"name\":\"%s\",\"resources\":{\"limits\":{" TENTH "}}}]}}",
               uid, first, second);
    show_text(w, buf_str(&text));
    return state_pod_find(w->state, uid);
}

/* What is held is for one container: a pod that asks the same in it alone is not the same. */
static void test_containers_that_draw(void **state) {
    struct world *w = *state;
    struct assigned_device device = {.core = 60, .memory = 48 * GIB};
    show_node(w, "n00", 1);
    snprintf(device.uuid, sizeof(device.uuid), "GPU-n00-0");
    assert_int_equal(state_reserve(w->state, "x", "n00", &device, 1), 0);
    struct state_pod *large = show_two(w, "l", "a", "b"), *small = show_two(w, "s", "b", "a");
    assert_int_equal(state_draw(large, "a", "x"), 0);
    assert_int_equal(state_draw(small, "a", "x"), 0);
    for (int i = 0; i < 2; i++) {
        struct state_pod *pod = i ? small : large;
        struct gpu_request request;
        struct place_plan plan;
        int64_t score;
        state_plan(w->state, pod, &request, &plan);
        enum place_reason reason =
            state_judge(w->state, &plan, state_node_find(w->state, "n00")->head, pod, &score);
        assert_int_equal(reason, i ? PLACE_NO_CORE : PLACE_OK);
    }
}

/* As soon as there is another model, a pod that insists on one is of another kind to policies that
 * learn. */
static void test_a_model_that_appears(void **state) {
    struct world *w = *state;
    struct gpu_object gpu = {.memory = 80 * GIB, .healthy = true};
    show_node(w, "n00", 1);
    show_pod(w, "a", HALF, NULL, "\"elasticgpu.io/gpu-model\":\"One\"");
    show_pod(w, "b", HALF, NULL, "");
    uint64_t choosy = shape_of(w, "a"), any = shape_of(w, "b");
    snprintf(gpu.name, sizeof(gpu.name), "n01-00");
    snprintf(gpu.uuid, sizeof(gpu.uuid), "GPU-n01-0");
    snprintf(gpu.node, sizeof(gpu.node), "n01");
    snprintf(gpu.model, sizeof(gpu.model), "Made-up Two");
    assert_int_equal(state_gpu_seen(w->state, &gpu, NULL), 0);
    assert_true(shape_of(w, "a") != choosy);
    assert_true(shape_of(w, "b") == any);
}

/* However many nodes there are, a new kind of pod is judged once for each state they are in. */
static void test_a_state_is_judged_once(void **state) {
    struct world *w = *state;
    for (uint32_t n = 0; n < NODES; n++)
        show_node(w, node_name(n), CARDS);
    _cleanup_buf_ struct buf a = BUF_INIT(0);
    run_pod(w, "a", HALF, "n03", &a);
    state_refresh_all(w->state);
    assert_int_equal(HASH_COUNT(w->state->equivalences), 2);
    assert_int_equal(state_node_find(w->state, "n00")->head->equivalence->nodes, NODES - 1);
    assert_int_equal(state_node_find(w->state, "n03")->head->equivalence->nodes, 1);
    state_pod_gone(w->state, "a");
    state_refresh_all(w->state);
    assert_int_equal(HASH_COUNT(w->state->equivalences), 1);
    for (uint32_t n = 0; n < NODES; n++) {
        for (uint32_t c = 0; c < CARDS; c++) {
            char gpu[32];
            snprintf(gpu, sizeof(gpu), "%s-%02u", node_name(n), c);
            state_gpu_gone(w->state, gpu);
        }
        state_node_gone(w->state, node_name(n));
    }
    assert_int_equal(HASH_COUNT(w->state->equivalences), 0);
}

/* A selector for tests that counts how often a node is looked at. */
static uint64_t no_key(void *self, const struct state_pod *pod) {
    (void) self, (void) pod;
    return 0;
}

static bool count_look(void *self, const struct state_pod *pod, const struct state_node *node,
                       uint64_t allowed[static GPU_CONTAINERS_MAX]) {
    uint32_t *looks = self;
    (void) pod, (void) node, (void) allowed;
    (*looks)++;
    return true;
}

static enum place_reason judge(struct world *w, const char *uid, const char *node) {
    struct state_pod *pod = state_pod_find(w->state, uid);
    struct gpu_request request;
    struct place_plan plan;
    int64_t score;
    state_plan(w->state, pod, &request, &plan);
    return state_judge(w->state, &plan, state_node_find(w->state, node)->head, pod, &score);
}

/* What is reserved for another pod costs no pod a search of each node. */
static void test_a_hold_of_another_pod_costs_nothing(void **state) {
    struct world *w = *state;
    uint32_t looks = 0;
    const struct assigned_device device = {.uuid = "GPU-n03-0", .core = 60, .memory = 48 * GIB};
    const struct state_selector selector = {"count", PLACE_RESERVED, &looks, no_key, count_look};
    assert_int_equal(state_add_selector(w->state, &selector), 0);
    for (uint32_t n = 0; n < NODES; n++)
        show_node(w, node_name(n), CARDS);
    assert_int_equal(state_reserve(w->state, "another", "n03", &device, 1), 0);
    show_pod(w, "a", HALF, NULL, "");
    for (uint32_t n = 0; n < NODES; n++)
        assert_int_equal(judge(w, "a", node_name(n)), PLACE_OK);
    assert_int_equal(looks, 2); /* of all others, and of the node with the hold */
}

static uint64_t some_key(void *self, const struct state_pod *pod) {
    (void) self, (void) pod;
    return 1;
}

static bool allow_one(void *self, const struct state_pod *pod, const struct state_node *node,
                      uint64_t allowed[static GPU_CONTAINERS_MAX]) {
    (void) pod, (void) allowed;
    return strcmp(node->name, self) == 0;
}

/* A selector that allows certain nodes is called for each of them, however equal they are. */
static void test_a_selector_tells_nodes_apart(void **state) {
    static char allowed[] = "n01";
    struct world *w = *state;
    const struct state_selector selector = {"one", PLACE_RESERVED, allowed, some_key, allow_one};
    assert_int_equal(state_add_selector(w->state, &selector), 0);
    for (uint32_t n = 0; n < 3; n++)
        show_node(w, node_name(n), CARDS);
    show_pod(w, "a", HALF, NULL, "");
    for (uint32_t n = 0; n < 3; n++)
        assert_int_equal(judge(w, "a", node_name(n)), n == 1 ? PLACE_OK : PLACE_RESERVED);
}

/* Cards 1 and 2 are connected by NVLink, card 0 to both over the sockets. */
static void show_linked(struct world *w, const char *node) {
    assert_int_equal(state_node_seen(w->state, node), 0);
    for (uint32_t i = 0; i < 3; i++) {
        struct gpu_object gpu = {.index = i, .memory = 80 * GIB, .healthy = true, .nlinks = 3};
        snprintf(gpu.name, sizeof(gpu.name), "%s-%02u", node, i);
        snprintf(gpu.uuid, sizeof(gpu.uuid), "GPU-%s-%u", node, i);
        snprintf(gpu.node, sizeof(gpu.node), "%s", node);
        for (uint32_t other = 0; other < 3; other++)
            gpu.links[other] = other == i       ? LINK_UNKNOWN
                               : i + other == 3 ? LINK_NVLINK
                                                : LINK_SYSTEM;
        assert_int_equal(state_gpu_seen(w->state, &gpu, NULL), 0);
    }
}

/* A pod that insists on the best links of a machine gets no worse ones of the second machine of a
 * kind, whose links were not searched again. */
static void test_machines_with_equal_links_are_as_strict(void **state) {
    struct world *w = *state;
    const struct assigned_device half = {.uuid = "GPU-n01-1", .core = 50, .memory = 40 * GIB};
    show_linked(w, "n00");
    state_refresh_all(w->state);
    show_linked(w, "n01");
    assert_int_equal(state_reserve(w->state, "another", "n01", &half, 1), 0);
    show_pod(w, "any", TWO_CARDS, NULL, "\"elasticgpu.io/topology\":\"none\"");
    show_pod(w, "best", TWO_CARDS, NULL, "\"elasticgpu.io/topology\":\"restricted\"");
    assert_int_equal(judge(w, "best", "n00"), PLACE_OK);
    assert_int_equal(judge(w, "best", "n01"), PLACE_NOT_LINKED);
    assert_int_equal(judge(w, "any", "n01"), PLACE_OK);
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

    /* Of few, all; and when none can take it, why. */
    answer = ask_nodes(w, false, "c", TENTH, buf_str(&some));
    n = json_size(json_get(answer, "NodeNames"));
    assert_int_equal(n, EXTENDER_LIST - (EXTENDER_LIST + 6) / 7);
    assert_int_equal(json_size(json_get(answer, "FailedAndUnresolvableNodes")), EXTENDER_LIST - n);
    answer = ask_nodes(w, false, "d", "\"elasticgpu.io/gpu-core\":\"200\"", buf_str(&names));
    assert_int_equal(json_size(json_get(answer, "NodeNames")), 0);
    assert_int_equal(json_size(json_get(answer, "FailedAndUnresolvableNodes")), MANY);
}

#define CONTAINER(name, core)                                                                      \
    "{\"name\":\"" name "\",\"resources\":{\"limits\":{\"elasticgpu.io/gpu-core\":\"" core "\"}}}"

/* Holds so much of a card, beside what pods have of it. */
static void reserve(struct world *w, const char *id, unsigned card, uint32_t core) {
    struct assigned_device d = {.core = core, .physical = 80 * GIB};
    snprintf(d.uuid, sizeof(d.uuid), "GPU-n-%u", card);
    assert_int_equal(state_reserve(w->state, id, "n", &d, 1), 0);
}

/* Where the effort for a search is spent, "no room" is no result to keep: the next request, which
 * has effort left, finds the room. */
static void test_a_search_cut_short_is_not_remembered(void **state) {
    static const char pod[] =
        "{\"metadata\":{\"name\":\"p\",\"namespace\":\"d\",\"uid\":\"p\"},"
        "\"spec\":{\"containers\":[" CONTAINER("a", "30") "," CONTAINER("b", "30") "," CONTAINER(
            "c", "25") "," CONTAINER("d", "25") "]},\"status\":{}}";
    struct world *w = *state;
    struct gpu_request request;
    struct place_plan plan;
    int64_t score;
    show_node(w, "n", 2);
    reserve(w, "r", 0, 40);
    reserve(w, "s", 1, 50);
    show_text(w, pod);
    const struct state_pod *p = state_pod_find(w->state, "p");
    struct state_head *head = state_node_find(w->state, "n")->head;
    state_plan(w->state, p, &request, &plan);
    plan.effort = 0;
    assert_int_equal(state_judge(w->state, &plan, head, p, &score), PLACE_NOT_TOGETHER);
    state_plan(w->state, p, &request, &plan);
    assert_int_equal(state_judge(w->state, &plan, head, p, &score), PLACE_OK);
    state_unreserve(w->state, "r");
    state_unreserve(w->state, "s");
}

/* A pod of two containers on two cards uses what is reserved for it on both. */
static void test_a_reservation_on_two_cards_is_used(void **state) {
    static const char pod[] = "{\"metadata\":{\"name\":\"p\",\"namespace\":\"d\",\"uid\":\"p\"},"
                              "\"spec\":{\"containers\":[" CONTAINER("a", "60") "," CONTAINER(
                                  "b", "60") "]},\"status\":{}}";
    struct assigned_device devices[2] = {{.core = 60, .memory = 48 * GIB, .physical = 80 * GIB},
                                         {.core = 60, .memory = 48 * GIB, .physical = 80 * GIB}};
    struct world *w = *state;
    struct gpu_request request;
    struct place_plan plan;
    struct place_result result;
    show_node(w, "n", 2);
    for (unsigned i = 0; i < 2; i++)
        snprintf(devices[i].uuid, sizeof(devices[i].uuid), "GPU-n-%u", i);
    assert_int_equal(state_reserve(w->state, "r", "n", devices, 2), 0);
    show_text(w, pod);
    struct state_pod *p = state_pod_find(w->state, "p");
    struct state_node *n = state_node_find(w->state, "n");
    state_plan(w->state, p, &request, &plan);
    assert_int_not_equal(state_place(w->state, &plan, n, p, false, &result), PLACE_OK);
    assert_int_equal(state_draw(p, NULL, "r"), 0);
    state_plan(w->state, p, &request, &plan);
    assert_int_equal(state_place(w->state, &plan, n, p, false, &result), PLACE_OK);
    assert_int_equal(state_allocate(w->state, p, n, &result, POD_BINDING, w->now), 0);
    assert_int_equal(free_core(w, "n", 0), 40);
    assert_int_equal(free_core(w, "n", 1), 40);
    assert_true(n->place[0].free.memory == 32 * GIB && n->place[1].free.memory == 32 * GIB);
    assert_false(n->cards[0]->overcommitted || n->cards[1]->overcommitted);
    state_pod_gone(w->state, "p");
    assert_int_equal(free_core(w, "n", 0), 40);
    assert_int_equal(free_core(w, "n", 1), 40);
    state_unreserve(w->state, "r");
    assert_int_equal(free_core(w, "n", 0), 100);
    assert_int_equal(free_core(w, "n", 1), 100);
}

/* What is reserved follows every change of it. */
static void test_reserved_capacity_changes(void **state) {
    static const struct {
        const char *node;
        uint32_t n;
        unsigned card;
        uint32_t core;
        uint64_t gib;
        unsigned free_core[2];
        uint64_t free_gib; /* of the first card */
    } rows[] = {
        {"n", 1, 0, 60, 20, {40, 100}, 60},  {"n", 1, 0, 60, 20, {40, 100}, 60},
        {"n", 1, 0, 50, 20, {50, 100}, 60},  {"n", 1, 0, 50, 30, {50, 100}, 50},
        {"n", 1, 1, 50, 30, {100, 50}, 80},  {"n", 2, 0, 10, 10, {90, 90}, 70},
        {"m", 2, 0, 10, 10, {100, 100}, 80}, {"n", 2, 0, 10, 10, {90, 90}, 70},
        {"n", 0, 0, 10, 10, {100, 100}, 80},
    };
    struct world *w = *state;
    show_node(w, "n", 2);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct assigned_device devices[2];
        for (unsigned k = 0; k < 2; k++) {
            devices[k] = (struct assigned_device){
                .core = rows[i].core, .memory = rows[i].gib * GIB, .physical = 80 * GIB};
            snprintf(devices[k].uuid, sizeof(devices[k].uuid), "GPU-n-%u", (rows[i].card + k) % 2);
        }
        assert_int_equal(state_reserve(w->state, "r", rows[i].node, devices, rows[i].n), 0);
        for (unsigned k = 0; k < 2; k++)
            if (free_core(w, "n", k) != rows[i].free_core[k])
                fail_msg("row %zu: %u", i, free_core(w, "n", k));
        assert_true(state_node_find(w->state, "n")->place[0].free.memory == rows[i].free_gib * GIB);
    }
    /* Only the second of two devices changes. */
    struct assigned_device two[2] = {{.uuid = "GPU-n-0", .core = 10, .physical = 80 * GIB},
                                     {.uuid = "GPU-n-1", .core = 10, .physical = 80 * GIB}};
    for (uint32_t core = 10; core < 40; core += 10) {
        two[1].core = core;
        assert_int_equal(state_reserve(w->state, "r", "n", two, 2), 0);
        assert_int_equal(free_core(w, "n", 0), 90);
        assert_int_equal(free_core(w, "n", 1), 100 - core);
    }
    state_unreserve(w->state, "r");
}

/* A pod that only kube-scheduler has told of is forgotten after a minute without the watch. */
static void test_a_pod_that_the_watch_never_shows(void **state) {
    struct world *w = *state;
    show_node(w, "n", 1);
    (void) filter(w, "p", WHOLE, "\"n\"");
    state_release(w->state, state_pod_find(w->state, "p"));
    show_pod(w, "q", WHOLE, NULL, "");
    (void) state_expire(w->state, w->now, ASSUMED_TTL_MS);
    (void) state_expire(w->state, w->now += 59999, ASSUMED_TTL_MS);
    assert_non_null(state_pod_find(w->state, "p"));
    (void) state_expire(w->state, w->now += 1, ASSUMED_TTL_MS);
    assert_null(state_pod_find(w->state, "p"));
    assert_non_null(state_pod_find(w->state, "q"));
}

static const char *policy_for(struct world *w, const char **ret_card) {
    static struct place_plan plan;
    struct gpu_request request;
    state_plan(w->state, state_pod_find(w->state, "p"), &request, &plan);
    *ret_card = "none";
    static const char *const names[] = {"binpack", "spread"};
    for (size_t i = 0; i < 2; i++)
        if (plan.policy.card_cost == place_policy_find(names[i])->card_cost)
            *ret_card = names[i];
    return plan.policy.name;
}

/* A namespace names a policy for nodes, for cards, for both or for none, until it is gone. */
static void test_policies_of_a_namespace(void **state) {
    static const struct {
        const char *for_nodes, *for_cards, *node, *card;
    } rows[] = {
        {"spread", "spread", "spread", "spread"}, {"spread", NULL, "spread", "binpack"},
        {NULL, "spread", "binpack", "spread"},    {"", "spread", "binpack", "spread"},
        {"spread", "", "spread", "binpack"},      {"", "", "binpack", "binpack"},
        {"none", "none", "binpack", "binpack"},   {NULL, NULL, "binpack", "binpack"},
    };
    struct world *w = *state;
    const char *card;
    show_pod(w, "p", HALF, NULL, "");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(
            state_namespace_policy(w->state, "d", rows[i].for_nodes, rows[i].for_cards), 0);
        assert_string_equal(policy_for(w, &card), rows[i].node);
        assert_string_equal(card, rows[i].card);
    }
    assert_int_equal(state_namespace_policy(w->state, "d", "spread", "spread"), 0);
    state_sync_begin(w->state, STATE_NAMESPACES);
    assert_int_equal(state_namespace_policy(w->state, "d", "spread", "spread"), 0);
    state_sync_end(w->state, STATE_NAMESPACES);
    assert_string_equal(policy_for(w, &card), "spread");
    state_sync_begin(w->state, STATE_NAMESPACES);
    state_sync_end(w->state, STATE_NAMESPACES);
    assert_string_equal(policy_for(w, &card), "binpack");
}

/* The version of a node tells what its verdicts are about: it never comes twice, also where only
 * the place of the node in the order of names changes. */
static void test_versions_of_a_node_are_new(void **state) {
    struct world *w = *state;
    static const char *const names[] = {"p", "o", "n", "m", "l", "k"};
    uint64_t last = 0;
    show_node(w, "q", 1);
    struct state_node *q = state_node_find(w->state, "q");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        state_refresh(w->state, q);
        assert_true(q->version > last);
        last = q->version;
        show_gpu(w, "q", 0, i % 2);
        state_refresh(w->state, q);
        assert_true(q->version > last);
        last = q->version;
        show_node(w, names[i], 1);
        state_refresh_all(w->state);
    }
}

/* The metric and the status page name the cards of which more is held than there is, and no others.
 */
static void test_an_overcommitted_card_is_named(void **state) {
    static const char *const uids[] = {"a", "b"};
    struct world *w = *state;
    struct gpu_request request;
    struct place_plan plan;
    struct place_result result;
    show_node(w, "n", 3);
    struct state_node *n = state_node_find(w->state, "n");
    for (int i = 0; i < 2; i++)
        show_pod(w, uids[i], HALF, NULL, "");
    reserve(w, "r", 0, 60);
    state_plan(w->state, state_pod_find(w->state, "a"), &request, &plan);
    assert_int_equal(state_place(w->state, &plan, n, state_pod_find(w->state, "a"), false, &result),
                     PLACE_OK);
    result.grants[0].card = 1;
    for (int i = 0; i < 2; i++) {
        struct state_pod *pod = state_pod_find(w->state, uids[i]);
        result.grants[0].taken.core = 60;
        assert_int_equal(state_allocate(w->state, pod, n, &result, POD_BINDING, w->now), 0);
        state_refresh(w->state, n);
        assert_false(n->cards[0]->overcommitted);
        assert_int_equal(n->cards[1]->overcommitted, i == 1);
        assert_false(n->cards[2]->overcommitted);
    }
    assert_int_equal(free_core(w, "n", 1), 0);
    state_release(w->state, state_pod_find(w->state, "b"));
    assert_int_equal(free_core(w, "n", 1), 40);
    assert_false(n->cards[1]->overcommitted);
    state_unreserve(w->state, "r");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        T(test_verdicts_are_what_a_look_says),
        T(test_containers_that_draw),
        T(test_a_model_that_appears),
        T(test_a_state_is_judged_once),
        T(test_a_hold_of_another_pod_costs_nothing),
        T(test_a_selector_tells_nodes_apart),
        T(test_machines_with_equal_links_are_as_strict),
        T(test_the_best_are_named),
        T(test_a_search_cut_short_is_not_remembered),
        T(test_a_reservation_on_two_cards_is_used),
        T(test_an_overcommitted_card_is_named),
        T(test_versions_of_a_node_are_new),
        T(test_reserved_capacity_changes),
        T(test_a_pod_that_the_watch_never_shows),
        T(test_policies_of_a_namespace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
