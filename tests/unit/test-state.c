/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler-world.h"

#include "kube/objects/pod_selection.h"
#include "model/dialect.h"
#include "place/policies/policies.h"
#include "scheduler/cluster/workload_store.h"
#include "scheduler/state/state_internal.h"

/* ---- cards that come and go ---- */

/* A bound pod keeps what it holds while its card is away, and has it again when that is back. */
static void test_a_card_goes_and_comes_back(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf a = BUF_INIT(0);
    char refusal[64];
    show_node(w, "n", 8);
    run_pod(w, "a", "\"elasticgpu.io/gpu-core\":\"700\"", "n", &a);
    state_gpu_gone(w->state, "n-03");
    struct state_node *n = state_node_find(w->state, "n");
    state_refresh(w->state, n);
    assert_int_equal(n->ncards, 7);
    for (unsigned c = 0; c < 7; c++)
        if (n->cards[c]->index != 7)
            assert_int_equal(free_core(w, "n", c), 0);
    show_pod(w, "b", "\"elasticgpu.io/gpu-core\":\"800\"", NULL, "");
    snprintf(refusal, sizeof(refusal), "%.60s",
             filter(w, "b", "\"elasticgpu.io/gpu-core\":\"800\"", "\"n\""));
    assert_string_equal(refusal, "-node has fewer GPUs than asked for");
    show_gpu(w, "n", 3, true);
    state_refresh(w->state, n);
    assert_int_equal(n->ncards, 8);
    assert_int_equal(free_core(w, "n", 3), 0);
    assert_int_equal(free_core(w, "n", 7), 100);
    state_pod_gone(w->state, "a");
    assert_int_equal(free_core(w, "n", 3), 100);
}

/* The first GPU object of a node as if another card had taken its place, with no event between. */
static void swap_gpu(struct world *w, const char *uuid) {
    struct gpu_object gpu = {.index = 0, .memory = 80 * GIB, .healthy = true, .numa = -1};
    snprintf(gpu.name, sizeof(gpu.name), "n-00");
    snprintf(gpu.uuid, sizeof(gpu.uuid), "%s", uuid);
    snprintf(gpu.node, sizeof(gpu.node), "n");
    assert_int_equal(state_gpu_seen(w->state, &gpu, NULL), 0);
}

/* What is held, by pods, assumed ones and reservations, is held of a card, not of a name. */
static void test_another_card_of_the_same_name(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf a = BUF_INIT(0), b = BUF_INIT(0);
    struct assigned_device d = {.core = 30, .memory = 24 * GIB, .physical = 24 * GIB};
    snprintf(d.uuid, sizeof(d.uuid), "GPU-n-0");
    show_node(w, "n", 1);
    run_pod(w, "a", HALF, "n", &a);
    assert_int_equal(state_reserve(w->state, "r", "n", &d, 1), 0);
    assert_int_equal(free_core(w, "n", 0), 20);
    show_pod(w, "p", TENTH, NULL, "");
    assert_string_equal(filter(w, "p", TENTH, "\"n\""), "n");
    assert_int_equal(free_core(w, "n", 0), 10);
    swap_gpu(w, "GPU-new");
    assert_int_equal(free_core(w, "n", 0), 100);
    run_pod(w, "b", WHOLE, "n", &b);
    assert_non_null(strstr(buf_str(&b), "GPU-new"));
    assert_int_equal(free_core(w, "n", 0), 0);
    /* The assumed allocation was of the old card; the new one is full. */
    bind_pod(w, "p", "n");
    assert_int_equal(w->nasked, 0);
    assert_string_not_equal(w->bind_answer, "");
    assert_false(state_node_find(w->state, "n")->cards[0]->overcommitted);
    swap_gpu(w, "GPU-n-0");
    assert_int_equal(free_core(w, "n", 0), 20);
    state_pod_gone(w->state, "a");
    state_unreserve(w->state, "r");
    assert_int_equal(free_core(w, "n", 0), 100);
    swap_gpu(w, "GPU-new");
    assert_int_equal(free_core(w, "n", 0), 0);
}

static void show_unattributed(struct world *w, uint64_t bytes, uint64_t capacity) {
    struct gpu_object gpu = {.memory = 80 * GIB,
                             .capacity = capacity,
                             .unattributed = bytes,
                             .healthy = true,
                             .numa = -1};
    snprintf(gpu.name, sizeof(gpu.name), "n-00");
    snprintf(gpu.uuid, sizeof(gpu.uuid), "GPU-n-0");
    snprintf(gpu.node, sizeof(gpu.node), "n");
    assert_int_equal(state_gpu_seen(w->state, &gpu, NULL), 0);
    state_refresh(w->state, state_node_find(w->state, "n"));
}

/* Memory that is in use and of no container is not allocated, and no pod is short of its own. */
static void test_unattributed_memory_is_not_allocated(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf a = BUF_INIT(0);
    show_node(w, "n", 1);
    run_pod(w, "a", HALF, "n", &a);
    const struct state_node *n = state_node_find(w->state, "n");
    show_unattributed(w, 10 * GIB, 0);
    assert_int_equal(n->place[0].free.memory, 30 * GIB);
    show_pod(w, "p", HALF, NULL, "");
    assert_string_equal(filter(w, "p", HALF, "\"n\""), "-no GPU has enough free memory");
    show_unattributed(w, 60 * GIB, 0);
    assert_int_equal(n->place[0].free.memory, 0);
    assert_false(n->cards[0]->overcommitted);
    /* On a card oversubscribed twice, each unattributed byte takes two of the capacity. */
    show_unattributed(w, 10 * GIB, 160 * GIB);
    assert_int_equal(n->place[0].free.memory, 60 * GIB);
    show_unattributed(w, 0, 0);
    assert_string_equal(filter(w, "p", HALF, "\"n\""), "n");
}

