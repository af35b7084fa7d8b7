/* SPDX-License-Identifier: Apache-2.0 */

/* Every allocation of the scheduler fails once: nothing crashes, nothing leaks (address sanitizer),
 * nothing is given twice, and with memory back everything works. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "fail-malloc.h"
#include "kube/objects/gang.h"
#include "scheduler/cluster/gpu_status.h"
#include "scheduler/extender/bind.h"
#include "scheduler/extender/extender.h"
#include "scheduler/state/namespace_usage.h"
#include "scheduler/state/state_internal.h"
#include "wire/json.h"

#define GIB ((uint64_t) 1 << 30)
#define ASSIGNMENT                                                                                 \
    "{\"v\":1,\"node\":\"n\",\"containers\":{\"main\":[{\"index\":0,\"uuid\":\"GPU-0\","           \
    "\"core\":50,\"memory\":42949672960}]}}"

static const char filter_body[] =
    "{\"Pod\":{\"metadata\":{\"name\":\"p\",\"namespace\":\"d\",\"uid\":\"u\"},\"spec\":{"
    "\"containers\":[{\"name\":\"main\",\"resources\":{\"limits\":{"
    "\"elasticgpu.io/gpu-core\":\"50\"}}}]}},\"NodeNames\":[\"n\",\"unknown\"]}";
static const char bind_body[] =
    "{\"PodName\":\"p\",\"PodNamespace\":\"d\",\"PodUID\":\"u\",\"Node\":\"n\"}";

static struct {
    kube_response_cb callback;
    void *userdata;
    int answers;
} asked;

static int take_request(void *context, const char *method, const char *path,
                        const char *content_type, const char *body, size_t size,
                        unsigned timeout_ms, kube_response_cb on_response, void *userdata,
                        struct err *err) {
    (void) context, (void) method, (void) path, (void) content_type, (void) body, (void) size;
    (void) timeout_ms;
    if (asked.callback)
        return err_set(err, EBUSY, "busy");
    asked.callback = on_response;
    asked.userdata = userdata;
    return 0;
}

static void respond(int status) {
    struct kube_response response = {.status = status, .text = "", .reason = ""};
    kube_response_cb callback = asked.callback;
    asked.callback = NULL;
    if (callback)
        callback(&response, asked.userdata);
}

static int trust(const char *uid, const char *node, const char *text, const char *signature,
                 uint64_t *ret_signer, void *userdata) {
    (void) uid, (void) node, (void) text, (void) signature, (void) ret_signer, (void) userdata;
    return 0;
}

static bool always(void *userdata) {
    (void) userdata;
    return true;
}

static uint64_t frozen(void *userdata) {
    (void) userdata;
    return 1000;
}

static void count_answer(const char *error, void *request) {
    (void) error, (void) request;
    asked.answers++;
}

struct parts {
    struct state *state;
    struct extender extender;
    struct binder binder;
    struct gpu_status gpu_status;
    struct json_parser *parser;
};

static bool show_cards(struct parts *p) {
    struct gpu_object gpu = {
        .name = "g", .node = "n", .uuid = "GPU-0", .memory = 80 * GIB, .healthy = true};
    return state_node_seen(p->state, "n") == 0 &&
           state_gpu_seen(p->state, &gpu, "{\"allocatable\":null,\"allocated\":null}") == 0;
}

/* The pod as the watch shows it once it is bound. */
static bool show_bound(struct parts *p) {
    char assignment[] = ASSIGNMENT, signature[] = "s";
    struct pod pod = {.uid = "u",
                      .namespace = "d",
                      .name = "p",
                      .node = "n",
                      .assignment = assignment,
                      .signature = signature};
    pod.request.n = 1;
    pod.request.containers[0] = (struct container_request){
        .container = "main", .phase = CONTAINER_APP, .cards = 1, .core = 50};
    return state_pod_seen(p->state, &pod, 1000) == 0;
}

