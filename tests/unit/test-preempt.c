/* SPDX-License-Identifier: Apache-2.0 */

/* The extender's preempt verb. */

#include "preempt-world.h"

#include "scheduler/extender/args.h"
#include "scheduler/pages/pages.h"
#include "wire/json_prune.h"

/* A world with the verb. */
struct stage {
    struct world *w;
    struct preempt *p;
    struct buf answer;
    char uid[16]; /* of the pod that asked last */
    unsigned asked;
};

static int set_stage(void **state) {
    struct stage *s = calloc(1, sizeof(*s));
    void *w = NULL;
    setup(&w);
    s->w = w;
    s->p = new_preempt(s->w);
    *state = s;
    return 0;
}

static int clear_stage(void **state) {
    struct stage *s = *state;
    void *w = s->w;
    free_preempt(s->p);
    buf_done(&s->answer);
    teardown(&w);
    free(s);
    return 0;
}

/* A pod of that priority that runs on the node. */
static void run_low(struct stage *s, const char *uid, const char *resources, const char *node,
                    int32_t priority) {
    _cleanup_buf_ struct buf notes = BUF_INIT(0);
    run_pod(s->w, uid, resources, node, &notes);
    struct state_pod *pod = state_pod_find(s->w->state, uid);
    pod->priority = priority;
}

/* The answer to "another pod with these spec members wants `resources`; victims so far". */
static const char *ask_verb(struct stage *s, const char *resources, const char *spec,
                            const char *key, const char *nodes) {
    _cleanup_buf_ struct buf body = BUF_INIT(0);
    buf_done(&s->answer);
    s->answer = BUF_INIT(0);
    snprintf(s->uid, sizeof(s->uid), "p%u", s->asked++);
    buf_printf(
        &body,
        "{\"pod\":{\"metadata\":{\"name\":\"p\",\"namespace\":\"d\",\"uid\":\"%s\"},"
        "\"spec\":{%s,\"containers\":[{\"name\":\"main\",\"resources\":{\"limits\":{%s}}}]}},"
        "\"%s\":{%s}}",
        s->uid, spec, resources, key, nodes);
    int r = preempt_verb(s->p, body.data, body.len, s->w->now, &s->answer);
    return r < 0 ? "!" : buf_str(&s->answer);
}

#define META "NodeNameToMetaVictims"
#define ANSWER(nodes) "{\"" META "\":{" nodes "}}"
#define HIGH "\"priority\":1000"

static void test_share_needs_more(void **state) {
    struct stage *s = *state;
    show_node(s->w, "n", 1);
    run_low(s, "a", HALF, "n", 5);
    run_low(s, "b", HALF, "n", 900);
    /* kube-scheduler gives up "other", of which nothing is known here. */
    assert_string_equal(
        ask_verb(s, HALF, HIGH, META,
                 "\"n\":{\"Pods\":[{\"UID\":\"other\"}],\"NumPDBViolations\":1}"),
        ANSWER("\"n\":{\"Pods\":[{\"UID\":\"other\"},{\"UID\":\"a\"}],\"NumPDBViolations\":1}"));
    assert_true(state_pod_find(s->w->state, s->uid)->preemption.verb_ms == s->w->now);
    assert_string_equal(
        ask_verb(s, WHOLE, HIGH, META, "\"n\":{\"Pods\":[{\"UID\":\"other\"}]}"),
        ANSWER("\"n\":{\"Pods\":[{\"UID\":\"other\"},{\"UID\":\"b\"},{\"UID\":\"a\"}],"
               "\"NumPDBViolations\":0}"));
}

/* Memory that is in use and of no container does not come back with the victims. */
static void test_unattributed_memory_stays(void **state) {
    struct stage *s = *state;
    struct gpu_object gpu = {.name = "n-00", .node = "n", .uuid = "GPU-n-0", .memory = 80 * GIB};
    show_node(s->w, "n", 1);
    run_low(s, "a", HALF, "n", 5);
    assert_string_equal(ask_verb(s, WHOLE, HIGH, META, "\"n\":{\"Pods\":[]}"),
                        ANSWER("\"n\":{\"Pods\":[{\"UID\":\"a\"}],\"NumPDBViolations\":0}"));
    gpu.healthy = true;
    gpu.unattributed = GIB;
    assert_int_equal(state_gpu_seen(s->w->state, &gpu, NULL), 0);
    assert_string_equal(ask_verb(s, WHOLE, HIGH, META, "\"n\":{\"Pods\":[]}"), ANSWER(""));
}

