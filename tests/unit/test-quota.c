/* SPDX-License-Identifier: Apache-2.0 */

/* Quotas: what holds a pod of a namespace although there is room. */

#include "fail-malloc.h"
#include "gates-world.h"

static void test_use_of_a_namespace(void **state) {
    struct world *w = *state;
    show_node(w, "n", 8);
    assert_null(state_space_find(w->state, "a"));
    hold(w, "a", "1", HALF);
    hold(w, "a", "2", "\"elasticgpu.io/gpu-core\":\"200\"");
    hold(w, "b", "3", HALF);
    const struct state_space *a = state_space_find(w->state, "a");
    assert_int_equal(a->pods, 2);
    assert_int_equal(a->used.all.of[QUOTA_CORE], 250);
    assert_int_equal(a->used.all.of[QUOTA_MEMORY], 200 * GIB);
    assert_int_equal(a->used.all.of[QUOTA_CARDS], 3);
    state_release(w->state, state_pod_find(w->state, "2"));
    assert_int_equal(a->used.all.of[QUOTA_CORE], 50);
    state_pod_gone(w->state, "1");
    assert_int_equal(a->used.all.of[QUOTA_CORE], 0);
    state_pod_gone(w->state, "2");
    assert_null(state_space_find(w->state, "a"));
    assert_int_equal(state_space_find(w->state, "b")->used.all.of[QUOTA_CORE], 50);
}

/* Init containers run one after the other, and beside no app container. */
static void test_use_of_init_containers(void **state) {
    (void) state;
    struct state_allocation holds[] = {
        {.container = "init", .phase = CONTAINER_INIT, .device = {.core = 40, .memory = 9}},
        {.container = "init", .phase = CONTAINER_INIT, .device = {.core = 40, .memory = 9}},
        {.container = "next", .phase = CONTAINER_INIT, .device = {.core = 70, .memory = 1}},
        {.container = "app", .phase = CONTAINER_APP, .device = {.core = 30, .memory = 5}},
        {.container = "other", .phase = CONTAINER_APP, .device = {.core = 30, .memory = 5}},
    };
    const struct state_pod pod = {.nallocations = 5, .allocations = holds};
    const struct quota_use use = state_pod_use(&pod, NULL);
    assert_int_equal(use.of[QUOTA_CORE], 80);
    assert_int_equal(use.of[QUOTA_MEMORY], 18);
    assert_int_equal(use.of[QUOTA_CARDS], 2);
}

static void test_plain_limit(void **state) {
    struct world *w = *state;
    struct governed g;
    govern(&g, w);
    show_node(w, "n", 8);
    show_quota(&g, "a", "q", "\"max\":{" CORES(100) "," GIBS(70) "}");
    assert_string_equal(hold(w, "a", "1", HALF), "fits");
    assert_string_equal(hold(w, "a", "2", HALF),
                        "-quota exceeded: namespace a uses 40 GiB of 70 GiB "
                        "elasticgpu.io/gpu-memory, and this pod asks 40 GiB");
    assert_string_equal(hold(w, "b", "3", WHOLE), "fits");
    /* What it waits for is let go; then it is woken, once. */
    requeue_run(&g.requeue, w->now);
    assert_int_equal(w->nasked, 0);
    state_pod_gone(w->state, "1");
    requeue_run(&g.requeue, w->now += 2000);
    assert_int_equal(w->nasked, 1);
    respond(w, 0, 200, false, NULL);
    requeue_run(&g.requeue, w->now += 2000);
    assert_int_equal(w->nasked, 0);
    assert_string_equal(ask(w, "a", "2", HALF, ""), "fits");
    quotas_gone(&g.quotas, QUOTA_OF_OURS, "a", "q");
    assert_string_equal(hold(w, "a", "4", WHOLE), "fits");
    ungovern(&g);
}

