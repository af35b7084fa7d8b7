/* SPDX-License-Identifier: Apache-2.0 */

/* Quotas and gangs: what holds a pod although there is room. */

#include "scheduler-world.h"

#include "kube/gang.h"
#include "kube/quota_object.h"
#include "scheduler/gates/gang.h"
#include "scheduler/gates/quota.h"
#include "scheduler/state/space.h"
#include "scheduler/wake.h"

/* The scheduler of scheduler-world.h with gates. */
struct governed {
    struct world *w;
    struct gates gates;
    struct quotas quotas;
    struct gangs gangs;
    struct wake wake;
    char told[1024]; /* the last Event of gangs */
    int tellings;
};

static void on_told(struct state_pod *pod, const char *reason, const char *message,
                    void *userdata) {
    struct governed *g = userdata;
    (void) pod;
    snprintf(g->told, sizeof(g->told), "%s: %s", reason, message);
    g->tellings++;
}

static void govern(struct governed *g, struct world *w) {
    const struct api api = {fake_request, w};
    *g = (struct governed){.w = w};
    g->quotas = (struct quotas){.state = w->state};
    g->gangs =
        (struct gangs){.state = w->state, .gates = &g->gates, .tell = on_told, .userdata = g};
    g->gates.rows[g->gates.n++] = (struct gate){"quota", &g->quotas, quotas_open};
    g->gates.rows[g->gates.n++] = (struct gate){"gang", &g->gangs, gangs_open};
    g->wake = (struct wake){.state = w->state, .api = api, .gates = &g->gates, .name_space = "s"};
    w->extender.gates = w->binder.gates = &g->gates;
}

static void ungovern(struct governed *g) {
    quotas_done(&g->quotas);
    gangs_done(&g->gangs);
    g->w->extender.gates = g->w->binder.gates = NULL;
}

/* ---- objects ---- */

static void parse(struct world *w, const char *text, struct json *ret) {
    struct err err;
    assert_int_equal(json_parse(w->parser, text, strlen(text), ret, &err), 0);
}

#define CORES(n) "\"elasticgpu.io/gpu-core\":" #n
#define GIBS(n) "\"elasticgpu.io/gpu-memory\":\"" #n "Gi\""

static void show_quota(struct governed *g, const char *namespace, const char *name,
                       const char *spec) {
    struct json object;
    struct quota_object quota;
    struct err err;
    char text[1024];
    snprintf(text, sizeof(text),
             "{\"metadata\":{\"name\":\"%s\",\"namespace\":\"%s\"},\"spec\":{%s}}", name, namespace,
             spec);
    parse(g->w, text, &object);
    assert_int_equal(quota_object_parse(object, &quota, &err), 0);
    assert_int_equal(quotas_seen(&g->quotas, QUOTA_OF_OURS, &quota), 0);
}

static void show_resource_quota(struct governed *g, const char *namespace, const char *spec) {
    struct json object;
    struct quota_object quota;
    struct err err;
    char text[1024];
    snprintf(text, sizeof(text),
             "{\"metadata\":{\"name\":\"q\",\"namespace\":\"%s\"},\"spec\":{%s}}", namespace, spec);
    parse(g->w, text, &object);
    assert_int_equal(resource_quota_parse(object, &quota, &err), 0);
    assert_int_equal(quotas_seen(&g->quotas, QUOTA_OF_KUBERNETES, &quota), 0);
}

/* A pending pod of any namespace. */
static void put_any(struct buf *out, const char *namespace, const char *uid, const char *resources,
                    const char *annotations, const char *created) {
    buf_printf(out,
               "{\"metadata\":{\"name\":\"pod-%s\",\"namespace\":\"%s\",\"uid\":\"%s\","
               "\"creationTimestamp\":\"%s\",\"annotations\":{%s}},\"spec\":{\"containers\":[{"
               "\"name\":\"main\",\"resources\":{\"limits\":{%s}}}]},\"status\":{}}",
               uid, namespace, uid, created, annotations, resources);
}