static void test_its_own_victims_are_enough(void **state) {
    struct stage *s = *state;
    show_node(s->w, "n", 1);
    run_low(s, "a", HALF, "n", 5);
    run_low(s, "b", HALF, "n", 1);
    assert_string_equal(
        ask_verb(s, HALF, HIGH, META, "\"n\":{\"Pods\":[{\"UID\":\"a\"}],\"NumPDBViolations\":0}"),
        ANSWER("\"n\":{\"Pods\":[{\"UID\":\"a\"}],\"NumPDBViolations\":0}"));
    /* Whole pods instead of UIDs, and keys in another case. */
    assert_string_equal(ask_verb(s, WHOLE, HIGH, "nodenametovictims",
                                 "\"n\":{\"pods\":[{\"metadata\":{\"uid\":\"b\"}}]}"),
                        ANSWER("\"n\":{\"Pods\":[{\"UID\":\"a\"},{\"UID\":\"b\"}],"
                               "\"NumPDBViolations\":0}"));
}

/* Whole pods of thousands of nodes are reduced to who they are while they come in, and the answer
 * is the same. */
static void test_long_requests(void **state) {
    struct stage *s = *state;
    enum { PADDING = 20000, NODES = 1000 };
    static char padding[PADDING + 1];
    _cleanup_buf_ struct buf left = BUF_INIT(1 << 20), body = BUF_INIT(0);
    struct json_prune *prune = json_prune_new(args_keep, &left);
    memset(padding, 'x', PADDING);
    show_node(s->w, "node-7", 1);
    run_low(s, "a", WHOLE, "node-7", 5);
    buf_puts(
        &body,
        "{\"Pod\":{\"metadata\":{\"name\":\"p\",\"namespace\":\"d\",\"uid\":\"p\"},\"spec\":{" HIGH
        ",\"containers\":[{\"name\":\"main\",\"resources\":{\"limits\":{" WHOLE
        "}}}]}},\"NodeNameToMetaVictims\":null,\"NodeNameToVictims\":{");
    for (int i = 0; i < NODES; i++)
        buf_printf(
            &body,
            "%s\"node-%d\":{\"Pods\":[{\"metadata\":{\"name\":\"v\",\"uid\":\"v%d\"},\"spec\":{"
            "\"x\":\"%s\"}}],\"NumPDBViolations\":2}",
            i ? "," : "", i, i, padding);
    buf_puts(&body, "}}");
    assert_true(body.len > (size_t) 20000000);
    assert_int_equal(json_prune_feed(prune, body.data, body.len), 0);
    assert_int_equal(json_prune_end(prune), 0);
    json_prune_free(prune);
    assert_true(left.len < (size_t) 100000);
    assert_int_equal(preempt_verb(s->p, left.data, left.len, s->w->now, &s->answer), 0);
    assert_string_equal(buf_str(&s->answer),
                        ANSWER("\"node-7\":{\"Pods\":[{\"UID\":\"v7\"},{\"UID\":\"a\"}],"
                               "\"NumPDBViolations\":2}"));
}

static void test_node_is_left_out(void **state) {
    struct stage *s = *state;
    show_node(s->w, "m", 1);
    show_node(s->w, "n", 1);
    show_node(s->w, "none", 0);
    run_low(s, "a", HALF, "m", 1000); /* not lower than who comes */
    run_low(s, "b", HALF, "n", 999);
    assert_string_equal(
        ask_verb(s, WHOLE, HIGH, META,
                 "\"m\":{\"Pods\":[{\"UID\":\"x\"}]},\"n\":{\"Pods\":[{\"UID\":\"y\"}]},"
                 "\"none\":{\"Pods\":[{\"UID\":\"z\"}]},\"unknown\":{\"Pods\":[{\"UID\":\"u\"}]}"),
        ANSWER("\"n\":{\"Pods\":[{\"UID\":\"y\"},{\"UID\":\"b\"}],\"NumPDBViolations\":0}"));
}