static void show_replicas(struct world *w, struct card_replicas replicas) {
    struct gpu_object gpu = {.memory = 80 * GIB, .healthy = true, .numa = -1, .replicas = replicas};
    snprintf(gpu.name, sizeof(gpu.name), "n-00");
    snprintf(gpu.uuid, sizeof(gpu.uuid), "GPU-n-0");
    snprintf(gpu.node, sizeof(gpu.node), "n");
    assert_int_equal(state_gpu_seen(w->state, &gpu, NULL), 0);
}

/* Each card says how much a replica of it is; what was judged by the former number is forgotten. */
static void test_replicas_are_as_the_card_says(void **state) {
    static const char *const shared =
                                 "\"elasticgpu.io/slot\":\"1\",\"nvidia.com/gpu.shared\":\"1\"",
                             *const six =
                                 "\"elasticgpu.io/slot\":\"1\",\"nvidia.com/gpu.shared\":\"6\"",
                             *const card = "\"elasticgpu.io/slot\":\"1\",\"nvidia.com/gpu\":\"1\"";
    struct world *w = *state;
    _cleanup_buf_ struct buf a = BUF_INIT(0), b = BUF_INIT(0);
    show_node(w, "n", 1);
    const struct state_node *n = state_node_find(w->state, "n");
    show_pod(w, "p", six, NULL, "");
    assert_string_equal(filter(w, "p", six, "\"n\""), "n");
    show_replicas(w, (struct card_replicas){.count = 4});
    assert_string_equal(filter(w, "p", six, "\"n\""), "-no GPU has that much memory");
    state_pod_gone(w->state, "p");
    run_pod(w, "a", shared, "n", &a);
    assert_int_equal(free_core(w, "n", 0), 100);
    assert_int_equal(n->place[0].free.memory, 60 * GIB);
    show_pod(w, "q", card, NULL, "");
    assert_string_equal(filter(w, "q", card, "\"n\""), "-not enough whole GPUs free");
    show_replicas(w, (struct card_replicas){.count = 8, .as_cards = true});
    assert_string_equal(filter(w, "q", card, "\"n\""), "n");
    run_pod(w, "b", card, "n", &b);
    assert_int_equal(state_pod_find(w->state, "b")->allocations[0].device.memory, 10 * GIB);
    assert_int_equal(state_pod_find(w->state, "b")->allocations[0].device.core, 0);
    show_replicas(w, (struct card_replicas){.count = 8, .one_at_most = true});
    show_pod(w, "p", six, NULL, "");
    assert_non_null(strstr(filter(w, "p", six, "\"n\""), "one replica at most"));
}

static void show_model(struct world *w, unsigned index, const char *model, uint64_t gib) {
    struct gpu_object gpu = {.index = index, .memory = gib * GIB, .healthy = true, .numa = -1};
    snprintf(gpu.name, sizeof(gpu.name), "n-%02u", index);
    snprintf(gpu.uuid, sizeof(gpu.uuid), "GPU-n-%u", index);
    snprintf(gpu.node, sizeof(gpu.node), "n");
    snprintf(gpu.model, sizeof(gpu.model), "%s", model);
    assert_int_equal(state_node_seen(w->state, "n"), 0);
    assert_int_equal(state_gpu_seen(w->state, &gpu, NULL), 0);
}

/* Index of the only card that the pod is assumed on, and how much of it. */
static uint32_t assumed(struct world *w, const char *uid, uint32_t *ret_core) {
    const struct state_pod *pod = state_pod_find(w->state, uid);
    assert_int_equal(pod->stage, POD_ASSUMED);
    assert_int_equal(pod->nallocations, 1);
    if (ret_core)
        *ret_core = pod->allocations[0].device.core;
    return pod->allocations[0].device.index;
}

#define SLOT ",\"elasticgpu.io/slot\":\"1\""

static void test_unequal_cards(void **state) {
    struct world *w = *state;
    uint32_t core;
    show_model(w, 0, "NVIDIA A100-SXM4-40GB", 40);
    show_model(w, 1, "Tesla T4", 15);
    /* More memory than the small one has. */
    assert_string_equal(filter(w, "m", "\"elasticgpu.io/gpu-memory\":\"20Gi\"" SLOT, "\"n\""), "n");
    assert_int_equal(assumed(w, "m", NULL), 0);
    /* TFLOPS of whichever card it is: 31 of 65 and of 312. */
    assert_string_equal(filter(w, "t", "\"elasticgpu.io/gpu-tflops\":\"65\"" SLOT, "\"n\""), "n");
    core = 0;
    bool t4 = assumed(w, "t", &core) == 1;
    assert_int_equal(core, t4 ? 100 : 21);
    assert_string_equal(filter(w, "u", "\"elasticgpu.io/gpu-tflops\":\"400\"" SLOT, "\"n\""),
                        "-no GPU has that many TFLOPS");
}