#define EPOCH "2026-01-01T00:00:00Z"

static void arrive(struct world *w, const char *namespace, const char *uid, const char *resources,
                   const char *annotations) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    put_any(&text, namespace, uid, resources, annotations, EPOCH);
    show_text(w, buf_str(&text));
}

/* As filter() of the world, for a pod that arrive() has shown, on nodes "n" and "m". */
static const char *ask(struct world *w, const char *namespace, const char *uid,
                       const char *resources, const char *annotations) {
    static char out[2048];
    _cleanup_buf_ struct buf body = BUF_INIT(0), answer = BUF_INIT(0);
    struct json root, value;
    buf_puts(&body, "{\"Pod\":");
    put_any(&body, namespace, uid, resources, annotations, EPOCH);
    buf_puts(&body, ",\"NodeNames\":[\"n\",\"m\"]}");
    extender_filter(&w->extender, body.data, body.len, w->now, &answer);
    assert_int_equal(json_parse(w->parser, answer.data, answer.len, &root, NULL), 0);
    const char *error = json_string(json_get(root, "Error"));
    struct json_iter it = json_iter(json_get(root, "NodeNames"));
    if (error && *error)
        snprintf(out, sizeof(out), "!%s", error);
    else if (json_next(&it, NULL, &value))
        snprintf(out, sizeof(out), "%s", "fits");
    else {
        it = json_iter(json_get(root, "FailedAndUnresolvableNodes"));
        if (!json_next(&it, NULL, &value)) {
            it = json_iter(json_get(root, "FailedNodes"));
            assert_true(json_next(&it, NULL, &value));
        }
        snprintf(out, sizeof(out), "-%s", json_string(value));
    }
    return out;
}

/* Has the pod hold its request on node "n", as a Binding would. */
static const char *hold(struct world *w, const char *namespace, const char *uid,
                        const char *resources) {
    arrive(w, namespace, uid, resources, "");
    const char *answer = ask(w, namespace, uid, resources, "");
    struct state_pod *pod = state_pod_find(w->state, uid);
    if (strcmp(answer, "fits") != 0)
        return answer;
    struct gpu_request request;
    struct place_plan plan;
    struct place_result result;
    state_plan(w->state, pod, &request, &plan);
    assert_int_equal(
        state_place(w->state, &plan, state_node_find(w->state, "n"), pod, false, &result),
        PLACE_OK);
    assert_int_equal(
        state_promise(w->state, pod, state_node_find(w->state, "n"), &result, POD_BINDING, w->now),
        0);
    return answer;
}

/* ---- quotas ---- */

static void test_use_of_a_namespace(void **state) {
    struct world *w = *state;
    show_node(w, "n", 8);
    assert_null(state_space_find(w->state, "a"));
    hold(w, "a", "1", HALF);
    hold(w, "a", "2", "\"elasticgpu.io/gpu-core\":\"200\"");
    hold(w, "b", "3", HALF);
    const struct state_space *a = state_space_find(w->state, "a");
    assert_int_equal(a->pods, 2);
    assert_int_equal(a->used.of[QUOTA_CORE], 250);
    assert_int_equal(a->used.of[QUOTA_MEMORY], 200 * GIB);
    assert_int_equal(a->used.of[QUOTA_CARDS], 3);
    state_release(w->state, state_pod_find(w->state, "2"));
    assert_int_equal(a->used.of[QUOTA_CORE], 50);
    state_pod_gone(w->state, "1");
    assert_int_equal(a->used.of[QUOTA_CORE], 0);
    state_pod_gone(w->state, "2");
    assert_null(state_space_find(w->state, "a"));
    assert_int_equal(state_space_find(w->state, "b")->used.of[QUOTA_CORE], 50);
}