/* The sums of absurd requests do not wrap around to what a quota has left. */
static void test_absurd_requests(void **state) {
    static const uint64_t memory[] = {UINT64_C(1) << 63, UINT64_C(1) << 58, UINT64_MAX / 64 + 1};
    struct world *w = *state;
    struct governed g;
    govern(&g, w);
    show_node(w, "n", 1);
    for (size_t i = 0; i < sizeof(memory) / sizeof(memory[0]); i++) {
        const struct container_request req = {
            .phase = CONTAINER_APP, .cards = 64, .core = 1, .memory = memory[i]};
        struct state_pod pod = {.ncontainers = GPU_CONTAINERS_MAX};
        struct container_request all[GPU_CONTAINERS_MAX];
        for (uint32_t c = 0; c < GPU_CONTAINERS_MAX; c++)
            all[c] = req;
        pod.containers = all;
        struct quota_use use = quotas_least_use(&g.quotas, &req, w->now);
        assert_int_equal(use.of[QUOTA_MEMORY], STATE_CHARGE_MAX);
        use = quotas_use_of(&g.quotas, &pod, w->now);
        assert_int_equal(use.of[QUOTA_MEMORY], GPU_CONTAINERS_MAX * STATE_CHARGE_MAX);
    }
    ungovern(&g);
}

/* Without memory to add up the quotas nothing is admitted. */
static void test_quota_without_memory(void **state) {
    struct world *w = *state;
    struct governed g;
    govern(&g, w);
    show_quota(&g, "a", "q", "\"cohort\":\"c\",\"guaranteed\":{" CORES(100) "}");
    const struct quota_use more = {.of = {[QUOTA_CORE] = 10}};
    _cleanup_buf_ struct buf why = BUF_INIT(0);
    size_t failures = 0;
    for (bool failed = true; failed; failures += failed) {
        fail_malloc_at(failures + 1);
        bool admitted = quotas_admit(&g.quotas, "a", &more, NULL, QUOTA_POD, &why);
        failed = fail_malloc_end();
        assert_int_equal(admitted, !failed);
        assert_string_equal(buf_str(&why), failed ? "out of memory" : "");
        buf_reset(&why);
    }
    assert_in_range(failures, 2, 10);
    ungovern(&g);
}

/* A quota that cannot be kept is an error, so that the quotas are listed again. */
static void test_quota_seen_without_memory(void **state) {
    struct world *w = *state;
    struct governed g;
    struct quota_object object = {
        .name = "q", .namespace = "a", .counted = {true, true, true}, .max = {1, 1, 1}};
    size_t failures = 0;
    govern(&g, w);
    for (int r = -ENOMEM; r < 0; failures += r < 0) {
        fail_malloc_at(failures + 1);
        r = quotas_seen(&g.quotas, QUOTA_OF_OURS, &object);
        assert_int_equal(r, fail_malloc_end() ? -ENOMEM : 0);
        assert_int_equal(g.quotas.all != NULL, r == 0);
    }
    assert_in_range(failures, 2, 10);
    ungovern(&g);
}

static void test_bind_asks_again(void **state) {
    struct world *w = *state;
    struct governed g;
    govern(&g, w);
    show_node(w, "n", 1);
    show_pod(w, "a", HALF, NULL, "");
    assert_string_equal(filter(w, "a", HALF, "\"n\""), "n");
    show_quota(&g, "d", "q", "\"max\":{" CORES(10) "}");
    bind_pod(w, "a", "n");
    assert_non_null(strstr(w->bind_answer, "quota exceeded"));
    assert_int_equal(w->nasked, 0);
    ungovern(&g);
}

static void show_model(struct world *w, const char *node, const char *model) {
    struct gpu_object gpu = {.memory = 40 * GIB, .healthy = true};
    snprintf(gpu.name, sizeof(gpu.name), "%s-00", node);
    snprintf(gpu.uuid, sizeof(gpu.uuid), "GPU-%s", node);
    snprintf(gpu.node, sizeof(gpu.node), "%s", node);
    snprintf(gpu.model, sizeof(gpu.model), "%s", model);
    show_node(w, node, 0);
    assert_int_equal(state_gpu_seen(w->state, &gpu, NULL), 0);
}