/* A node with one GPU of the model that a pod selects is refused for the selection, not for room.
 */
static void test_too_few_of_the_selected_model(void **state) {
    struct world *w = *state;
    show_model(w, 0, "NVIDIA A100-SXM4-40GB", 40);
    show_model(w, 1, "Tesla T4", 15);
    w->annotations = "\"elasticgpu.io/gpu-model\":\"t4\"";
    assert_string_equal(filter(w, "a", "\"elasticgpu.io/gpu-core\":\"200\"", "\"n\""),
                        "-no GPU of the node is one that the pod selects");
}

/* A share without compute takes a slot of its card. */
static void test_the_amount_of_a_share(void **state) {
    (void) state;
    static const struct { uint32_t core, slots; } rows[] = {{0, 1}, {30, 0}};
    const struct state_card card = {.uuid = "GPU-a", .memory = 80 * GIB, .physical = 80 * GIB};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct place_amount amount;
        struct state_allocation hold = {
            .phase = CONTAINER_APP,
            .device = {.uuid = "GPU-a", .core = rows[i].core, .memory = GIB}};
        const struct state_pod pod = {.nallocations = 1, .allocations = &hold};
        assert_true(state_pod_amount(&pod, &card, &amount));
        assert_int_equal(amount.core, rows[i].core);
        assert_int_equal(amount.slots, rows[i].slots);
    }
}

static void test_tflops_of_an_unknown_model(void **state) {
    struct world *w = *state;
    show_model(w, 0, "Something of tomorrow", 40);
    assert_string_equal(filter(w, "u", "\"elasticgpu.io/gpu-tflops\":\"4\"" SLOT, "\"n\""),
                        "-the TFLOPS of this GPU model are not known: ask for gpu-core instead");
}

/* ---- selection and policy ---- */

static void test_selection(void **state) {
    struct world *w = *state;
    show_model(w, 0, "NVIDIA A100-SXM4-40GB", 40);
    show_model(w, 1, "Tesla T4", 15);
    w->annotations = "\"elasticgpu.io/gpu-model\":\"h100, t4\"";
    assert_string_equal(filter(w, "a", TENTH, "\"n\""), "n");
    assert_int_equal(assumed(w, "a", NULL), 1);
    w->annotations = "\"nvidia.com/nouse-gputype\":\"T4\"";
    assert_string_equal(filter(w, "b", TENTH, "\"n\""), "n");
    assert_int_equal(assumed(w, "b", NULL), 0);
    w->annotations = "\"nvidia.com/use-gpuuuid\":\"GPU-n-1,GPU-other\"";
    assert_string_equal(filter(w, "c", TENTH, "\"n\""), "n");
    assert_int_equal(assumed(w, "c", NULL), 1);
    w->annotations = "\"nvidia.com/use-gpuindexes\":\"7, 1\"";
    assert_string_equal(filter(w, "g", TENTH, "\"n\""), "n");
    assert_int_equal(assumed(w, "g", NULL), 1);
    w->annotations = "\"nvidia.com/use-gpuindexes\":\"11\"";
    assert_string_equal(filter(w, "h", TENTH, "\"n\""),
                        "-no GPU of the node is one that the pod selects");
    w->annotations = "\"elasticgpu.io/gpu-model\":\"H100\"";
    assert_string_equal(filter(w, "d", TENTH, "\"n\""),
                        "-no GPU of the node is one that the pod selects");
    assert_non_null(strstr(w->refusal, "10 % compute of one GPU, of model H100; n has 1 NVIDIA "
                                       "A100-SXM4-40GB, 1 Tesla T4"));
    /* The verdict of one selection is not another one's. */
    w->annotations = NULL;
    assert_string_equal(filter(w, "e", TENTH, "\"n\""), "n");
    w->annotations = "\"elasticgpu.io/topology\":\"excellent\"";
    assert_memory_equal(filter(w, "f", TENTH, "\"n\""), "-GPU request is malformed", 25);
}

/* ---- annotations that select, all of them ---- */

/* Of two cards, an A100 and a T4, each row with both: a use is that card, an avoid the other. */
static void test_every_list(void **state) {
    static const struct {
        const char *key;
        bool uuid, avoid;
    } rows[] = {
        {"elasticgpu.io/gpu-model", false, false},
        {"elasticgpu.io/gpu-model-avoid", false, true},
        {"elasticgpu.io/gpu-uuid", true, false},
        {"elasticgpu.io/gpu-uuid-avoid", true, true},
        {"nvidia.com/use-gputype", false, false},
        {"nvidia.com/nouse-gputype", false, true},
        {"nvidia.com/use-gpuuuid", true, false},
        {"nvidia.com/nouse-gpuuuid", true, true},
        {"volcano.sh/vgpu-use-gpuuuid", true, false},
        {"volcano.sh/vgpu-nouse-gpuuuid", true, true},
    };
    static const char *const models[] = {"a100", "T4", "H100"};
    static const char *const uuids[] = {"GPU-n-0", "gpu-N-1", "GPU-n-2"};
    struct world *w = *state;
    show_model(w, 0, "NVIDIA A100-SXM4-40GB", 40);
    show_model(w, 1, "Tesla T4", 15);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        for (unsigned named = 0; named < 3; named++) {
            char text[96];
            snprintf(text, sizeof(text), "\"%s\":\"none, %s\"", rows[i].key,
                     rows[i].uuid ? uuids[named] : models[named]);
            w->annotations = text;
            const char *answer = filter(w, "a", TENTH, "\"n\"");
            if (named == 2 && !rows[i].avoid) {
                assert_string_equal(answer, "-no GPU of the node is one that the pod selects");
            } else {
                assert_string_equal(answer, "n");
                if (named < 2)
                    assert_int_equal(assumed(w, "a", NULL), rows[i].avoid ? 1 - named : named);
            }
            state_pod_gone(w->state, "a");
        }
    /* Ours goes before another system's of the same meaning. */
    w->annotations =
        "\"volcano.sh/vgpu-use-gpuuuid\":\"GPU-n-2\","
        "\"nvidia.com/use-gpuuuid\":\"GPU-n-2\",\"elasticgpu.io/gpu-uuid\":\"GPU-n-1\"";
    assert_string_equal(filter(w, "a", TENTH, "\"n\""), "n");
    assert_int_equal(assumed(w, "a", NULL), 1);
}