/* Init containers run one after the other, and beside no app container. */
static void test_use_of_init_containers(void **state) {
    (void) state;
    struct state_hold holds[] = {
        {.container = "init", .phase = ASK_INIT, .device = {.core = 40, .memory = 9}},
        {.container = "init", .phase = ASK_INIT, .device = {.core = 40, .memory = 9}},
        {.container = "next", .phase = ASK_INIT, .device = {.core = 70, .memory = 1}},
        {.container = "app", .phase = ASK_APP, .device = {.core = 30, .memory = 5}},
        {.container = "other", .phase = ASK_APP, .device = {.core = 30, .memory = 5}},
    };
    const struct state_pod pod = {.nholds = 5, .holds = holds};
    const struct quota_use use = state_pod_use(&pod);
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
    wake_run(&g.wake, w->now);
    assert_int_equal(w->nasked, 0);
    state_pod_gone(w->state, "1");
    wake_run(&g.wake, w->now += 2000);
    assert_int_equal(w->nasked, 1);
    respond(w, 0, 200, false, NULL);
    wake_run(&g.wake, w->now += 2000);
    assert_int_equal(w->nasked, 0);
    assert_string_equal(ask(w, "a", "2", HALF, ""), "fits");
    quotas_gone(&g.quotas, QUOTA_OF_OURS, "a", "q");
    assert_string_equal(hold(w, "a", "4", WHOLE), "fits");
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
    assert_int_equal(state_space_find(w->state, "a")->used.of[QUOTA_MEMORY], 20 * GIB);
    assert_int_equal(state_space_find(w->state, "a")->used.of[QUOTA_CORE], 40);
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
               "\"cohort\":\"lab\",\"guaranteed\":{" CORES(100) "},\"max\":{" CORES(250) "}");
    show_quota(&g, "b", "q", "\"cohort\":\"lab\",\"guaranteed\":{" CORES(200) "}");
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
                        "-nothing left to borrow: cohort lab uses 450 of 300 "
                        "elasticgpu.io/gpu-core, and this pod asks 10");
    state_pod_gone(w->state, "1");
    state_pod_gone(w->state, "2");
    assert_string_equal(ask(w, "b", "7", TENTH, ""), "fits");
    ungovern(&g);
}

static uint64_t rnd(uint64_t *seed) {
    *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return *seed >> 33;
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
        for (int i = 0; i < 3; i++) {
            struct quota_object o = {.cohort = "lab", .counted = {true, false, false}};
            struct state_pod pod = {.uid = {(char) ('1' + i)}};
            memcpy(o.namespace, names[i], 2);
            memcpy(o.name, "q", 2);
            memcpy(pod.namespace, names[i], 2);
            o.guaranteed[0] = part[i] = rnd(&seed) % 8;
            most[i] = part[i] + rnd(&seed) % 4;
            o.max[0] = rnd(&seed) % 4 ? most[i] : (most[i] = UINT64_MAX);
            used[i] = rnd(&seed) % 8;
            pool += part[i];
            all += used[i];
            assert_int_equal(quotas_seen(&q, QUOTA_OF_OURS, &o), 0);
            assert_int_equal(space_join(w->state, &pod), 0);
            state_space_find(w->state, names[i])->used.of[0] = used[i];
        }
        for (uint64_t more = 1; more < 6; more++) {
            _cleanup_buf_ struct buf why = BUF_INIT(512);
            const struct quota_use ask_for = {{more}};
            bool fits =
                used[0] + more <= most[0] && (used[0] + more <= part[0] || all + more <= pool);
            assert_int_equal(quotas_admit(&q, "a", &ask_for, NULL, &why), fits);
            assert_int_equal(why.len == 0, fits);
        }
        quotas_done(&q);
        for (int i = 0; i < 3; i++) {
            struct state_pod pod = {.space = state_space_find(w->state, names[i])};
            space_leave(w->state, &pod);
        }
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
    quotas_gone(&g.quotas, QUOTA_OF_OURS, "a", "q");
    assert_string_equal(hold(w, "a", "5", HALF), "fits");
    ungovern(&g);
}