/* TFLOPS are as much of a card as they are of the one that the pod gets; before, of the fastest. */
static void test_tflops(void **state) {
    struct world *w = *state;
    struct governed g;
    static const char tflops[] =
        "\"elasticgpu.io/gpu-tflops\":\"100\",\"elasticgpu.io/slot\":\"1\"";
    govern(&g, w);
    show_model(w, "n", "NVIDIA A10");            /* 125 */
    show_model(w, "m", "NVIDIA A100-SXM4-40GB"); /* 312 */
    show_quota(&g, "a", "q", "\"max\":{" CORES(32) "}");
    show_quota(&g, "b", "q", "\"max\":{" CORES(112) "," GIBS(40) "}");
    arrive(w, "a", "1", tflops, "");
    assert_string_equal(ask(w, "a", "1", tflops, ""),
                        "-quota exceeded: namespace a uses 0 of 32 elasticgpu.io/gpu-core, and "
                        "this pod asks 33");
    assert_string_equal(hold(w, "b", "2", tflops), "fits"); /* on n */
    assert_int_equal(state_space_find(w->state, "b")->used.all.of[QUOTA_CORE], 80);
    assert_int_equal(state_space_find(w->state, "b")->used.all.of[QUOTA_MEMORY], 32 * GIB);
    assert_string_equal(hold(w, "b", "3", tflops),
                        "-quota exceeded: namespace b uses 80 of 112 elasticgpu.io/gpu-core, and "
                        "this pod asks 33");
    show_quota(&g, "b", "q", "\"max\":{" CORES(113) "," GIBS(40) "}");
    assert_non_null(strstr(ask(w, "b", "3", tflops, ""), "uses 32 GiB of 40 GiB"));
    show_quota(&g, "b", "q", "\"max\":{" CORES(113) "}");
    assert_string_equal(ask(w, "b", "3", tflops, ""), "fits");
    /* More than any card gives is not the quota's to hold. */
    static const char many[] = "\"elasticgpu.io/gpu-tflops\":\"400\",\"elasticgpu.io/slot\":\"1\"";
    show_quota(&g, "e", "q", "\"max\":{" CORES(100) "}");
    arrive(w, "e", "5", many, "");
    assert_null(strstr(ask(w, "e", "5", many, ""), "quota"));
    /* What it gets may be more than could be known: the place decides. */
    state_pod_gone(w->state, "2");
    show_quota(&g, "d", "q", "\"max\":{" CORES(50) "}");
    show_pod(w, "4", tflops, NULL, "");
    assert_string_equal(filter(w, "4", tflops, "\"n\",\"m\""), "n,m");
    bind_pod(w, "4", "n");
    assert_non_null(
        strstr(w->bind_answer, "uses 0 of 50 elasticgpu.io/gpu-core, and this pod asks 80"));
    assert_int_equal(w->nasked, 0);
    assert_int_equal(state_space_find(w->state, "d")->used.all.of[QUOTA_CORE], 0);
    bind_pod(w, "4", "m");
    respond(w, 0, 201, false, NULL);
    assert_string_equal(w->bind_answer, "");
    assert_int_equal(state_space_find(w->state, "d")->used.all.of[QUOTA_CORE], 33);
    ungovern(&g);
}

/* What counts before a pod has a place: the sum of the containers that run at once, on all of their
 * cards. */