static void test_every_selection(void **state) {
    static const struct {
        const char *annotations;
        struct gpu_selection want; /* lists are in the test above */
    } rows[] = {
        {"\"elasticgpu.io/topology\":\"none\"", {.topology = TOPOLOGY_NONE}},
        {"\"elasticgpu.io/topology\":\"Best\"", {.topology = TOPOLOGY_BEST}},
        {"\"elasticgpu.io/topology\":\"restricted\"", {.topology = TOPOLOGY_RESTRICTED}},
        {"\"elasticgpu.io/numa-bind\":\"true\"", {.numa_bind = true}},
        {"\"elasticgpu.io/numa-bind\":\"false\"", {.numa_bind = false}},
        {"\"nvidia.com/numa-bind\":\"true\"", {.numa_bind = true}},
        {"\"nvidia.com/numa-bind\":\"perhaps\"", {.numa_bind = false}},
        {"\"elasticgpu.io/placement-policy\":\"FGD\"",
         {.node_policy = "fgd", .card_policy = "fgd"}},
        {"\"hami.io/node-scheduler-policy\":\"spread\"", {.node_policy = "spread"}},
        {"\"hami.io/node-scheduler-policy\":\"binpack\"", {.node_policy = "binpack"}},
        {"\"hami.io/node-scheduler-policy\":\"whatever\"", {.node_policy = ""}},
        {"\"hami.io/gpu-scheduler-policy\":\"spread\"", {.card_policy = "spread"}},
        {"\"hami.io/gpu-scheduler-policy\":\"binpack\"", {.card_policy = "binpack"}},
        {"\"hami.io/gpu-scheduler-policy\":\"topology-aware\"", {.topology = TOPOLOGY_BEST}},
        {"\"hami.io/gpu-scheduler-policy\":\"mutex,numa, spread,a-word-longer-than-any-policy\"",
         {.numa_bind = true, .card_policy = "spread"}},
        {"\"hami.io/node-scheduler-policy\":\"spread\",\"hami.io/"
         "gpu-scheduler-policy\":\"binpack\"",
         {.node_policy = "spread", .card_policy = "binpack"}},
        {"\"hami.io/node-scheduler-policy\":\"spread\",\"hami.io/gpu-scheduler-policy\":\"spread\","
         "\"elasticgpu.io/placement-policy\":\"esc\"",
         {.node_policy = "esc", .card_policy = "esc"}},
    };
    struct world *w = *state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct gpu_selection *read = NULL;
        const struct gpu_selection *want = &rows[i].want;
        struct json root;
        char text[256];
        snprintf(text, sizeof(text), "{%s}", rows[i].annotations);
        assert_int_equal(json_parse(w->parser, text, strlen(text), &root, NULL), 0);
        assert_int_equal(selection_read(root, &read), 0);
        assert_non_null(read);
        assert_int_equal(read->topology, want->topology);
        assert_int_equal(read->numa_bind, want->numa_bind);
        assert_string_equal(read->node_policy, want->node_policy);
        assert_string_equal(read->card_policy, want->card_policy);
        assert_true(!read->use_models && !read->avoid_models && !read->use_uuids &&
                    !read->avoid_uuids);
        assert_null(selection_free(read));
    }
}

/* Which of the two nodes has the higher score. */
static const char *preferred(struct world *w, const char *annotations) {
    static char best[16];
    struct json score;
    int64_t most = INT64_MIN, points;
    w->annotations = annotations;
    (void) filter(w, "x", TENTH, "\"used\",\"free\"");
    struct json_iter it = json_iter(ask_nodes(w, true, "x", TENTH, "\"used\",\"free\""));
    while (json_next(&it, NULL, &score)) {
        assert_true(json_i64(json_get(score, "Score"), &points));
        assert_int_not_equal(points, most);
        if (points > most)
            snprintf(best, sizeof(best), "%s", json_string(json_get(score, "Host")));
        most = points > most ? points : most;
    }
    state_pod_gone(w->state, "x");
    return best;
}