static void count_patch(const struct quota_object *object, const struct quota_use *used,
                        void *userdata) {
    char *out = userdata;
    size_t len = strlen(out);
    snprintf(out + len, 256 - len, "%s=%" PRIu64 " ", object->namespace, used->of[QUOTA_CORE]);
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
    /* A list without it: gone. */
    quotas_sync_begin(&g.quotas, QUOTA_OF_OURS);
    quotas_sync_end(&g.quotas, QUOTA_OF_OURS);
    assert_null(g.quotas.all);
    ungovern(&g);
}

/* ---- gangs ---- */

#define GANG(name, size)                                                                           \
    "\"elasticgpu.io/gang\":\"" name "\",\"elasticgpu.io/gang-size\":\"" size "\""

static enum pod_stage stage_of(struct world *w, const char *uid) {
    return state_pod_find(w->state, uid)->stage;
}

static void test_gang_is_read(void **state) {
    struct world *w = *state;
    static const struct {
        const char *metadata, *name;
        uint32_t size, timeout_s;
    } cases[] = {
        {"{\"annotations\":{" GANG("g", "3") ",\"elasticgpu.io/gang-timeout\":\"1m30s\"}}", "g", 3,
         90},
        {"{\"labels\":{" GANG("g", "2") "}}", "g", 2, GANG_TIMEOUT_S},
        {"{\"annotations\":{" GANG("g", "0x2") "}}", "g", 0, GANG_TIMEOUT_S},
        {"{\"annotations\":{" GANG("g", "4097") "}}", "g", 0, GANG_TIMEOUT_S},
        {"{\"annotations\":{" GANG("\\u001b[2J", "2") "}}", "?", 0, GANG_TIMEOUT_S},
        {"{\"annotations\":{" GANG("", "2") "}}", "?", 0, GANG_TIMEOUT_S},
        {"{\"annotations\":{\"elasticgpu.io/gang\":\"g\"}}", "g", 0, GANG_TIMEOUT_S},
        {"{\"annotations\":{\"gang.scheduling.koordinator.sh/name\":\"k\","
         "\"gang.scheduling.koordinator.sh/min-available\":\"8\","
         "\"gang.scheduling.koordinator.sh/waiting-time\":\"10m\"}}",
         "k", 8, 600},
        {"{\"labels\":{\"pod-group.scheduling.sigs.k8s.io/name\":\"p\","
         "\"pod-group.scheduling.sigs.k8s.io/min-available\":\"4\"}}",
         "p", 4, GANG_TIMEOUT_S},
        {"{\"labels\":{\"pod-group.scheduling.sigs.k8s.io/name\":\"p\"}}", NULL, 0, 0},
        {"{}", NULL, 0, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct json metadata;
        struct pod_gang gang = {.name = ""};
        parse(w, cases[i].metadata, &metadata);
        assert_int_equal(gang_read(metadata, &gang), cases[i].name != NULL);
        if (!cases[i].name)
            continue;
        assert_string_equal(gang.name, cases[i].name);
        assert_int_equal(gang.size, cases[i].size);
        if (gang.size > 0)
            assert_int_equal(gang.timeout_s, cases[i].timeout_s);
    }
    static const char *const wrong[] = {"",   "0",    "s",        "5d", "1s1m",
                                        "-1", "1.5h", "99999999", "25h"};
    uint32_t seconds;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_false(gang_parse_seconds(wrong[i], &seconds));
}

#define THREE GANG("g", "3")

static void test_gang_waits_and_goes_together(void **state) {
    struct world *w = *state;
    struct governed g;
    govern(&g, w);
    show_node(w, "n", 2);
    arrive(w, "d", "1", HALF, THREE);
    assert_string_equal(ask(w, "d", "1", HALF, THREE), "-gang g: 1 of 3 pods have arrived");
    assert_string_equal(w->refusal, "GPUHeld: gang g: 1 of 3 pods have arrived");
    arrive(w, "d", "2", HALF, THREE);
    assert_string_equal(ask(w, "d", "2", HALF, THREE), "-gang g: 2 of 3 pods have arrived");
    arrive(w, "other", "9", HALF, THREE); /* a gang of that name elsewhere is another one */
    assert_string_equal(ask(w, "other", "9", HALF, THREE), "-gang g: 1 of 3 pods have arrived");
    wake_run(&g.wake, w->now);
    assert_int_equal(w->nasked, 0);
    arrive(w, "d", "3", WHOLE, THREE);
    /* The third one's coming is enough: nobody has to ask about it first. */
    wake_run(&g.wake, w->now += 2000);
    assert_int_equal(w->nasked, 1);
    respond(w, 0, 200, false, NULL);
    assert_int_equal(stage_of(w, "1"), POD_PROMISED);
    assert_int_equal(stage_of(w, "2"), POD_PROMISED);
    assert_int_equal(stage_of(w, "3"), POD_PROMISED);
    /* kept for longer than the promise of a single pod */
    assert_int_equal(state_expire(w->state, w->now += PROMISE_TTL_MS + 1, PROMISE_TTL_MS), 0);
    assert_string_equal(ask(w, "other", "9", HALF, ""), "!the GPU share that would fit is promised "
                                                        "to a pod that is being bound; trying "
                                                        "again in a moment");
    assert_string_equal(ask(w, "d", "1", HALF, THREE), "fits");
    assert_string_equal(ask(w, "d", "2", HALF, THREE), "fits");
    assert_string_equal(ask(w, "d", "3", WHOLE, THREE), "fits");
    ungovern(&g);
}

static void test_gang_that_does_not_fit_takes_nothing(void **state) {
    struct world *w = *state;
    struct governed g;
    govern(&g, w);
    show_node(w, "n", 1);
    for (int i = 0; i < 3; i++) {
        char uid[2] = {(char) ('1' + i), 0};
        arrive(w, "d", uid, HALF, THREE);
    }
    assert_string_equal(ask(w, "d", "1", HALF, THREE),
                        "-gang g: all 3 pods have arrived, and do not fit together yet");
    assert_int_equal(free_core(w, "n", 0), 100);
    assert_string_equal(hold(w, "d", "4", HALF), "fits"); /* a single pod goes in between */
    show_node(w, "m", 1);
    wake_run(&g.wake, w->now += 2000);
    assert_int_equal(w->nasked, 1);
    respond(w, 0, 200, false, NULL);
    assert_string_equal(ask(w, "d", "1", HALF, THREE), "fits");
    ungovern(&g);
}

/* Each fits alone, both do not: one goes, whole, and it is the older one whoever is asked first. */
static void test_two_gangs(void **state) {
    struct world *w = *state;
    for (int first = 0; first < 2; first++) {
        struct governed g;
        govern(&g, w);
        show_node(w, "n", 1);
        show_node(w, "m", 1);
        static const char *const uids[2][3] = {{"1", "2", "3"}, {"4", "5", "6"}};
        static const char *const notes[] = {GANG("young", "3"), GANG("old", "3")};
        for (int k = 0; k < 2; k++)
            for (int i = 0; i < 3; i++) {
                _cleanup_buf_ struct buf text = BUF_INIT(0);
                put_any(&text, "d", uids[k][i], HALF, notes[k], k ? "2025-12-31T00:00:00Z" : EPOCH);
                show_text(w, buf_str(&text));
            }
        for (int k = 0; k < 2; k++)
            (void) ask(w, "d", uids[first ^ k][0], HALF, notes[first ^ k]);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(stage_of(w, uids[1][i]), POD_PROMISED);
            assert_int_equal(stage_of(w, uids[0][i]), POD_PENDING);
        }
        /* The old one goes and ends; then it is the young one's turn. */
        for (int i = 0; i < 3; i++)
            state_pod_gone(w->state, uids[1][i]);
        w->now += 2000;
        assert_string_equal(ask(w, "d", "1", HALF, notes[0]), "fits");
        for (int i = 0; i < 3; i++)
            state_pod_gone(w->state, uids[0][i]);
        ungovern(&g);
    }
}