static void test_who_may_not(void **state) {
    struct stage *s = *state;
    show_node(s->w, "n", 1);
    run_low(s, "a", HALF, "n", 5);
    const char *nodes = "\"n\":{\"Pods\":[{\"UID\":\"y\"}]}";
    assert_string_equal(ask_verb(s, WHOLE, HIGH ",\"preemptionPolicy\":\"Never\"", META, nodes),
                        ANSWER(""));
    assert_string_equal(ask_verb(s, "\"elasticgpu.io/gpu-core\":\"150\"", HIGH, META, nodes),
                        ANSWER(""));
    /* A pod that asks for no GPU is none of our business. */
    assert_string_equal(ask_verb(s, "\"cpu\":\"1\"", HIGH, META, nodes),
                        ANSWER("\"n\":{\"Pods\":[{\"UID\":\"y\"}],\"NumPDBViolations\":0}"));
    s->w->ready = false;
    assert_string_equal(ask_verb(s, WHOLE, HIGH, META, nodes), "!");
    s->w->ready = true;
    assert_string_equal(ask_verb(s, WHOLE, HIGH ",\"x\":", META, nodes), "!");
}

static bool closed(void *self, struct state_pod *pod, uint64_t now_ms, struct buf *why) {
    (void) self, (void) pod, (void) now_ms;
    buf_puts(why, "not yet");
    return false;
}

/* Whom a quota or a gang holds would not come where room was made. */
static void test_held_pod(void **state) {
    struct stage *s = *state;
    const struct gates gates = {.n = 1, .rows = {{"test", NULL, closed}}};
    show_node(s->w, "n", 1);
    run_low(s, "a", HALF, "n", 5);
    s->p->gates = &gates;
    assert_string_equal(ask_verb(s, WHOLE, HIGH, META, "\"n\":{\"Pods\":[{\"UID\":\"y\"}]}"),
                        ANSWER(""));
    assert_true(state_pod_find(s->w->state, s->uid)->preemption.verb_ms == 0);
}

/* What kube-scheduler asks about after its end must not come back: nothing would end it again. */
static void test_ended_pod(void **state) {
    struct stage *s = *state;
    const char *nodes = "\"n\":{\"Pods\":[{\"UID\":\"y\"}]}";
    show_node(s->w, "n", 1);
    run_low(s, "a", HALF, "n", 5);
    assert_string_not_equal(ask_verb(s, WHOLE, HIGH, META, nodes), "!");
    state_pod_ended(s->w->state, s->uid);
    s->asked--; /* the same pod once more */
    assert_string_equal(ask_verb(s, WHOLE, HIGH, META, nodes), "!");
    assert_string_equal(buf_str(&s->answer), "the pod has ended\n");
    assert_null(state_pod_find(s->w->state, s->uid));
}

static void test_budgets(void **state) {
    struct stage *s = *state;
    uint32_t tests = PREEMPT_TESTS;
    show_node(s->w, "n", 1);
    run_low(s, "a", HALF, "n", 5);
    run_low(s, "b", HALF, "n", 5);
    label(s->w, "a", "app=x,");
    preempt_budgets_begin(s->p);
    show_budget(s->w, s->p, "app", "x", 0);
    preempt_budgets_end(s->p);
    const char *nodes = "\"n\":{\"Pods\":[{\"UID\":\"y\"}],\"NumPDBViolations\":0}";
    assert_string_equal(
        ask_verb(s, HALF, HIGH, META, nodes),
        ANSWER("\"n\":{\"Pods\":[{\"UID\":\"y\"},{\"UID\":\"b\"}],\"NumPDBViolations\":0}"));
    /* kube-scheduler breaks a budget where nothing else helps, and is told of it. */
    assert_string_equal(ask_verb(s, WHOLE, HIGH, META, nodes),
                        ANSWER("\"n\":{\"Pods\":[{\"UID\":\"y\"},{\"UID\":\"a\"},{\"UID\":\"b\"}],"
                               "\"NumPDBViolations\":1}"));
    /* We do not. */
    const struct state_pod *pod = state_pod_find(s->w->state, s->uid);
    struct state_node *node = state_node_find(s->w->state, "n");
    state_plan(s->w->state, pod, &s->p->request, &s->p->plan);
    assert_null(preempt_on_node(s->p, pod, node, s->w->now, &tests).node);
    show_budget(s->w, s->p, "app", "x", 1);
    const struct evict_plan plan = preempt_on_node(s->p, pod, node, s->w->now, &tests);
    assert_ptr_equal(plan.node, node);
    assert_int_equal(plan.nvictims, 2);
    assert_int_equal(plan.ndevices, 1);
    assert_int_equal(plan.devices[0].core, 100);
    assert_true(plan.devices[0].memory == node->cards[0]->memory);
    assert_true(plan.devices[0].physical == node->cards[0]->physical);
    /* Refused lately: left alone for a while. */
    state_pod_find(s->w->state, "b")->preemption.refused_ms = s->w->now + 10;
    assert_null(preempt_on_node(s->p, pod, node, s->w->now, &tests).node);
    assert_non_null(preempt_on_node(s->p, pod, node, s->w->now + 10, &tests).node);
    /* The eviction API takes no pod that two budgets select, however many they allow. */
    label(s->w, "a", "app=x,app2=y,");
    show_budget(s->w, s->p, "app2", "y", 1);
    assert_null(preempt_on_node(s->p, pod, node, s->w->now + 10, &tests).node);
    preempt_budgets_begin(s->p);
    preempt_budgets_end(s->p);
    assert_null(s->p->budgets);
}