static void test_use_of_a_request(void **state) {
    static const struct {
        const char *init, *containers;
        uint64_t core, gib, cards;
    } rows[] = {
        {"", CONTAINER("a", TENTH), 10, 8, 1},
        {"", CONTAINER("a", TENTH) "," CONTAINER("b", HALF), 60, 48, 2},
        {"", CONTAINER("a", TENTH) "," CONTAINER("b", "") "," CONTAINER("c", HALF), 60, 48, 2},
        {CONTAINER("i", WHOLE), CONTAINER("a", TENTH) "," CONTAINER("b", HALF), 100, 80, 2},
        {CONTAINER("i", HALF) "," CONTAINER("j", HALF), CONTAINER("a", TENTH), 50, 40, 1},
        {SIDECAR("s", HALF), CONTAINER("a", TENTH), 60, 48, 2},
        {"", CONTAINER("a", CORE(200)), 200, 160, 2},
        {"", CONTAINER("a", CARDS(2, 20)), 40, 2, 2},
        {"", CONTAINER("a", CARDS(2, 20)) "," CONTAINER("b", CARDS(3, 10)), 70, 5, 5},
        {"",
         CONTAINER("a", "\"elasticgpu.io/gpu-memory\":\"3Gi\""
                        ",\"elasticgpu.io/slot\":\"1\""),
         0, 3, 1},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        static const char *const names[] = {"gpu-core", "gpu-memory", "gpu"};
        const uint64_t uses[] = {rows[i].core, rows[i].gib * GIB, rows[i].cards};
        struct world *w = *state;
        for (int r = 0; r < QUOTA_RESOURCES; r++)
            for (uint64_t short_by = 0; short_by < 2 && uses[r] >= short_by; short_by++) {
                struct governed g;
                char spec[128];
                _cleanup_buf_ struct buf why = BUF_INIT(GATE_WHY_MAX);
                govern(&g, w);
                show_node(w, "n", 1);
                snprintf(spec, sizeof(spec), "\"max\":{\"elasticgpu.io/%s\":\"%" PRIu64 "\"}",
                         names[r], uses[r] - short_by);
                show_quota(&g, "a", "q", spec);
                struct state_pod *pod =
                    arrive_with(w, "a", "p", rows[i].init, rows[i].containers, "");
                bool open = quotas_open(&g.quotas, pod, w->now, &why);
                if (open != (short_by == 0))
                    fail_msg("row %zu, %s: %s", i, spec, buf_str(&why));
                state_pod_gone(w->state, "p");
                ungovern(&g);
            }
    }
}

/* The fastest card of the cluster is found again every ten seconds. */
static void test_a_faster_card_that_is_added(void **state) {
    struct world *w = *state;
    struct governed g;
    static const char tflops[] =
        "\"elasticgpu.io/gpu-tflops\":\"100\",\"elasticgpu.io/slot\":\"1\"";
    govern(&g, w);
    show_model(w, "n", "NVIDIA A10"); /* 125 */
    show_quota(&g, "a", "q", "\"max\":{" CORES(32) "}");
    arrive(w, "a", "1", tflops, "");
    assert_non_null(strstr(ask(w, "a", "1", tflops, ""), "this pod asks 80"));
    show_model(w, "m", "NVIDIA A100-SXM4-40GB"); /* 312 */
    w->now += 9999;
    assert_non_null(strstr(ask(w, "a", "1", tflops, ""), "this pod asks 80"));
    w->now += 1;
    assert_non_null(strstr(ask(w, "a", "1", tflops, ""), "this pod asks 33"));
    ungovern(&g);
}

static void test_foreign_names_and_resource_quota(void **state) {
    struct world *w = *state;
    struct governed g;
    govern(&g, w);
    show_node(w, "n", 4);
    show_resource_quota(&g, "a",
                        "\"hard\":{\"limits.nvidia.com/gpumem\":\"30720\","
                        "\"limits.nvidia.com/gpucores\":60,\"pods\":\"9\"}");
    show_resource_quota(&g, "b",
                        "\"scopes\":[\"BestEffort\"],\"hard\":{"
                        "\"limits.nvidia.com/gpucores\":1}");
    const char *hami = "\"nvidia.com/gpu\":\"2\",\"nvidia.com/gpumem\":\"10240\","
                       "\"nvidia.com/gpucores\":\"20\",\"elasticgpu.io/slot\":\"1\"";
    assert_string_equal(hold(w, "a", "1", hami), "fits");
    assert_int_equal(state_space_find(w->state, "a")->used.all.of[QUOTA_MEMORY], 20 * GIB);
    assert_int_equal(state_space_find(w->state, "a")->used.all.of[QUOTA_CORE], 40);
    assert_string_equal(hold(w, "a", "2", hami),
                        "-quota exceeded: namespace a uses 40 of 60 elasticgpu.io/gpu-core, and "
                        "this pod asks 40");
    assert_string_equal(hold(w, "b", "3", HALF), "fits");
    ungovern(&g);
}