static void test_gang_times_out(void **state) {
    struct world *w = *state;
    struct governed g;
    govern(&g, w);
    show_node(w, "n", 2);
    arrive(w, "d", "1", HALF, THREE);
    arrive(w, "d", "2", HALF, THREE);
    assert_string_equal(ask(w, "d", "1", HALF, THREE), "-gang g: 2 of 3 pods have arrived");
    gangs_tick(&g.gangs, w->now += 59000);
    assert_int_equal(g.tellings, 0);
    gangs_tick(&g.gangs, w->now += 1001);
    assert_string_equal(g.told, "GPUGangIncomplete: gang g: 2 of 3 pods have arrived within 60 s; "
                                "nothing is kept for them, and it goes on waiting");
    assert_int_equal(g.tellings, 2);
    gangs_tick(&g.gangs, w->now += 90000);
    assert_int_equal(g.tellings, 2); /* said once */
    arrive(w, "d", "3", HALF, THREE);
    assert_string_equal(ask(w, "d", "3", HALF, THREE), "fits");
    wake_run(&g.wake, w->now); /* for the others, who were told to wait */
    assert_int_equal(w->nasked, 1);
    respond(w, 0, 200, false, NULL);
    state_pod_stage(state_pod_find(w->state, "3"), POD_BINDING, w->now);
    gangs_tick(&g.gangs, w->now += 59000);
    assert_int_equal(stage_of(w, "1"), POD_PROMISED);
    gangs_tick(&g.gangs, w->now += 1001);
    assert_int_equal(stage_of(w, "1"), POD_PENDING);
    assert_int_equal(stage_of(w, "3"), POD_BINDING);
    assert_string_equal(g.told, "GPUGangTimeout: gang g: 1 of 3 pods were bound within 60 s; the "
                                "shares of the others are given back, and it tries again");
    /* after a moment, for the members that are missing */
    assert_string_equal(ask(w, "d", "1", HALF, THREE),
                        "-gang g: all 3 pods have arrived, and do not fit together yet");
    w->now += 1000;
    assert_string_equal(ask(w, "d", "1", HALF, THREE), "fits");
    assert_int_equal(stage_of(w, "2"), POD_PROMISED);
    ungovern(&g);
}