/* HAMi's two tiers are apart: the node by one policy, the card on it by another. */
static void test_policy_of_each_tier(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf a = BUF_INIT(0);
    const char *key = "\"hami.io/node-scheduler-policy\":";
    char text[128];
    show_node(w, "used", 2);
    show_node(w, "free", 2);
    run_pod(w, "a", TENTH, "used", &a);
    uint32_t card = state_pod_find(w->state, "a")->allocations[0].device.index;
    static const char *const nodes[] = {"spread", "binpack"}, *const want[] = {"free", "used"};
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++) { /* the policy of the cards does not choose the node */
            snprintf(text, sizeof(text), "%s\"%s\"%s", key, nodes[i],
                     j == 0   ? ""
                     : j == 1 ? ",\"hami.io/gpu-scheduler-policy\":\"spread\""
                              : ",\"hami.io/gpu-scheduler-policy\":\"binpack\"");
            assert_string_equal(preferred(w, text), want[i]);
        }
    w->annotations = "\"hami.io/node-scheduler-policy\":\"binpack\","
                     "\"hami.io/gpu-scheduler-policy\":\"spread\"";
    assert_string_equal(filter(w, "b", TENTH, "\"used\""), "used");
    assert_int_not_equal(assumed(w, "b", NULL), card);
    state_pod_gone(w->state, "b");
    w->annotations = "\"hami.io/node-scheduler-policy\":\"spread\","
                     "\"hami.io/gpu-scheduler-policy\":\"binpack\"";
    assert_string_equal(filter(w, "b", TENTH, "\"used\""), "used");
    assert_int_equal(assumed(w, "b", NULL), card);
}

static void test_policies(void **state) {
    struct world *w = *state;
    const char *const names[] = {"first-fit", "best-fit", "binpack", "spread", "fgd", "esc"};
    _cleanup_buf_ struct buf a = BUF_INIT(0);
    show_node(w, "n", 4);
    run_pod(w, "a", TENTH, "n", &a);
    uint32_t used = state_pod_find(w->state, "a")->allocations[0].device.index;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char text[96];
        snprintf(text, sizeof(text), "\"elasticgpu.io/placement-policy\":\"%s\"", names[i]);
        assert_non_null(place_policy_find(names[i]));
        w->annotations = text;
        assert_string_equal(filter(w, names[i], TENTH, "\"n\""), "n");
        bool spread = strcmp(names[i], "spread") == 0;
        assert_int_equal(assumed(w, names[i], NULL) != used, spread);
        state_pod_gone(w->state, names[i]);
    }
    /* The namespace's, unless the pod has its own. */
    assert_int_equal(state_namespace_policy(w->state, "d", "spread", "spread"), 0);
    w->annotations = NULL;
    assert_string_equal(filter(w, "ns", TENTH, "\"n\""), "n");
    assert_int_not_equal(assumed(w, "ns", NULL), used);
    w->annotations = "\"hami.io/gpu-scheduler-policy\":\"binpack\"";
    assert_string_equal(filter(w, "own", TENTH, "\"n\""), "n");
    state_pod_gone(w->state, "ns");
    assert_string_equal(filter(w, "own", TENTH, "\"n\""), "n");
    assert_int_equal(assumed(w, "own", NULL), used);
    assert_int_equal(state_namespace_policy(w->state, "d", NULL, NULL), 0);
    w->annotations = NULL;
    assert_string_equal(filter(w, "late", TENTH, "\"n\""), "n");
    assert_int_equal(assumed(w, "late", NULL), used);
}

/* ---- reserved capacity ---- */

static struct assigned_device part(unsigned card, uint32_t core, uint64_t gib) {
    struct assigned_device d = {
        .index = card, .core = core, .memory = gib * GIB, .physical = gib * GIB};
    snprintf(d.uuid, sizeof(d.uuid), "GPU-n-%u", card);
    return d;
}

static void test_a_hold_is_not_free(void **state) {
    struct world *w = *state;
    struct assigned_device d = part(0, 60, 48);
    show_node(w, "n", 1);
    assert_int_equal(state_reserve(w->state, "r", "n", &d, 1), 0);
    assert_int_equal(free_core(w, "n", 0), 40);
    assert_memory_equal(filter(w, "a", HALF, "\"n\""), "-no GPU has enough free", 23);
    /* The one that draws on it has it, and what it takes does not count twice. */
    show_pod(w, "b", HALF, NULL, "");
    assert_int_equal(state_draw(state_pod_find(w->state, "b"), "main", "r"), 0);
    assert_string_equal(filter(w, "b", HALF, "\"n\""), "n");
    assert_int_equal(free_core(w, "n", 0), 40);
    /* The rest of the hold stays held: a tenth of it, and 40 that no pod uses. */
    assert_memory_equal(filter(w, "c", HALF, "\"n\""), "-no GPU has enough free", 23);
    state_unreserve(w->state, "r");
    assert_int_equal(free_core(w, "n", 0), 50);
    assert_string_equal(filter(w, "c", HALF, "\"n\""), "n");
}