static void test_borrowing(void **state) {
    struct world *w = *state;
    struct governed g;
    govern(&g, w);
    show_node(w, "n", 8);
    show_quota(&g, "a", "q",
               "\"cohort\":\"l\",\"guaranteed\":{" CORES(100) "},\"max\":{" CORES(250) "}");
    show_quota(&g, "b", "q", "\"cohort\":\"l\",\"guaranteed\":{" CORES(200) "}");
    show_quota(&g, "c", "q", "\"cohort\":\"other\",\"guaranteed\":{" CORES(900) "}");
    assert_string_equal(hold(w, "a", "1", WHOLE), "fits");
    assert_string_equal(hold(w, "a", "2", WHOLE), "fits"); /* borrowed of b */
    assert_string_equal(hold(w, "a", "3", WHOLE), /* more than its own limit, of whomsoever */
                        "-quota exceeded: namespace a uses 200 of 250 elasticgpu.io/gpu-core, and "
                        "this pod asks 100");
    assert_string_equal(hold(w, "a", "4", HALF), "fits");
    assert_string_equal(hold(w, "b", "5", WHOLE), "fits"); /* its own, though 350 of 300 are used */
    assert_string_equal(hold(w, "b", "6", WHOLE), "fits");
    assert_string_equal(hold(w, "b", "7", TENTH),
                        "-nothing left to borrow: cohort l uses 450 of 300 "
                        "elasticgpu.io/gpu-core, and this pod asks 10");
    state_pod_gone(w->state, "1");
    state_pod_gone(w->state, "2");
    assert_string_equal(ask(w, "b", "7", TENTH, ""), "fits");
    ungovern(&g);
}

static void test_memory_alone_is_borrowed(void **state) {
    struct world *w = *state;
    struct governed g;
    govern(&g, w);
    show_node(w, "n", 2);
    show_quota(&g, "a", "q", "\"cohort\":\"lab\",\"guaranteed\":{" GIBS(20) "}");
    show_quota(&g, "b", "q", "\"cohort\":\"lab\",\"guaranteed\":{" GIBS(60) "}");
    assert_string_equal(hold(w, "a", "1", HALF), "fits");
    assert_string_equal(hold(w, "a", "2", HALF), "fits");
    assert_non_null(strstr(hold(w, "a", "3", TENTH), "cohort lab uses 80 GiB of 80 GiB"));
    ungovern(&g);
}

/* What a pod has is not counted a second time when it is asked about again. */
static void test_own_share(void **state) {
    struct world *w = *state;
    struct governed g;
    _cleanup_buf_ struct buf why = BUF_INIT(GATE_WHY_MAX);
    govern(&g, w);
    show_node(w, "n", 1);
    show_quota(&g, "a", "q",
               "\"cohort\":\"lab\",\"guaranteed\":{" CORES(20) "},\"max\":{" CORES(50) "}");
    show_quota(&g, "b", "q", "\"cohort\":\"lab\",\"guaranteed\":{" CORES(30) "}");
    assert_string_equal(hold(w, "a", "1", HALF), "fits");
    assert_true(quotas_open(&g.quotas, state_pod_find(w->state, "1"), w->now, &why));
    ungovern(&g);
}

/* Against the definition, for any amounts: never more than max; beyond what is guaranteed only as
 * long as the cohort's sum holds; within it always. */
static void test_quota_arithmetic(void **state) {
    struct world *w = *state;
    uint64_t seed = 42;
    for (int round = 0; round < 2000; round++) {
        struct quotas q = {.state = w->state};
        uint64_t used[3], part[3], most[3], pool = 0, all = 0;
        static const char *const names[] = {"a", "b", "c"};
        struct state_pod pods[3] = {0};
        for (int i = 0; i < 3; i++) {
            struct quota_object o = {.cohort = "lab", .counted = {true, false, false}};
            memcpy(o.namespace, names[i], 2);
            memcpy(o.name, "q", 2);
            memcpy(pods[i].namespace, names[i], 2);
            o.guaranteed[0] = part[i] = rnd(&seed) % 8;
            most[i] = part[i] + rnd(&seed) % 4;
            o.max[0] = rnd(&seed) % 4 ? most[i] : (most[i] = UINT64_MAX);
            used[i] = rnd(&seed) % 8;
            pool += part[i];
            all += used[i];
            assert_int_equal(quotas_seen(&q, QUOTA_OF_OURS, &o), 0);
            assert_int_equal(space_join(w->state, &pods[i]), 0);
            state_space_find(w->state, names[i])->used.all.of[0] = used[i];
        }
        for (uint64_t more = 1; more < 6; more++) {
            _cleanup_buf_ struct buf why = BUF_INIT(512);
            const struct quota_use ask_for = {{more}};
            bool fits =
                used[0] + more <= most[0] && (used[0] + more <= part[0] || all + more <= pool);
            assert_int_equal(quotas_admit(&q, "a", &ask_for, NULL, QUOTA_POD, &why), fits);
            assert_int_equal(why.len == 0, fits);
        }
        quotas_done(&q);
        for (int i = 0; i < 3; i++)
            space_leave(w->state, &pods[i]);
    }
}