static void test_gang_loses_a_member(void **state) {
    struct world *w = *state;
    struct governed g;
    govern(&g, w);
    show_node(w, "n", 2);
    static const char *const uids[] = {"1", "2", "3"};
    for (int i = 0; i < 3; i++)
        arrive(w, "d", uids[i], HALF, THREE);
    assert_string_equal(ask(w, "d", "1", HALF, THREE), "fits");
    state_pod_gone(w->state, "3");
    gangs_tick(&g.gangs, w->now);
    assert_int_equal(stage_of(w, "1"), POD_PENDING);
    assert_int_equal(stage_of(w, "2"), POD_PENDING);
    assert_string_equal(ask(w, "d", "2", HALF, THREE), "-gang g: 2 of 3 pods have arrived");
    /* When all run, one that is made anew goes alone. */
    arrive(w, "d", "3", HALF, THREE);
    w->now += 1000;
    assert_string_equal(ask(w, "d", "3", HALF, THREE), "fits");
    for (int i = 0; i < 3; i++)
        state_pod_stage(state_pod_find(w->state, uids[i]), POD_BOUND, w->now);
    gangs_tick(&g.gangs, w->now);
    state_pod_gone(w->state, "2");
    gangs_tick(&g.gangs, w->now);
    assert_int_equal(stage_of(w, "1"), POD_BOUND);
    arrive(w, "d", "4", HALF, THREE);
    assert_string_equal(ask(w, "d", "4", HALF, THREE), "fits");
    ungovern(&g);
}