/* A pod's way from filter to its end; whether all of it went well. */
static bool scenario(struct parts *p) {
    _cleanup_buf_ struct buf filtered = BUF_INIT(0), scored = BUF_INIT(0);
    bool ok = show_cards(p);
    ok &= extender_filter(&p->extender, filter_body, sizeof(filter_body) - 1, 1000, &filtered) == 0;
    ok &=
        extender_prioritize(&p->extender, filter_body, sizeof(filter_body) - 1, 1000, &scored) == 0;
    ok &= buf_error(&filtered) == 0 && buf_error(&scored) == 0;
    int before = asked.answers;
    binder_bind(&p->binder, bind_body, sizeof(bind_body) - 1, p);
    respond(201);
    assert_int_equal(asked.answers, before + 1); /* answered exactly once, come what may */
    ok &= show_bound(p);
    gpu_status_run(&p->gpu_status, p->parser);
    ok &= asked.callback != NULL;
    respond(200);
    return ok;
}

static void check_no_overcommit(const struct parts *p) {
    for (struct state_node *node = p->state->nodes; node; node = node->hh.next) {
        state_refresh(p->state, node);
        for (uint32_t i = 0; i < node->ncards; i++)
            assert_false(node->cards[i]->overcommitted);
    }
}

static void start(struct parts *p, struct signing_key *key) {
    const struct api api = {take_request, NULL};
    *p = (struct parts){.state = state_new(trust, NULL), .parser = json_parser_new()};
    p->extender = (struct extender){.state = p->state, .ready = always};
    p->binder = (struct binder){.state = p->state,
                                .api = api,
                                .key = key,
                                .now = frozen,
                                .ready = always,
                                .done = count_answer};
    p->gpu_status = (struct gpu_status){.state = p->state, .api = api, .now = frozen};
    assert_int_equal(extender_init(&p->extender), 0);
    assert_int_equal(binder_init(&p->binder), 0);
}

static void stop(struct parts *p) {
    extender_done(&p->extender);
    binder_done(&p->binder);
    p->state = state_free(p->state);
    p->parser = json_parser_free(p->parser);
}

static void test_every_allocation_fails_once(void **state) {
    (void) state;
    struct signing_key *key;
    struct err err;
    assert_int_equal(signing_key_generate(&key, &err), 0);
    for (size_t nth = 1;; nth++) {
        struct parts p;
        start(&p, key);
        fail_malloc_at(nth);
        bool ok = scenario(&p);
        bool failed = fail_malloc_end();
        check_no_overcommit(&p);
        if (!failed) {
            assert_true(ok);
            stop(&p);
            assert_in_range(nth, 15, 10000);
            break;
        }
        assert_true(show_cards(&p) && show_bound(&p));
        struct state_node *node = state_node_find(p.state, "n");
        state_refresh(p.state, node);
        assert_int_equal(node->place[0].free.core, 50);
        state_pod_gone(p.state, "u");
        state_refresh(p.state, node);
        assert_int_equal(node->place[0].free.core, 100);
        stop(&p);
    }
    signing_key_free(key);
}

/* Of a pod that could not be kept nothing stays: no entry of its namespace, and no memory (address
 * sanitizer). */
static void test_a_pod_without_memory_leaves_nothing(void **state) {
    (void) state;
    struct pod_gang gang = {.name = "g", .size = 2};
    char labels[] = "a=b,";
    struct pod pod = {.uid = "u",
                      .namespace = "d",
                      .name = "p",
                      .request = {.n = 1},
                      .nominated = "n",
                      .labels = labels,
                      .gang = &gang};
    pod.request.containers[0] =
        (struct container_request){.container = "c", .cards = 1, .core = 10};
    size_t failures = 0;
    for (bool failed = true; failed; failures += failed) {
        struct state *s = state_new(trust, NULL);
        fail_malloc_at(failures + 1);
        const struct state_pod *kept = state_pod_learn(s, &pod);
        failed = fail_malloc_end();
        assert_int_equal(kept == NULL, failed);
        if (failed) {
            assert_null(state_pod_find(s, "u"));
            assert_null(state_space_find(s, "d"));
            assert_null(s->open);
            assert_non_null(state_pod_learn(s, &pod));
        }
        state_pod_gone(s, "u");
        assert_null(state_space_find(s, "d"));
        (void) state_free(s);
    }
    assert_in_range(failures, 4, 100);
}

/* A pod of no share that could not be kept is an error, so that its reflector lists the pods again:
 * its requests of CPU and memory would be missing from its node. */