/* What is remembered of a cohort follows every change of its quotas and of what is used. */
static void test_cohort_that_changes(void **state) {
    struct world *w = *state;
    struct governed g;
    govern(&g, w);
    show_node(w, "n", 8);
    show_quota(&g, "a", "q", "\"cohort\":\"lab\",\"guaranteed\":{" CORES(50) "}");
    show_quota(&g, "b", "q", "\"cohort\":\"lab\",\"guaranteed\":{" CORES(50) "}");
    show_quota(&g, "b", "twice", "\"cohort\":\"lab\",\"guaranteed\":{" CORES(0) "}");
    assert_string_equal(hold(w, "a", "1", HALF), "fits");
    assert_string_equal(hold(w, "b", "2", HALF), "fits");
    state_pod_gone(w->state, "2");
    assert_string_equal(hold(w, "a", "3", HALF), "fits"); /* borrows it */
    show_quota(&g, "b", "q", "\"cohort\":\"lab\",\"guaranteed\":{" CORES(100) "}");
    assert_string_equal(hold(w, "a", "4", HALF), "fits");
    show_quota(&g, "b", "q", "\"cohort\":\"other\",\"guaranteed\":{" CORES(100) "}");
    assert_non_null(strstr(hold(w, "a", "5", HALF), "cohort lab uses 150 of 50"));
    /* Whichever byte of it changes, and however little. */
    for (const char *name = "laclabldb"; strlen(name) >= 3; name += 3) {
        char spec[128];
        snprintf(spec, sizeof(spec), "\"cohort\":\"%.3s\",\"guaranteed\":{" CORES(50) "}", name);
        show_quota(&g, "a", "q", spec);
        char *why = strstr(hold(w, "a", "5", HALF), "cohort ");
        assert_non_null(why);
        assert_memory_equal(why + 7, name, 3);
    }
    quotas_gone(&g.quotas, QUOTA_OF_OURS, "a", "q");
    assert_string_equal(hold(w, "a", "5", HALF), "fits");
    ungovern(&g);
}

static void count_patch(const struct quota_object *object, const struct quota_usage *used,
                        void *userdata) {
    char *out = userdata;
    size_t len = strlen(out);
    snprintf(out + len, 256 - len, "%s=%" PRIu64 " ", object->namespace, used->all.of[QUOTA_CORE]);
}

static void test_status_of_quotas(void **state) {
    struct world *w = *state;
    struct governed g;
    char told[256] = "";
    govern(&g, w);
    show_node(w, "n", 2);
    show_quota(&g, "a", "q", "\"max\":{" CORES(100) "}");
    hold(w, "a", "1", HALF);
    quotas_project(&g.quotas, 9, count_patch, told);
    assert_string_equal(told, "a=50 ");
    struct json object;
    struct quota_object seen;
    parse(
        w,
        "{\"metadata\":{\"name\":\"q\",\"namespace\":\"a\"},\"spec\":{\"max\":{" CORES(
            100) "}},"
                 "\"status\":{\"used\":{" CORES(50) "," GIBS(40) ",\"elasticgpu.io/gpu\":\"1\"}}}",
        &object);
    assert_int_equal(quota_object_parse(object, &seen, NULL), 0);
    assert_int_equal(quotas_seen(&g.quotas, QUOTA_OF_OURS, &seen), 0);
    quotas_project(&g.quotas, 9, count_patch, told);
    assert_string_equal(told, "a=50 ");
    /* A list with it: kept. */
    quotas_sync_begin(&g.quotas, QUOTA_OF_OURS);
    assert_int_equal(quotas_seen(&g.quotas, QUOTA_OF_OURS, &seen), 0);
    quotas_sync_end(&g.quotas, QUOTA_OF_OURS);
    assert_non_null(g.quotas.all);
    /* A list without it: gone. */
    quotas_sync_begin(&g.quotas, QUOTA_OF_OURS);
    quotas_sync_end(&g.quotas, QUOTA_OF_OURS);
    assert_null(g.quotas.all);
    ungovern(&g);
}