/* However many older ones wait in vain, one that fits has its turn soon. */
static void test_gang_among_many_in_vain(void **state) {
    struct world *w = *state;
    struct governed g;
    govern(&g, w);
    show_node(w, "n", 2);
    for (int i = 0; i < 360; i++) {
        char uid[16], gang[96];
        snprintf(uid, sizeof(uid), "v%d", i);
        snprintf(gang, sizeof(gang), GANG("v%d", "3"), i / 3);
        arrive(w, "d", uid, WHOLE, gang);
        state_pod_find(w->state, uid)->held = true;
    }
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    put_any(&text, "d", "1", HALF, GANG("young", "1"), "2026-02-01T00:00:00Z");
    show_text(w, buf_str(&text));
    state_pod_find(w->state, "1")->held = true;
    for (int i = 0; i < 3 && w->nasked == 0; i++)
        wake_run(&g.wake, w->now += 1000);
    assert_int_equal(stage_of(w, "1"), POD_PROMISED);
    respond(w, 0, 200, false, NULL);
    ungovern(&g);
}

/* One that is to go is no member, and takes no place in the gang that is made in its stead. */
static void test_gang_made_anew(void **state) {
    struct world *w = *state;
    struct governed g;
    govern(&g, w);
    show_node(w, "n", 4);
    static const char *const uids[] = {"1", "2", "3"};
    for (int i = 0; i < 3; i++)
        arrive(w, "d", uids[i], HALF, THREE);
    assert_string_equal(ask(w, "d", "1", HALF, THREE), "fits");
    for (int i = 0; i < 3; i++) {
        _cleanup_buf_ struct buf text = BUF_INIT(0);
        state_pod_stage(state_pod_find(w->state, uids[i]), POD_BOUND, w->now);
        put_any(&text, "d", uids[i], HALF, THREE,
                EPOCH "\",\"deletionTimestamp\":\"2026-01-01T00:01:00Z");
        show_text(w, buf_str(&text));
    }
    arrive(w, "d", "4", HALF, THREE);
    assert_string_equal(ask(w, "d", "4", HALF, THREE), "-gang g: 1 of 3 pods have arrived");
    arrive(w, "d", "5", HALF, THREE);
    arrive(w, "d", "6", HALF, THREE);
    assert_string_equal(ask(w, "d", "6", HALF, THREE), "fits");
    ungovern(&g);
}

static void test_gang_and_quota(void **state) {
    struct world *w = *state;
    struct governed g;
    govern(&g, w);
    show_node(w, "n", 4);
    show_quota(&g, "d", "q", "\"max\":{" CORES(100) "}");
    static const char *const uids[] = {"1", "2", "3"};
    for (int i = 0; i < 3; i++)
        arrive(w, "d", uids[i], HALF, THREE);
    assert_string_equal(ask(w, "d", "1", HALF, THREE),
                        "-quota exceeded: namespace d uses 100 of 100 elasticgpu.io/gpu-core, and "
                        "this pod asks 50");
    assert_int_equal(state_space_find(w->state, "d")->used.of[QUOTA_CORE], 0);
    show_quota(&g, "d", "q", "\"max\":{" CORES(150) "}");
    w->now += 1000;
    assert_string_equal(ask(w, "d", "1", HALF, THREE), "fits");
    ungovern(&g);
}

static void test_gang_malformed(void **state) {
    struct world *w = *state;
    struct governed g;
    govern(&g, w);
    show_node(w, "n", 1);
    assert_non_null(strstr(ask(w, "d", "1", HALF, GANG("g", "three")), "its size a number from 1"));
    ungovern(&g);
}

static const char *const any_notes[] = {GANG("a", "3"), GANG("b", "3"), GANG("c", "2")};
static const uint32_t any_sizes[] = {3, 3, 2};