static void test_another_pod_needs_memory(void **state) {
    (void) state;
    const struct pod pod = {
        .uid = "u", .namespace = "d", .name = "p", .node = "n", .room = {.cpu = 1000}};
    struct state *s = state_new(trust, NULL);
    size_t failures = 0;
    assert_int_equal(state_node_seen(s, "n"), 0);
    for (int r = -ENOMEM; r < 0; failures += r < 0) {
        fail_malloc_at(failures + 1);
        r = state_pod_seen(s, &pod, 0);
        assert_int_equal(r, fail_malloc_end() ? -ENOMEM : 0);
        assert_int_equal(state_node_find(s, "n")->used.cpu, r == 0 ? 1000 : 0);
    }
    assert_in_range(failures, 1, 10);
    (void) state_free(s);
}

/* Reserved capacity and the policy of a namespace that cannot be kept are errors, so that the
 * caller tries again. */
static void test_what_is_reserved_needs_memory(void **state) {
    const struct assigned_device device = {.uuid = "GPU-0", .core = 50};
    struct state *s = state_new(trust, NULL);
    (void) state;
    size_t failures = 0;
    for (int r = -ENOMEM; r < 0; failures += r < 0) {
        fail_malloc_at(failures + 1);
        r = state_reserve(s, "r", "n", &device, 1);
        assert_int_equal(r, fail_malloc_end() ? -ENOMEM : 0);
        assert_int_equal(state_reserved_find(s, "r") != NULL, r == 0);
    }
    assert_in_range(failures, 3, 20);
    failures = 0;
    for (int r = -ENOMEM; r < 0; failures += r < 0) {
        fail_malloc_at(failures + 1);
        r = state_namespace_policy(s, "d", "spread", "");
        assert_int_equal(r, fail_malloc_end() ? -ENOMEM : 0);
    }
    assert_in_range(failures, 1, 20);
    static const char text[] = "0123456789012345678901234567890123456789";
    char name[KUBE_LABEL_MAX + 1] = "";
    while (strlen(name) < KUBE_LABEL_MAX)
        strncat(name, text, KUBE_LABEL_MAX - strlen(name));
    assert_int_equal(state_namespace_policy(s, name, "spread", ""), -ENOMEM);
    name[KUBE_LABEL_MAX - 1] = '\0';
    assert_int_equal(state_namespace_policy(s, name, "spread", ""), 0);
    (void) state_free(s);
}

/* ---- each change of the state by itself ---- */

static struct gpu_request request;
static struct place_plan plan;
static struct place_result result;

static void with_nothing(struct state *s) {
    (void) s;
}

static struct state_pod *learn(struct state *s) {
    struct pod pod = {.uid = "u", .namespace = "d", .name = "p", .request = {.n = 1}};
    pod.request.containers[0] =
        (struct container_request){.container = "main", .cards = 1, .core = 50};
    return state_pod_learn(s, &pod);
}

static void with_pod(struct state *s) {
    assert_non_null(learn(s));
}

static int see_card(struct state *s) {
    const struct gpu_object gpu = {
        .name = "n-0", .uuid = "GPU-0", .node = "n", .memory = 80 * GIB, .healthy = true};
    return state_gpu_seen(s, &gpu, "{}");
}

static void with_place(struct state *s) {
    struct state_pod *pod = learn(s);
    assert_int_equal(state_node_seen(s, "n"), 0);
    assert_int_equal(see_card(s), 0);
    state_plan(s, pod, &request, &plan);
    assert_int_equal(state_place(s, &plan, state_node_find(s, "n"), pod, false, &result), PLACE_OK);
}

static int allocate(struct state *s) {
    return state_allocate(s, state_pod_find(s, "u"), state_node_find(s, "n"), &result, POD_BINDING,
                          0);
}

static void with_allocation(struct state *s) {
    with_place(s);
    assert_int_equal(allocate(s), 0);
}

static int see_node(struct state *s) {
    return state_node_seen(s, "n");
}

static int see_cpus(struct state *s) {
    static const struct node_cpus cpus;
    return state_node_cpus(s, "n", &cpus);
}

static int see_absence(struct state *s) {
    int r = state_node_absence(s, "n", PLACE_NO_AGENT);
    return r == 1 ? 0 : r;
}