/* Containers that draw on one reservation use it once; one that draws on another takes none. */
static void test_two_containers_draw_on_one_reservation(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf a = BUF_INIT(0);
    struct assigned_device d = part(0, 60, 48), tenth = part(0, 10, 8);
    struct gpu_request request;
    struct place_plan plan;
    struct place_result result;
    struct pod two = {.uid = "two", .namespace = "d", .name = "two", .request = {.n = 2}};
    show_node(w, "n", 1);
    for (int i = 0; i < 2; i++) {
        two.request.containers[i] =
            (struct container_request){.phase = CONTAINER_APP, .cards = 1, .core = 50};
        snprintf(two.request.containers[i].container, 8, "c%d", i);
    }
    run_pod(w, "a", TENTH, "n", &a);
    assert_int_equal(state_reserve(w->state, "r", "n", &d, 1), 0); /* leaves 30 */
    struct state_pod *pod = state_pod_learn(w->state, &two);
    struct state_node *n = state_node_find(w->state, "n");
    assert_int_equal(state_draw(pod, "c0", "r"), 0);
    assert_int_equal(state_draw(pod, "c1", "r"), 0);
    state_plan(w->state, pod, &request, &plan);
    assert_int_equal(state_place(w->state, &plan, n, pod, false, &result), PLACE_NOT_TOGETHER);
    state_pod_gone(w->state, "a"); /* leaves 40, which with the 60 is all they need */
    assert_int_equal(state_place(w->state, &plan, n, pod, false, &result), PLACE_OK);
    /* The other's hold is not for the whole pod, though the rest of it draws on it. */
    assert_int_equal(state_reserve(w->state, "s", "n", &tenth, 1), 0);
    assert_int_equal(state_draw(pod, "c1", "s"), 0);
    assert_int_equal(state_draw(pod, "c0", NULL), 0);
    assert_int_equal(state_draw(pod, NULL, "r"), 0);
    state_plan(w->state, pod, &request, &plan); /* 0 of the 30 that are free, and 40 */
    assert_int_equal(state_place(w->state, &plan, n, pod, false, &result), PLACE_NO_CORE);
    state_unreserve(w->state, "r");
    assert_int_equal(state_place(w->state, &plan, n, pod, false, &result), PLACE_OK);
}

/* More than is free: its current holder is about to go. No new pod comes in. */
static void test_a_hold_on_what_is_taken(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf a = BUF_INIT(0);
    struct assigned_device d = part(0, 100, 80);
    show_node(w, "n", 1);
    run_pod(w, "a", HALF, "n", &a);
    assert_int_equal(state_reserve(w->state, "w", "n", &d, 1), 0); /* for the pod of that UID */
    assert_int_equal(free_core(w, "n", 0), 0);
    assert_false(state_node_find(w->state, "n")->cards[0]->overcommitted);
    assert_int_equal(filter(w, "b", TENTH, "\"n\"")[0], '-');
    assert_int_equal(filter(w, "w", WHOLE, "\"n\"")[0], '-');
    state_pod_gone(w->state, "a");
    assert_int_equal(filter(w, "b", TENTH, "\"n\"")[0], '-');
    assert_string_equal(filter(w, "w", WHOLE, "\"n\""), "n");
    /* Replaced by a smaller one, and moved away. */
    d = part(0, 10, 8);
    assert_int_equal(state_reserve(w->state, "w", "n", &d, 1), 0);
    assert_int_equal(free_core(w, "n", 0), 0); /* the pod has all of it */
    state_pod_gone(w->state, "w");
    assert_int_equal(free_core(w, "n", 0), 90);
    assert_int_equal(state_reserve(w->state, "w", "elsewhere", &d, 1), 0);
    assert_int_equal(free_core(w, "n", 0), 100);
    /* A node that is there for the hold only is not taken from who looks at it just now. */
    struct state_node *elsewhere = state_node_find(w->state, "elsewhere");
    state_unreserve(w->state, "w");
    assert_ptr_equal(state_node_find(w->state, "elsewhere"), elsewhere);
    state_expire(w->state, w->now, ASSUMED_TTL_MS);
    assert_null(state_node_find(w->state, "elsewhere"));
    assert_non_null(state_node_find(w->state, "n"));
}

/* ---- CPU and memory ---- */

static void show_load(struct world *w, const char *uid, const char *node, const char *cpu) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    buf_printf(&text,
               "{\"metadata\":{\"name\":\"%s\",\"namespace\":\"d\",\"uid\":\"%s\"},\"spec\":{"
               "\"nodeName\":\"%s\",\"containers\":[{\"name\":\"c\",\"resources\":{\"requests\":{"
               "\"cpu\":\"%s\",\"memory\":\"1Gi\"}}}]}}",
               uid, uid, node, cpu);
    show_text(w, buf_str(&text));
}

static void test_room(void **state) {
    struct world *w = *state;
    show_node(w, "n", 1);
    assert_int_equal(state_node_room(w->state, "n", (struct cpu_memory){8000, 32 * GIB, 0}), 0);
    show_load(w, "x", "n", "1500m");
    show_load(w, "y", "n", "0.25");
    show_load(w, "y", "n", "500m"); /* resized */
    struct state_node *n = state_node_find(w->state, "n");
    assert_int_equal(n->used.cpu, 2000);
    assert_true(n->used.memory == 2 * GIB);
    state_sync_begin(w->state, STATE_PODS);
    show_load(w, "x", "n", "1500m");
    state_sync_end(w->state, STATE_PODS);
    assert_int_equal(n->used.cpu, 1500);
    state_pod_gone(w->state, "x");
    assert_int_equal(n->used.cpu, 0);
    /* A node that only the pod has named is forgotten with it. */
    show_load(w, "z", "unknown", "1");
    assert_non_null(state_node_find(w->state, "unknown"));
    state_pod_gone(w->state, "z");
    assert_null(state_node_find(w->state, "unknown"));
}