/* Somebody of some gang comes, goes, is asked about or bound, or time passes. */
static void any_step(struct world *w, uint64_t *seed) {
    int gang = (int) (rnd(seed) % 3);
    char uid[16];
    snprintf(uid, sizeof(uid), "%d-%u", gang, (unsigned) (rnd(seed) % 4));
    struct state_pod *pod = state_pod_find(w->state, uid);
    switch (rnd(seed) % 5) {
    case 0:
        if (!pod)
            arrive(w, "d", uid, HALF, any_notes[gang]);
        break;
    case 1:
        if (pod)
            state_pod_gone(w->state, uid);
        break;
    case 2:
        if (pod && pod->stage <= POD_PROMISED)
            (void) ask(w, "d", uid, HALF, any_notes[gang]);
        break;
    case 3:
        if (pod && pod->stage == POD_PROMISED)
            state_pod_stage(pod, POD_BOUND, w->now);
        break;
    default:
        w->now += rnd(seed) % 20000;
    }
}

static void count_gang(struct world *w, int gang, uint32_t *ret_there, uint32_t *ret_promised,
                       uint32_t *ret_placed) {
    *ret_there = *ret_promised = *ret_placed = 0;
    for (struct state_pod *p = w->state->pods; p; p = p->hh.next) {
        if (p->uid[0] != '0' + gang)
            continue;
        *ret_there += 1;
        *ret_promised += p->stage == POD_PROMISED;
        *ret_placed += p->stage >= POD_PROMISED;
    }
}

static void pass_time(struct governed *g, uint64_t ms) {
    g->w->now += ms;
    gangs_tick(&g->gangs, g->w->now);
    (void) state_expire(g->w->state, g->w->now, PROMISE_TTL_MS);
}

/* kube-scheduler asks about all that wait, and binds what fits. */
static void bind_what_fits(struct world *w) {
    for (struct state_pod *p = w->state->pods; p; p = p->hh.next)
        if (p->stage <= POD_PROMISED &&
            strcmp(ask(w, "d", p->uid, HALF, any_notes[p->uid[0] - '0']), "fits") == 0 &&
            p->stage == POD_PROMISED)
            state_pod_stage(p, POD_BOUND, w->now);
}

static void clear(struct world *w) {
    struct state_pod *pod, *next;
    HASH_ITER(hh, w->state->pods, pod, next)
    state_pod_gone(w->state, pod->uid);
    for (unsigned i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof(name), "m-%02u", i);
        state_gpu_gone(w->state, name);
    }
    state_node_gone(w->state, "m");
}

/* In any order of arrivals, deaths, binds and time: nothing is kept for a gang that is not whole,
 * and when there is room and nobody leaves, every whole gang runs. */
static void test_gangs_in_any_order(void **state) {
    struct world *w = *state;
    uint32_t there, promised, placed;
    uint64_t seed = 7;
    for (int round = 0; round < 150; round++) {
        struct governed g;
        govern(&g, w);
        show_node(w, "n", 2);
        for (int step = 0; step < 60; step++) {
            any_step(w, &seed);
            pass_time(&g, 0);
            for (int k = 0; k < 3; k++) {
                count_gang(w, k, &there, &promised, &placed);
                assert_true(promised == 0 || there >= any_sizes[k]);
            }
        }
        show_node(w, "m", 4);
        for (int turn = 0; turn < 10; turn++) {
            pass_time(&g, 61000);
            bind_what_fits(w);
        }
        for (int k = 0; k < 3; k++) {
            count_gang(w, k, &there, &promised, &placed);
            assert_true(there < any_sizes[k] || placed >= any_sizes[k]);
        }
        clear(w);
        ungovern(&g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        T(test_use_of_a_namespace),
        T(test_use_of_init_containers),
        T(test_plain_limit),
        T(test_bind_asks_again),
        T(test_foreign_names_and_resource_quota),
        T(test_borrowing),
        T(test_quota_arithmetic),
        T(test_cohort_that_changes),
        T(test_status_of_quotas),
        T(test_gang_is_read),
        T(test_gang_waits_and_goes_together),
        T(test_gang_that_does_not_fit_takes_nothing),
        T(test_two_gangs),
        T(test_gang_times_out),
        T(test_gang_loses_a_member),
        T(test_gang_and_quota),
        T(test_gang_among_many_in_vain),
        T(test_gang_made_anew),
        T(test_gang_malformed),
        T(test_gangs_in_any_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