/* The CRD of an earlier release drops the part of claims: it is sent once for each usage, and again
 * where the API server did not take it. */
static void test_status_without_the_part_of_claims(void **state) {
    struct world *w = *state;
    struct governed g;
    char told[256] = "";
    struct json object;
    struct quota_object seen;
    struct quota_use use = {{50, 0, 0}};
    govern(&g, w);
    assert_int_equal(state_charge(w->state, "claim", "a", &use), 0);
    parse(w,
          "{\"metadata\":{\"name\":\"q\",\"namespace\":\"a\"},\"spec\":{\"max\":{" CORES(
              100) "}},\"status\":{\"used\":{" CORES(50) "}}}",
          &object);
    assert_int_equal(quota_object_parse(object, &seen, NULL), 0);
    assert_int_equal(quotas_seen(&g.quotas, QUOTA_OF_OURS, &seen), 0);
    for (int i = 0; i < 3; i++)
        quotas_project(&g.quotas, 9, count_patch, told);
    assert_string_equal(told, "a=50 ");
    quotas_refused(&g.quotas);
    for (int i = 0; i < 3; i++)
        quotas_project(&g.quotas, 9, count_patch, told);
    assert_string_equal(told, "a=50 a=50 ");
    /* A part that is shown and wrong is put right. */
    seen.has_claims = true;
    assert_int_equal(quotas_seen(&g.quotas, QUOTA_OF_OURS, &seen), 0);
    quotas_project(&g.quotas, 9, count_patch, told);
    assert_string_equal(told, "a=50 a=50 a=50 ");
    seen.has_claims = false;
    assert_int_equal(quotas_seen(&g.quotas, QUOTA_OF_OURS, &seen), 0);
    use.of[QUOTA_CORE] = 60;
    assert_int_equal(state_charge(w->state, "claim", "a", &use), 0);
    quotas_project(&g.quotas, 9, count_patch, told);
    assert_string_equal(told, "a=50 a=50 a=50 a=60 ");
    state_uncharge(w->state, "claim");
    ungovern(&g);
}

/* Of two of which one may be written at a time, one fails always. */
static void test_nobody_starves(void **state) {
    struct world *w = *state;
    struct governed g;
    char told[256] = "";
    govern(&g, w);
    show_node(w, "n", 2);
    show_quota(&g, "a", "q", "\"max\":{" CORES(100) "}");
    show_quota(&g, "b", "q", "\"max\":{" CORES(100) "}");
    hold(w, "a", "1", HALF);
    for (int i = 0; i < 4; i++) {
        size_t before = strlen(told);
        quotas_project(&g.quotas, 1, count_patch, told);
        char *end = strchr(told + before, ' ');
        assert_true(!end || end[1] == '\0'); /* not more than one */
    }
    assert_non_null(strstr(told, "a=50"));
    assert_non_null(strstr(told, "b=0"));
    ungovern(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        T(test_use_of_a_namespace),
        T(test_nobody_starves),
        T(test_use_of_init_containers),
        T(test_use_of_a_request),
        T(test_plain_limit),
        T(test_absurd_requests),
        T(test_quota_without_memory),
        T(test_quota_seen_without_memory),
        T(test_bind_asks_again),
        T(test_tflops),
        T(test_a_faster_card_that_is_added),
        T(test_foreign_names_and_resource_quota),
        T(test_borrowing),
        T(test_memory_alone_is_borrowed),
        T(test_own_share),
        T(test_quota_arithmetic),
        T(test_cohort_that_changes),
        T(test_status_of_quotas),
        T(test_status_without_the_part_of_claims),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