/* A share without guaranteed compute takes a slot of its card, one with compute does not. */
static void test_slots_of_shares(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf a = BUF_INIT(0), b = BUF_INIT(0);
    show_node(w, "n", 1);
    const struct state_node *n = state_node_find(w->state, "n");
    run_pod(w, "a", "\"elasticgpu.io/gpu-memory\":\"1Gi\",\"elasticgpu.io/slot\":\"1\"", "n", &a);
    assert_int_equal(free_core(w, "n", 0), 100);
    assert_int_equal(n->place[0].free.slots, SLOTS_PER_CARD - 1);
    run_pod(w, "b", HALF, "n", &b);
    assert_int_equal(free_core(w, "n", 0), 50);
    assert_int_equal(n->place[0].free.slots, SLOTS_PER_CARD - 1);
}

/* A container of a pod with a share can be given more CPU or memory while it runs. */
static void test_room_of_a_share_changes(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf a = BUF_INIT(0);
    static const char *const sizes[] = {"\"cpu\":\"1\",\"memory\":\"1Gi\"",
                                        "\"cpu\":\"3\",\"memory\":\"1Gi\"",
                                        "\"cpu\":\"3\",\"memory\":\"2Gi\""};
    static const struct cpu_memory want[] = {{1000, GIB, 0}, {3000, GIB, 0}, {3000, 2 * GIB, 0}};
    show_node(w, "n", 1);
    assert_int_equal(state_node_room(w->state, "n", (struct cpu_memory){8000, 32 * GIB, 0}), 0);
    struct state_node *n = state_node_find(w->state, "n");
    for (size_t i = 0; i < 3; i++) {
        char resources[128];
        snprintf(resources, sizeof(resources), "%s},\"requests\":{%s", HALF, sizes[i]);
        if (i == 0)
            run_pod(w, "a", resources, "n", &a);
        else
            show_pod(w, "a", resources, "n", buf_str(&a));
        assert_int_equal(n->used.cpu, want[i].cpu);
        assert_true(n->used.memory == want[i].memory);
        assert_true(n->head->dirty);
        state_refresh(w->state, n);
        assert_int_equal(state_place_node(n).cpu_free, 8000 - want[i].cpu);
    }
    state_pod_gone(w->state, "a");
    assert_int_equal(n->used.cpu, 0);
}

/* The age of an assumed allocation counts, and not how late it was made. */
static void test_an_assumed_allocation_ends_by_its_age(void **state) {
    struct world *w = *state;
    show_node(w, "n", 1);
    w->now = 100 * ASSUMED_TTL_MS;
    show_pod(w, "p", HALF, NULL, "");
    assert_string_equal(filter(w, "p", HALF, "\"n\""), "n");
    assert_int_equal(state_expire(w->state, w->now + ASSUMED_TTL_MS - 1, ASSUMED_TTL_MS), 0);
    assert_int_equal(free_core(w, "n", 0), 50);
    assert_int_equal(state_expire(w->state, w->now + ASSUMED_TTL_MS, ASSUMED_TTL_MS), 1);
    assert_int_equal(free_core(w, "n", 0), 100);
}

/* ---- what was learned ---- */

static void test_workload_is_kept(void **state) {
    struct world *w = *state;
    const struct api api = {fake_request, w};
    struct workload_store first = {.state = w->state, .api = api, .name_space = "sys"}, next;
    _cleanup_buf_ struct buf written = BUF_INIT(0);
    assert_int_equal(workload_store_init(&first), 0);
    show_node(w, "n", 2);
    workload_store_run(&first, w->now, true);
    workload_store_run(&first, w->now, true); /* one question at a time */
    assert_int_equal(w->nasked, 1);
    assert_string_equal(w->asked[0].path, "/api/v1/namespaces/sys/configmaps/aliquot-workload");
    respond(w, 0, 500, false, NULL);
    assert_null(w->state->model);
    workload_store_run(&first, w->now, true);
    respond(w, 0, 404, false, NULL);
    assert_non_null(w->state->model);
    workload_store_run(&first, w->now, true);
    assert_int_equal(w->nasked, 0); /* nothing new */
    show_pod(w, "a", HALF, NULL, "");
    show_pod(w, "a", HALF, NULL, "");
    assert_int_equal(w->state->arrived, 1);
    workload_store_run(&first, w->now, false);
    assert_int_equal(w->nasked, 0); /* another replica writes */
    workload_store_run(&first, w->now, true);
    assert_int_equal(w->nasked, 1);
    assert_string_equal(w->asked[0].method, "PATCH");
    respond(w, 0, 500, false, NULL);
    workload_store_run(&first, w->now + WORKLOAD_STORE_INTERVAL_MS - 1, true);
    assert_int_equal(w->nasked, 0);
    w->now += WORKLOAD_STORE_INTERVAL_MS; /* written again, though no pod has arrived since */
    workload_store_run(&first, w->now, true);
    assert_int_equal(w->nasked, 1);
    buf_append(&written, w->asked[0].body.data, w->asked[0].body.len);
    respond(w, 0, 200, false, NULL);
    show_pod(w, "b", HALF, NULL, "");
    workload_store_run(&first, w->now + WORKLOAD_STORE_INTERVAL_MS - 1, true);
    assert_int_equal(w->nasked, 0);
    stop(w);
    workload_store_done(&first);
    start(w);
    next = (struct workload_store){.state = w->state, .api = api, .name_space = "sys"};
    assert_int_equal(workload_store_init(&next), 0);
    workload_store_run(&next, w->now, true);
    respond(w, 0, 200, false, buf_str(&written));
    _cleanup_buf_ struct buf again = BUF_INIT(0);
    show_pod(w, "c", HALF, NULL, "");
    workload_store_run(&next, w->now, true);
    assert_int_equal(w->nasked, 1);
    assert_non_null(strstr(buf_str(&w->asked[0].body), "shape 1 50 0 0 any 2")); /* both */
    respond(w, 0, 200, false, NULL);
    stop(w);
    workload_store_done(&next);
    start(w);
}