static int see_bound(struct state *s) {
    char assignment[] = ASSIGNMENT, signature[] = "s";
    struct pod pod = {.uid = "u",
                      .namespace = "d",
                      .name = "p",
                      .node = "n",
                      .assignment = assignment,
                      .signature = signature,
                      .request = {.n = 1}};
    pod.request.containers[0] =
        (struct container_request){.container = "main", .cards = 1, .core = 50};
    return state_pod_seen(s, &pod, 0);
}

static int draw_on(struct state *s) {
    struct state_pod *pod = state_pod_find(s, "u");
    int r = state_draw(pod, "main", "r");
    assert_int_equal(pod->draws != NULL, r == 0);
    return r;
}

static int assign(struct state *s) {
    struct assignment a;
    int r = state_assignment(state_pod_find(s, "u"), &a);
    if (r == 0) {
        assert_string_equal(a.node, "n");
        assert_int_equal(a.ncontainers, 1);
        assert_string_equal(a.containers[0].devices[0].uuid, "GPU-0");
        assignment_done(&a);
    }
    return r;
}

/* All that a pod may change. */
static int change(struct state *s) {
    char models[] = "h100";
    struct gpu_selection selection = {.use_models = models};
    struct pod_gang gang = {.name = "g", .size = 2};
    char labels[] = "a=b,";
    struct pod pod = {.uid = "u",
                      .namespace = "d",
                      .name = "p",
                      .request = {.n = 1},
                      .nominated = "n",
                      .labels = labels,
                      .selection = &selection,
                      .gang = &gang};
    pod.request.containers[0] =
        (struct container_request){.container = "main", .cards = 1, .core = 50, .scaling = 1500};
    const struct state_pod *known = state_pod_learn(s, &pod);
    if (known) {
        assert_string_equal(known->nominated, "n");
        assert_string_equal(known->labels, "a=b,");
        assert_string_equal(known->selection->use_models, "h100");
        assert_int_equal(known->gang->size, 2);
        assert_int_equal(known->containers[0].scaling, 1500);
    }
    return known ? 0 : -ENOMEM;
}

/* A change without memory is an error, so that the caller lists the objects or tries again; when
 * there is memory again, it is made. */
static void test_each_change_needs_memory(void **state) {
    static const struct {
        void (*prepare)(struct state *s);
        int (*call)(struct state *s);
        size_t least;
    } rows[] = {
        {with_nothing, see_node, 2},  {with_nothing, see_absence, 2}, {with_nothing, see_card, 4},
        {with_nothing, see_bound, 4}, {with_pod, draw_on, 1},         {with_place, allocate, 1},
        {with_allocation, assign, 1}, {with_pod, change, 5},          {with_nothing, see_cpus, 2},
    };
    (void) state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        size_t failures = 0;
        for (bool failed = true; failed; failures += failed) {
            struct state *s = state_new(trust, NULL);
            rows[i].prepare(s);
            fail_malloc_at(failures + 1);
            int r = rows[i].call(s);
            failed = fail_malloc_end();
            if (r != (failed ? -ENOMEM : 0))
                fail_msg("row %zu, allocation %zu: %d", i, failures + 1, r);
            if (failed)
                assert_int_equal(rows[i].call(s), 0);
            (void) state_free(s);
        }
        if (failures < rows[i].least)
            fail_msg("row %zu: %zu allocations", i, failures);
    }
}

/* The caller lists the nodes again. */
static void test_the_room_of_a_node_needs_memory(void **state) {
    (void) state;
    struct state *s = state_new(trust, NULL);
    const struct cpu_memory room = {.cpu = 1000, .memory = GIB};
    fail_malloc_at(1);
    assert_int_equal(state_node_room(s, "n", room), -ENOMEM);
    assert_true(fail_malloc_end());
    assert_int_equal(state_node_room(s, "n", room), 0);
    state_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_allocation_fails_once),
        cmocka_unit_test(test_each_change_needs_memory),
        cmocka_unit_test(test_the_room_of_a_node_needs_memory),
        cmocka_unit_test(test_what_is_reserved_needs_memory),
        cmocka_unit_test(test_another_pod_needs_memory),
        cmocka_unit_test(test_a_pod_without_memory_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