/* The fewest pods that would have to end: of any priority, whatever budgets and refused evictions
 * say. */
static void test_would_have_to_end(void **state) {
    struct stage *s = *state;
    uint32_t tests = PREEMPT_TESTS;
    show_node(s->w, "n", 1);
    run_low(s, "a", "\"elasticgpu.io/gpu-core\":\"20\"", "n", 5);
    run_low(s, "b", "\"elasticgpu.io/gpu-core\":\"20\"", "n", 5);
    run_low(s, "c", "\"elasticgpu.io/gpu-core\":\"60\"", "n", 2000);
    label(s->w, "c", "app=x,");
    preempt_budgets_begin(s->p);
    show_budget(s->w, s->p, "app", "x", 0);
    preempt_budgets_end(s->p);
    state_pod_find(s->w->state, "c")->preemption.refused_ms = s->w->now + 10;
    (void) ask_verb(s, HALF, HIGH, META, "\"n\":{\"Pods\":[]}");
    const struct state_pod *pod = state_pod_find(s->w->state, s->uid);
    struct state_node *node = state_node_find(s->w->state, "n");
    state_plan(s->w->state, pod, &s->p->request, &s->p->plan);
    assert_null(preempt_on_node(s->p, pod, node, s->w->now, &tests).node);
    const struct evict_plan one = preempt_would_have_to_end(s->p, pod, node, &tests);
    assert_ptr_equal(one.node, node);
    assert_int_equal(one.nvictims, 1);
    assert_string_equal(one.victims[0]->uid, "c");
    /* One that is on its way counts as gone. */
    state_pod_find(s->w->state, "c")->deleting = true;
    const struct evict_plan none = preempt_would_have_to_end(s->p, pod, node, &tests);
    assert_ptr_equal(none.node, node);
    assert_int_equal(none.nvictims, 0);
}

uint64_t __wrap_scheduler_now(const struct scheduler *s);

uint64_t __wrap_scheduler_now(const struct scheduler *s) {
    (void) s;
    return 0;
}

/* On how many nodes with a card each, of which ten pods have a tenth, explain can search. */
static void test_explain_says_that_it_was_cut_short(void **state) {
    struct stage *s = *state;
    struct scheduler *scheduler = calloc(1, sizeof(*scheduler));
    char node[16], uid[16];
    assert_non_null(scheduler);
    scheduler->state = s->w->state;
    show_pod(s->w, "late", WHOLE, NULL, "");
    for (unsigned n = 0; n < 20; n++) {
        _cleanup_buf_ struct buf page = BUF_INIT(0);
        snprintf(node, sizeof(node), "n%u", n);
        show_node(s->w, node, 1);
        for (unsigned i = 0; i < 10; i++) {
            snprintf(uid, sizeof(uid), "%u-%u", n, i);
            run_low(s, uid, TENTH, node, 5);
        }
        if (n != 0 && n != 19)
            continue;
        scheduler->preempt = *s->p;
        assert_true(scheduler_write_explanation(scheduler, "d", "pod-late", &page));
        assert_non_null(strstr(buf_str(&page), "\"ends\":{\"node\":\"n0\""));
        assert_int_equal(strstr(buf_str(&page), "\"cutShort\":true") != NULL, n == 19);
        *s->p = scheduler->preempt;
    }
    free(scheduler);
}

#define STAGED(name) cmocka_unit_test_setup_teardown(name, set_stage, clear_stage)

int main(void) {
    const struct CMUnitTest tests[] = {
        STAGED(test_share_needs_more),
        STAGED(test_its_own_victims_are_enough),
        STAGED(test_unattributed_memory_stays),
        STAGED(test_node_is_left_out),
        STAGED(test_who_may_not),
        STAGED(test_budgets),
        STAGED(test_held_pod),
        STAGED(test_long_requests),
        STAGED(test_ended_pod),
        STAGED(test_would_have_to_end),
        STAGED(test_explain_says_that_it_was_cut_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