/* Names of every length that differ in the last letter only; some nodes go and others come. */
static void test_nodes_by_name(void **state) {
    struct world *w = *state;
    struct state_node *found[2];
    char name[KUBE_NAME_MAX];
    assert_int_equal(state_node_seen(w->state, "first"), 0);
    assert_int_equal(w->state->heads->used, 1);
    state_node_gone(w->state, "first");
    assert_int_equal(w->state->heads->used, 0);
    for (int round = 0; round < 3; round++) {
        for (size_t len = 1; len < sizeof(name); len++) {
            memset(name, 'n', len);
            name[len] = '\0';
            for (size_t i = 0; i < 2; i++) {
                name[len - 1] = (char) ('a' + i);
                assert_int_equal(state_node_seen(w->state, name), 0);
            }
        }
        for (size_t len = 1; len < sizeof(name); len++) {
            memset(name, 'n', len);
            name[len] = '\0';
            for (size_t i = 0; i < 2; i++) {
                name[len - 1] = (char) ('a' + i);
                found[i] = state_node_find(w->state, name);
                assert_non_null(found[i]);
                assert_string_equal(found[i]->name, name);
                assert_ptr_equal(found[i]->head->node, found[i]);
            }
            name[len - 1] = 'c';
            assert_null(state_node_find(w->state, name));
            if (len % 3 == (size_t) round)
                state_node_gone(w->state, found[1]->name);
            name[len - 1] = 'b';
            assert_true((state_node_find(w->state, name) == NULL) == (len % 3 == (size_t) round));
        }
    }
}

/* Nodes are found without the hash table again, nearly all of them, however they are named. */
static void test_where_names_were_found(void **state) {
    static const struct {
        const char *before, *after;
        int digits;
    } forms[] = {{"n", "", 1},
                 {"node-", "", 5},
                 {"gpu-node-", ".example.internal", 4},
                 {"ip-10-0-", ".ec2.internal", 1}};
    enum { NODES = 5000 };
    struct world *w = *state;
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        size_t kept = 0;
        char name[64];
        for (int round = 0; round < 2; round++)
            for (unsigned n = 0; n < NODES; n++) {
                snprintf(name, sizeof(name), "%s%0*u%s", forms[i].before, forms[i].digits, n,
                         forms[i].after);
                assert_int_equal(state_node_seen(w->state, name), 0);
            }
        for (size_t at = 0; at < STATE_NAMES; at++)
            kept += w->state->names[at].head != NULL;
        assert_in_range(kept, NODES - NODES / 50, NODES);
        for (unsigned n = 0; n < NODES; n++) {
            snprintf(name, sizeof(name), "%s%0*u%s", forms[i].before, forms[i].digits, n,
                     forms[i].after);
            state_node_gone(w->state, name);
        }
        for (size_t at = 0; at < STATE_NAMES; at++)
            assert_null(w->state->names[at].head);
    }
}

/* The last test: what is left stays left. A share of those names that runs is kept, also by a
 * scheduler that has never known them; a pod that waits with the carrier is told so. */
static void test_names_left_while_they_are_in_use(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf a = BUF_INIT(0);
    const char *container = "\"nvidia.com/gpu\":\"1\",\"nvidia.com/gpucores\":\"30\","
                            "\"elasticgpu.io/slot\":\"1\"";
    struct err err;
    show_node(w, "n", 1);
    run_pod(w, "a", container, "n", &a);
    assert_int_equal(free_core(w, "n", 0), 70);
    state_pod_gone(w->state, "a");
    assert_int_equal(free_core(w, "n", 0), 100);
    assert_int_equal(dialect_leave("nvidia.com/gpu", &err), 0);
    show_pod(w, "a", container, "n", buf_str(&a));
    assert_int_equal(free_core(w, "n", 0), 70);
    assert_memory_equal(filter(w, "b", container, "\"n\""), "-GPU request is malformed", 25);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        T(test_a_card_goes_and_comes_back),
        T(test_another_card_of_the_same_name),
        T(test_unattributed_memory_is_not_allocated),
        T(test_replicas_are_as_the_card_says),
        T(test_unequal_cards),
        T(test_too_few_of_the_selected_model),
        T(test_the_amount_of_a_share),
        T(test_tflops_of_an_unknown_model),
        T(test_selection),
        T(test_every_list),
        T(test_every_selection),
        T(test_policy_of_each_tier),
        T(test_policies),
        T(test_a_hold_is_not_free),
        T(test_two_containers_draw_on_one_reservation),
        T(test_a_hold_on_what_is_taken),
        T(test_room),
        T(test_slots_of_shares),
        T(test_room_of_a_share_changes),
        T(test_an_assumed_allocation_ends_by_its_age),
        T(test_workload_is_kept),
        T(test_nodes_by_name),
        T(test_where_names_were_found),
        T(test_names_left_while_they_are_in_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
