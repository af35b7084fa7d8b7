/* SPDX-License-Identifier: Apache-2.0 */

/* Preemption for shortages of single cards: who is evicted, when, and who gets the share. */

#include "preempt-world.h"

#include "base/text.h"
#include "scheduler/preemption/evict.h"

/* A world in which victims can be evicted. */
struct stage {
    struct world *w;
    struct preempt *p;
    struct evictor e;
    bool leads;
    unsigned asked; /* kube-scheduler is to ask again */
};

static bool stage_leads(void *userdata) {
    return ((struct stage *) userdata)->leads;
}

static uint64_t stage_now(void *userdata) {
    return ((struct stage *) userdata)->w->now;
}

static void stage_changed(void *userdata) {
    (void) userdata;
}

static void stage_ask_again(void *userdata) {
    ((struct stage *) userdata)->asked++;
}

static struct evictor *evictor_of_world;

static void no_room(struct state_pod *pod, const struct extender_candidate *candidates, size_t n,
                    uint64_t now_ms, void *userdata) {
    (void) userdata;
    evictor_refused(evictor_of_world, pod, candidates, n, now_ms);
}

static void begin(struct stage *s) {
    s->p = new_preempt(s->w);
    s->e = (struct evictor){.state = s->w->state,
                            .preempt = s->p,
                            .api = {fake_request, s->w},
                            .events = s->w->events,
                            .leads = stage_leads,
                            .changed = stage_changed,
                            .ask_again = stage_ask_again,
                            .now = stage_now,
                            .userdata = s};
    s->w->extender.on_no_room = no_room;
    s->leads = true;
    evictor_of_world = &s->e;
}

static int set_stage(void **state) {
    struct stage *s = calloc(1, sizeof(*s));
    void *w = NULL;
    setup(&w);
    s->w = w;
    begin(s);
    *state = s;
    return 0;
}

static void end(struct stage *s) {
    evictor_done(&s->e);
    free_preempt(s->p);
}

static int clear_stage(void **state) {
    struct stage *s = *state;
    void *w = s->w;
    end(s);
    teardown(&w);
    free(s);
    return 0;
}

/* ---- what the watch shows ---- */

/* A pod object of that priority; more of its members: of metadata, spec and status, each may be "".
 */
static void show(struct stage *s, const char *uid, const char *resources, int priority,
                 const char *meta, const char *spec, const char *status) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    buf_printf(&text,
               "{\"metadata\":{\"name\":\"pod-%s\",\"namespace\":\"d\",\"uid\":\"%s\"%s},"
               "\"spec\":{\"priority\":%d%s,\"containers\":[{\"name\":\"main\",\"resources\":"
               "{\"limits\":{%s}}}]},\"status\":{\"phase\":\"Pending\"%s}}",
               uid, uid, meta, priority, spec, resources, status);
    show_text(s->w, buf_str(&text));
}

static void run_low(struct stage *s, const char *uid, const char *resources, const char *node,
                    int32_t priority) {
    _cleanup_buf_ struct buf notes = BUF_INIT(0), meta = BUF_INIT(0), spec = BUF_INIT(0);
    run_pod(s->w, uid, resources, node, &notes);
    buf_printf(&meta, ",\"annotations\":{%s}", buf_str(&notes));
    buf_printf(&spec, ",\"nodeName\":\"%s\"", node);
    show(s, uid, resources, priority, buf_str(&meta), buf_str(&spec), "");
}

/* kube-scheduler asks about the pod, offering these nodes, and is refused. */
static void refuse_nominated(struct stage *s, const char *uid, const char *resources, int priority,
                             const char *nominated, const char *names) {
    _cleanup_buf_ struct buf body = BUF_INIT(0), answer = BUF_INIT(0);
    buf_printf(
        &body,
        "{\"Pod\":{\"metadata\":{\"name\":\"pod-%s\",\"namespace\":\"d\",\"uid\":\"%s\"},"
        "\"spec\":{\"priority\":%d,\"containers\":[{\"name\":\"main\",\"resources\":"
        "{\"limits\":{%s}}}]},\"status\":{\"nominatedNodeName\":\"%s\"}},\"NodeNames\":[%s]}",
        uid, uid, priority, resources, nominated, names);
    assert_int_equal(extender_filter(&s->w->extender, body.data, body.len, s->w->now, &answer), 0);
    assert_non_null(strstr(buf_str(&answer), "\"NodeNames\":[]"));
}

static void refuse(struct stage *s, const char *uid, const char *resources, int priority,
                   const char *names) {
    const struct state_pod *pod = state_pod_find(s->w->state, uid);
    refuse_nominated(s, uid, resources, priority, pod && pod->nominated ? pod->nominated : "",
                     names);
}

/* ---- what is sent ---- */

/* The oldest request that is not an Event must be this one; Events are answered on the way. */
static void expect(struct stage *s, const char *method, const char *path, const char *body) {
    while (s->w->nasked > 0 && strstr(s->w->asked[0].path, "/events"))
        respond(s->w, 0, 201, false, NULL);
    assert_true(s->w->nasked > 0);
    assert_string_equal(s->w->asked[0].method, method);
    assert_string_equal(s->w->asked[0].path, path);
    if (!strstr(buf_str(&s->w->asked[0].body), body))
        fail_msg("not in %s: %s", buf_str(&s->w->asked[0].body), body);
}

static void expect_nothing(struct stage *s) {
    while (s->w->nasked > 0 && strstr(s->w->asked[0].path, "/events"))
        respond(s->w, 0, 201, false, NULL);
    assert_int_equal(s->w->nasked, 0);
}

static void run_later(struct stage *s, uint64_t ms) {
    s->w->now += ms;
    evictor_run(&s->e, s->w->now);
}

#define STATUS(uid) "/api/v1/namespaces/d/pods/pod-" uid "/status"
#define EVICTION(uid) "/api/v1/namespaces/d/pods/pod-" uid "/eviction"
#define NOMINATED(node) ",\"nominatedNodeName\":\"" node "\""
#define DELETED ",\"deletionTimestamp\":\"2026-01-01T00:00:00Z\""

/* The nomination for the pod is sent, taken and shown. */
static void take_nomination(struct stage *s, const char *uid, const char *resources, int priority,
                            const char *node) {
    char path[128], body[64], status[64];
    snprintf(path, sizeof(path), "/api/v1/namespaces/d/pods/pod-%s/status", uid);
    snprintf(body, sizeof(body), "{\"nominatedNodeName\":\"%s\"}", node);
    snprintf(status, sizeof(status), ",\"nominatedNodeName\":\"%s\"", node);
    expect(s, "PATCH", path, body);
    respond(s->w, 0, 200, false, NULL);
    show(s, uid, resources, priority, "", "", status);
}

/* The pod fits on none of the nodes, and after the grace period is nominated to that one. */
static void nominate(struct stage *s, const char *uid, const char *resources, int priority,
                     const char *names, const char *node) {
    refuse(s, uid, resources, priority, names);
    run_later(s, 400);
    take_nomination(s, uid, resources, priority, node);
    run_later(s, 0);
}

/* The eviction that is sent next is granted, and the pod is marked. */
static void evict(struct stage *s, const char *eviction, const char *status) {
    expect(s, "POST", eviction, "policy/v1");
    respond(s->w, 0, 201, false, NULL);
    expect(s, "PATCH", status, "DisruptionTarget");
    respond(s->w, 0, 200, false, NULL);
}

/* ---- tests ---- */

static void test_makes_room(void **state) {
    struct stage *s = *state;
    show_node(s->w, "n", 2);
    run_low(s, "a", WHOLE, "n", 10);
    run_low(s, "b", HALF, "n", 5);
    run_low(s, "c", HALF, "n", 5);
    show(s, "p", HALF, 100, "", "", "");
    refuse(s, "p", HALF, 100, "\"n\"");
    evictor_run(&s->e, s->w->now);
    expect_nothing(s); /* kube-scheduler's own preemption goes first */
    run_later(s, 400);
    take_nomination(s, "p", HALF, 100, "n");
    run_later(s, 0);
    expect(s, "POST", EVICTION("c"), "\"preconditions\":{\"uid\":\"c\"}");
    const uint64_t crowd = s->w->state->pods_generation;
    respond(s->w, 0, 201, false, NULL);
    assert_true(s->w->state->pods_generation > crowd); /* a gang of it counts its members anew */
    expect(s, "PATCH", STATUS("c"), "PreemptionByScheduler");
    respond(s->w, 0, 200, false, NULL);
    run_later(s, 5000);
    expect_nothing(s); /* it has a grace period, and no other pod is evicted meanwhile */
    /* While it ends, and when it has, the share is kept from all others. */
    show(s, "q", HALF, 0, "", "", "");
    refuse(s, "q", HALF, 0, "\"n\"");
    refuse(s, "p", HALF, 100, "\"n\"");
    state_pod_gone(s->w->state, "c");
    refuse(s, "q", HALF, 0, "\"n\"");
    assert_string_equal(filter(s->w, "p", HALF, "\"n\""), "n");
    assert_int_equal(free_core(s->w, "n", 0) + free_core(s->w, "n", 1), 0);
    assert_false(state_node_find(s->w->state, "n")->cards[1]->overcommitted);
    bind_pod(s->w, "p", "n");
    _cleanup_buf_ struct buf notes = BUF_INIT(0), meta = BUF_INIT(0);
    annotations_of(s->w, &s->w->asked[0], &notes);
    respond(s->w, 0, 201, false, NULL);
    assert_string_equal(s->w->bind_answer, "");
    buf_printf(&meta, ",\"annotations\":{%s}", buf_str(&notes));
    show(s, "p", HALF, 100, buf_str(&meta), ",\"nodeName\":\"n\"", NOMINATED("n"));
    run_later(s, 1000);
    expect_nothing(s);
    assert_int_equal(evictor_waiting(&s->e), 0);
    assert_null(s->w->state->reserved);
    assert_int_equal(s->e.evicted, 1);
}

/* Who reads Events knows the pods of that namespace, and learns of no others. */
static void test_events_name_no_pod_of_another_namespace(void **state) {
    struct stage *s = *state;
    _cleanup_buf_ struct buf said = BUF_INIT(0);
    show_node(s->w, "n", 1);
    run_low(s, "a", HALF, "n", 5);
    run_low(s, "b", HALF, "n", 5);
    struct state_pod *b = state_pod_find(s->w->state, "b");
    text_copy(b->namespace, sizeof(b->namespace), "secret");
    show(s, "p", WHOLE, 100, "", "", "");
    nominate(s, "p", WHOLE, 100, "\"n\"", "n");
    while (s->w->nasked > 0) {
        const struct asked *asked = &s->w->asked[0];
        if (strstr(asked->path, "/status") || strstr(asked->path, "/events"))
            buf_append(&said, asked->body.data, asked->body.len);
        respond(s->w, 0, 201, false, NULL);
    }
    const char *text = buf_str(&said);
    /* The count is first: the end of a message with many names is cut off. */
    assert_non_null(
        strstr(text, "\"Room is made on node n by evicting 1 pod of other namespaces, d/pod-a\""));
    assert_non_null(strstr(text, "Preempted by pod d/pod-p (p), of priority 100"));
    assert_non_null(strstr(text, "Preempted by a pod of another namespace (p), of priority 100"));
    assert_null(strstr(text, "secret/"));
    assert_null(strstr(text, "pod-b, "));
}

/* The node's agent is replaced after the eviction: no pod of another node is evicted for that. */
static void test_agent_is_replaced(void **state) {
    struct stage *s = *state;
    show_node(s->w, "m", 1);
    show_node(s->w, "n", 1);
    run_low(s, "a", WHOLE, "m", 5);
    run_low(s, "b", WHOLE, "n", 10);
    show(s, "p", WHOLE, 100, "", "", "");
    nominate(s, "p", WHOLE, 100, "\"m\",\"n\"", "m");
    expect(s, "POST", EVICTION("a"), "policy/v1");
    respond(s->w, 0, 201, false, NULL);
    expect(s, "PATCH", STATUS("a"), "PreemptionByScheduler");
    respond(s->w, 0, 200, false, NULL);
    assert_int_equal(state_node_absence(s->w->state, "m", PLACE_AGENT_STOPS), 1);
    refuse(s, "p", WHOLE, 100, "\"m\",\"n\"");
    run_later(s, 5000);
    state_pod_gone(s->w->state, "a");
    run_later(s, 5000);
    expect_nothing(s);
    assert_int_equal(state_node_absence(s->w->state, "m", PLACE_OK), 1);
    assert_string_equal(filter(s->w, "p", WHOLE, "\"m\",\"n\""), "m");
}

/* An agent that does not come back: room is made elsewhere. */
static void test_agent_stays_away(void **state) {
    struct stage *s = *state;
    show_node(s->w, "m", 1);
    show_node(s->w, "n", 1);
    run_low(s, "a", WHOLE, "m", 5);
    run_low(s, "b", WHOLE, "n", 10);
    show(s, "p", WHOLE, 100, "", "", "");
    refuse(s, "p", WHOLE, 100, "\"m\",\"n\"");
    run_later(s, 400);
    take_nomination(s, "p", WHOLE, 100, "m");
    assert_int_equal(state_node_absence(s->w->state, "m", PLACE_NO_AGENT), 1);
    run_later(s, 1000);
    expect_nothing(s);
    run_later(s, 60000);
    refuse(s, "p", WHOLE, 100, "\"m\",\"n\"");
    run_later(s, 1000);
    take_nomination(s, "p", WHOLE, 100, "n");
}

static void test_says_where_it_waits(void **state) {
    struct stage *s = *state;
    _cleanup_buf_ struct buf body = BUF_INIT(0), answer = BUF_INIT(0);
    show_node(s->w, "m", 1);
    show_node(s->w, "n", 1);
    run_low(s, "a", WHOLE, "m", 10);
    run_low(s, "b", WHOLE, "n", 10);
    show(s, "p", HALF, 100, "", "", NOMINATED("n"));
    buf_puts(&body, "{\"Pod\":{\"metadata\":{\"name\":\"pod-p\",\"namespace\":\"d\",\"uid\":\"p\"},"
                    "\"spec\":{\"containers\":[{\"name\":\"main\",\"resources\":{\"limits\":{" HALF
                    "}}}]},\"status\":{\"nominatedNodeName\":\"n\"}},"
                    "\"NodeNames\":[\"m\",\"n\"]}");
    extender_filter(&s->w->extender, body.data, body.len, s->w->now, &answer);
    assert_non_null(strstr(buf_str(&answer), "\"FailedNodes\":{\"n\":\"node(s): no GPU"));
    assert_non_null(
        strstr(buf_str(&answer), "\"FailedAndUnresolvableNodes\":{\"m\":\"node(s): no GPU"));
}

static void test_nobody_helps(void **state) {
    struct stage *s = *state;
    show_node(s->w, "n", 1);
    run_low(s, "a", HALF, "n", 100);
    run_low(s, "b", HALF, "n", 5);
    show(s, "p", WHOLE, 100, "", "", "");
    refuse(s, "p", WHOLE, 100, "\"n\""); /* b alone does not help, a is not lower */
    show(s, "q", HALF, 200, "", ",\"preemptionPolicy\":\"Never\"", "");
    state_pod_find(s->w->state, "q")->never_preempts = true;
    run_later(s, 400);
    run_later(s, 10000);
    expect_nothing(s);
}

static void test_budget_says_no(void **state) {
    struct stage *s = *state;
    show_node(s->w, "m", 1);
    show_node(s->w, "n", 1);
    run_low(s, "a", WHOLE, "m", 5);
    run_low(s, "b", WHOLE, "n", 10);
    show(s, "p", WHOLE, 100, "", "", "");
    nominate(s, "p", WHOLE, 100, "\"m\",\"n\"", "m");
    expect(s, "POST", EVICTION("a"), "policy/v1");
    respond(s->w, 0, 429, false, NULL); /* the next best, then */
    run_later(s, 1000);
    take_nomination(s, "p", WHOLE, 100, "n");
    run_later(s, 0);
    expect(s, "POST", EVICTION("b"), "policy/v1");
    respond(s->w, 0, 429, false, NULL); /* none is left: the reserved share is released */
    run_later(s, 1000);
    expect(s, "PATCH", STATUS("p"), "{\"nominatedNodeName\":null}");
    respond(s->w, 0, 200, false, NULL);
    assert_null(s->w->state->reserved);
    show(s, "p", WHOLE, 100, "", "", "");
    run_later(s, 5000);
    expect_nothing(s);
    run_later(s, 15000); /* and later it may be allowed */
    expect_nothing(s);   /* if those nodes are still good for it */
    assert_int_equal(s->asked, 1);
    nominate(s, "p", WHOLE, 100, "\"m\",\"n\"", "m");
    evict(s, EVICTION("a"), STATUS("a"));
    expect_nothing(s);
    assert_int_equal(s->e.spared, 2);
}

/* Of a set, pods whose eviction may be refused go first, one by one.
 */
static void test_refused_in_the_middle(void **state) {
    struct stage *s = *state;
    static const char quarter[] = "\"elasticgpu.io/gpu-core\":\"25\"";
    show_node(s->w, "n", 1);
    run_low(s, "a", quarter, "n", 9);
    run_low(s, "b", quarter, "n", 6);
    run_low(s, "c", quarter, "n", 5);
    run_low(s, "d", quarter, "n", 7);
    label(s->w, "b", "app=x,");
    label(s->w, "c", "app=y,");
    show_budget(s->w, s->p, "app", "x", 1);
    show_budget(s->w, s->p, "app", "y", 1);
    show(s, "p", WHOLE, 100, "", "", "");
    nominate(s, "p", WHOLE, 100, "\"n\"", "n");
    expect(s, "POST", EVICTION("b"), "\"uid\":\"b\"");
    respond(s->w, 0, 429, false, NULL);
    run_later(s, 1000);
    expect(s, "PATCH", STATUS("p"), "{\"nominatedNodeName\":null}");
    respond(s->w, 0, 200, false, NULL);
    expect_nothing(s); /* none went, none goes */
    assert_int_equal(s->e.evicted, 0);

    show(s, "p", WHOLE, 100, "", "", "");
    s->w->now += 20000;
    refuse(s, "p", WHOLE, 100, "\"n\"");
    run_later(s, 6000);
    take_nomination(s, "p", WHOLE, 100, "n");
    run_later(s, 0);
    static const char *const guarded[] = {EVICTION("b"), EVICTION("c")};
    for (size_t i = 0; i < 2; i++) {
        expect(s, "POST", guarded[i], "policy/v1");
        run_later(s, 10);
        for (size_t k = 1; k < s->w->nasked; k++) /* no other eviction before the answer */
            assert_non_null(strstr(s->w->asked[k].path, "/events"));
        respond(s->w, 0, 201, false, NULL);
        expect(s, "PATCH", i == 0 ? STATUS("b") : STATUS("c"), "DisruptionTarget");
        respond(s->w, 0, 200, false, NULL);
        run_later(s, 0); /* the next one at once */
    }
    expect(s, "POST", EVICTION("a"), "policy/v1");
    assert_string_equal(s->w->asked[1].path, EVICTION("d")); /* those cannot be refused */
    while (s->w->nasked > 0)
        respond(s->w, 0, 201, false, NULL);
}

/* A budget that says no against all that its status says causes no further evictions again and
 * again. */
static void test_refused_again(void **state) {
    struct stage *s = *state;
    show_node(s->w, "n", 1);
    run_low(s, "b", HALF, "n", 6);
    run_low(s, "c", HALF, "n", 5);
    label(s->w, "b", "app=x,");
    label(s->w, "c", "app=y,");
    show_budget(s->w, s->p, "app", "x", 1);
    show_budget(s->w, s->p, "app", "y", 1);
    show(s, "p", WHOLE, 100, "", "", "");
    nominate(s, "p", WHOLE, 100, "\"n\"", "n");
    evict(s, EVICTION("b"), STATUS("b"));
    run_later(s, 0);
    expect(s, "POST", EVICTION("c"), "policy/v1");
    respond(s->w, 0, 429, false, NULL);
    run_later(s, 1000);
    expect(s, "PATCH", STATUS("p"), "{\"nominatedNodeName\":null}");
    respond(s->w, 0, 200, false, NULL);
    state_pod_gone(s->w->state, "b");
    run_low(s, "d", HALF, "n", 6); /* b, made anew */
    label(s->w, "d", "app=x,");
    show(s, "p", WHOLE, 100, "", "", "");
    s->w->now += 20000;
    refuse(s, "p", WHOLE, 100, "\"n\"");
    run_later(s, 6000);
    take_nomination(s, "p", WHOLE, 100, "n");
    run_later(s, 0);
    expect(s, "POST", EVICTION("c"), "policy/v1");
    while (s->w->nasked > 0)
        respond(s->w, 0, 201, false, NULL);
}

/* Everything in memory is lost between the eviction and the Binding. */
static void test_restart(void **state) {
    struct stage *s = *state;
    _cleanup_buf_ struct buf notes = BUF_INIT(0), meta = BUF_INIT(0);
    show_node(s->w, "n", 1);
    run_pod(s->w, "a", WHOLE, "n", &notes);
    buf_printf(&meta, DELETED ",\"annotations\":{%s}", buf_str(&notes));
    end(s);
    stop(s->w);
    start(s->w);
    begin(s);
    show_node(s->w, "n", 1);
    show(s, "a", WHOLE, 5, buf_str(&meta), ",\"nodeName\":\"n\"", "");
    show(s, "p", HALF, 100, "", "", NOMINATED("n"));
    show(s, "q", HALF, 0, "", "", "");
    evictor_catch_up(&s->e, s->w->now);
    expect_nothing(s); /* who is ending already is not evicted again, nor is any other */
    state_pod_gone(s->w->state, "a");
    assert_string_equal(filter(s->w, "q", HALF, "\"n\""), "n"); /* the other half is free */
    show(s, "r", WHOLE, 0, "", "", "");
    refuse(s, "r", WHOLE, 0, "\"n\"");
    assert_string_equal(filter(s->w, "p", HALF, "\"n\""), "n");
    run_later(s, 400);
    expect_nothing(s);
}

/* No room is kept for a pod that is gone: a watch may not have shown its end. */
static void give_back_when(struct stage *s, int status, const char *uid) {
    char path[128];
    run_low(s, "a", WHOLE, "n", 5);
    show(s, uid, WHOLE, 100, "", "", "");
    refuse(s, uid, WHOLE, 100, "\"n\"");
    run_later(s, 400);
    snprintf(path, sizeof(path), "/api/v1/namespaces/d/pods/pod-%s/status", uid);
    expect(s, "PATCH", path, "{\"nominatedNodeName\":\"n\"}");
    assert_non_null(s->w->state->reserved);
    respond(s->w, 0, status, false, NULL);
    assert_null(s->w->state->reserved);
    assert_int_equal(s->asked, 1); /* should it be there nevertheless */
    s->asked = 0;
    run_later(s, 10000);
    expect_nothing(s);
    state_pod_gone(s->w->state, "a");
    assert_string_equal(filter(s->w, "other", WHOLE, "\"n\""), "n");
    state_pod_gone(s->w->state, "other");
}

static void test_gone_when_nominated(void **state) {
    struct stage *s = *state;
    show_node(s->w, "n", 1);
    give_back_when(s, 404, "p");
    give_back_when(s, 409, "q"); /* another pod has its name */
}

/* kube-scheduler asks late about a pod that was gone before we started: no pod is evicted for one
 * the watch has not shown, although room was being made for it. */
static void test_never_seen(void **state) {
    struct stage *s = *state;
    show_node(s->w, "n", 1);
    run_low(s, "a", WHOLE, "n", 5);
    refuse_nominated(s, "p", WHOLE, 100, "n", "\"n\"");
    run_later(s, 400);
    expect_nothing(s);
    assert_null(s->w->state->reserved);
    show(s, "p", WHOLE, 100, "", "", NOMINATED("n")); /* it is there, however */
    run_later(s, 0);
    expect(s, "POST", EVICTION("a"), "");
    respond(s->w, 0, 201, false, NULL);
    expect(s, "PATCH", STATUS("a"), "PreemptionByScheduler");
    respond(s->w, 0, 200, false, NULL);
    expect_nothing(s);
}

/* The scheduler died between nomination and eviction; nothing in the cluster would make
 * kube-scheduler ask about the pod. */
static void test_restart_before_eviction(void **state) {
    struct stage *s = *state;
    show_node(s->w, "n", 1);
    run_low(s, "a", WHOLE, "n", 5);
    show(s, "p", HALF, 100, "", "", NOMINATED("n"));
    evictor_catch_up(&s->e, s->w->now);
    expect_nothing(s); /* the node may be good for it no more */
    assert_int_equal(s->asked, 1);
    assert_non_null(s->w->state->reserved);
    run_later(s, 1000);
    assert_int_equal(s->asked, 1);
    run_later(s, 4000);
    assert_int_equal(s->asked, 2); /* and less often from there on */
    run_later(s, 5000);
    assert_int_equal(s->asked, 2);
    refuse(s, "p", HALF, 100, "\"n\"");
    run_later(s, 400);
    evict(s, EVICTION("a"), STATUS("a"));
    expect_nothing(s);
    assert_int_equal(s->asked, 2);
}

/* Between the choice and the eviction a gate has closed: the pod would not come. */
static bool stays_closed(void *self, struct state_pod *pod, uint64_t now_ms, struct buf *why) {
    (void) pod;
    (void) now_ms;
    buf_puts(why, "no");
    return *(bool *) self;
}

static void test_held_meanwhile(void **state) {
    struct stage *s = *state;
    bool open = true;
    const struct gates gates = {.n = 1, .rows = {{"test", &open, stays_closed}}};
    s->p->gates = &gates;
    show_node(s->w, "n", 1);
    run_low(s, "a", WHOLE, "n", 5);
    show(s, "p", WHOLE, 100, "", "", "");
    refuse(s, "p", WHOLE, 100, "\"n\"");
    run_later(s, 400);
    take_nomination(s, "p", WHOLE, 100, "n");
    open = false;
    run_later(s, 0);
    expect(s, "PATCH", STATUS("p"), "{\"nominatedNodeName\":null}");
    respond(s->w, 0, 200, false, NULL);
    show(s, "p", WHOLE, 100, "", "", "");
    assert_null(s->w->state->reserved);
    run_later(s, 6000);
    expect_nothing(s);
    open = true;
    run_later(s, 10000);
    assert_int_equal(s->asked, 1);
    expect_nothing(s);
}

/* As the gate of gangs does, assumes the pod on node "m". */
static bool assume(void *self, struct state_pod *pod, uint64_t now_ms, struct buf *why) {
    const struct stage *s = self;
    struct state_node *node = state_node_find(s->w->state, "m");
    struct place_result result;
    (void) why;
    state_plan(s->w->state, pod, &s->p->request, &s->p->plan);
    if (state_place(s->w->state, &s->p->plan, node, pod, false, &result) == PLACE_OK)
        assert_int_equal(state_allocate(s->w->state, pod, node, &result, POD_ASSUMED, now_ms), 0);
    return true;
}

static void test_placed_meanwhile(void **state) {
    struct stage *s = *state;
    const struct gates gates = {.n = 1, .rows = {{"test", s, assume}}};
    show_node(s->w, "m", 1);
    show_node(s->w, "n", 1);
    run_low(s, "a", WHOLE, "m", 200);
    run_low(s, "b", WHOLE, "n", 5);
    show(s, "p", WHOLE, 100, "", "", "");
    refuse(s, "p", WHOLE, 100, "\"m\",\"n\"");
    s->p->gates = &gates;
    state_pod_gone(s->w->state, "a");
    run_later(s, 400);
    assert_int_equal(state_pod_find(s->w->state, "p")->stage, POD_ASSUMED);
    assert_null(s->w->state->reserved);
    expect_nothing(s);
}

/* Those who wait without hope do not keep a more important pod, or one that has hope, away. */
static void test_many_wait(void **state) {
    struct stage *s = *state;
    char uid[16];
    show_node(s->w, "n", 1);
    run_low(s, "a", WHOLE, "n", 5);
    show(s, "b", "\"elasticgpu.io/gpu-core\":\"1\"", 5, "", "", "");
    s->w->now += 1;
    state_pod_find(s->w->state, "a")->preemption.refused_ms = s->w->now + 60000;
    for (unsigned i = 0; i < 300; i++) {
        snprintf(uid, sizeof(uid), "w%u", i);
        show(s, uid, WHOLE, 50, "", "", "");
        refuse(s, uid, WHOLE, 50, "\"n\"");
    }
    assert_int_equal(evictor_waiting(&s->e), 256);
    run_later(s, 400);
    expect_nothing(s);
    state_pod_find(s->w->state, "a")->preemption.refused_ms = 0;
    show(s, "p", WHOLE, 50, "", "", "");
    refuse(s, "p", WHOLE, 50, "\"n\"");
    run_later(s, 400);
    take_nomination(s, "p", WHOLE, 50, "n");
    show(s, "q", WHOLE, 100, "", "", "");
    refuse(s, "q", WHOLE, 100, "\"n\"");
    assert_int_equal(evictor_waiting(&s->e), 256);
    run_later(s, 400);
    take_nomination(s, "q", WHOLE, 100, "n");
}

/* More nodes than one run can look at: the one that helps is found nevertheless, in later runs. */
static void test_large_cluster(void **state) {
    struct stage *s = *state;
    _cleanup_buf_ struct buf names = BUF_INIT(0);
    char node[16], uid[16];
    for (unsigned i = 0; i < 1200; i++) {
        snprintf(node, sizeof(node), "n%u", i);
        buf_printf(&names, "%s\"%s\"", i ? "," : "", node);
        show_node(s->w, node, 1);
        for (unsigned k = 0; k < 4; k++) {
            snprintf(uid, sizeof(uid), "u%u-%u", i, k);
            run_low(s, uid, "\"elasticgpu.io/gpu-core\":\"25\"", node, 1 + (int32_t) k);
            state_pod_find(s->w->state, uid)->priority = k == 3 && i < 1199 ? 200 : 1 + (int) k;
        }
    }
    show(s, "p", WHOLE, 100, "", "", "");
    refuse(s, "p", WHOLE, 100, buf_str(&names));
    s->w->now += 400;
    unsigned runs = 0;
    for (; runs < 20 && s->w->nasked == 0; runs++)
        run_later(s, 50);
    assert_true(runs > 1);
    take_nomination(s, "p", WHOLE, 100, "n1199");
}

/* Who comes later with a higher priority takes over what was made for another. */
static void test_higher_priority_takes_over(void **state) {
    struct stage *s = *state;
    show_node(s->w, "n", 1);
    run_low(s, "a", WHOLE, "n", 5);
    show(s, "p", WHOLE, 100, "", "", "");
    nominate(s, "p", WHOLE, 100, "\"n\"", "n");
    evict(s, EVICTION("a"), STATUS("a"));
    show(s, "q", WHOLE, 200, "", "", "");
    refuse(s, "q", WHOLE, 200, "\"n\"");
    run_later(s, 400);
    take_nomination(s, "q", WHOLE, 200, "n"); /* no other pod goes */
    run_later(s, 0);
    while (s->w->nasked > 0) { /* p is told that nothing is kept for it any more */
        assert_null(strstr(s->w->asked[0].path, "eviction"));
        respond(s->w, 0, 200, false, NULL);
    }
    state_pod_gone(s->w->state, "a");
    refuse(s, "p", WHOLE, 100, "\"n\"");
    assert_string_equal(filter(s->w, "q", WHOLE, "\"n\""), "n");
}

static void test_only_the_leader(void **state) {
    struct stage *s = *state;
    show_node(s->w, "n", 1);
    run_low(s, "a", WHOLE, "n", 5);
    show(s, "p", WHOLE, 100, "", "", "");
    refuse(s, "p", WHOLE, 100, "\"n\"");
    s->leads = false;
    run_later(s, 10000);
    expect_nothing(s);
}

/* kube-scheduler makes room itself: it deletes its victims and nominates. */
static void test_hands_off(void **state) {
    struct stage *s = *state;
    show_node(s->w, "n", 1);
    run_low(s, "a", WHOLE, "n", 5);
    show(s, "p", WHOLE, 100, "", "", "");
    refuse(s, "p", WHOLE, 100, "\"n\"");
    state_pod_find(s->w->state, "p")->preemption.verb_ms = s->w->now;
    run_later(s, 400);
    expect_nothing(s);
    state_pod_find(s->w->state, "a")->deleting = true;
    show(s, "p", WHOLE, 100, "", "", NOMINATED("n"));
    run_later(s, 5000);
    expect_nothing(s);
    assert_non_null(s->w->state->reserved); /* and its share is kept all the same */
}

/* It has found another node for the pod meanwhile, whose CPU it makes free there. */
static void test_follows(void **state) {
    struct stage *s = *state;
    show_node(s->w, "m", 1);
    show_node(s->w, "n", 1);
    run_low(s, "a", WHOLE, "m", 5);
    run_low(s, "b", WHOLE, "n", 10);
    show(s, "p", HALF, 100, "", "", "");
    nominate(s, "p", HALF, 100, "\"m\",\"n\"", "m");
    evict(s, EVICTION("a"), STATUS("a"));
    show(s, "p", HALF, 100, "", "", NOMINATED("n"));
    state_pod_find(s->w->state, "b")->deleting = true;
    run_later(s, 4000);
    expect_nothing(s); /* what it has written stays */
    assert_string_equal(s->w->state->reserved->node->name, "n");
}

#define STAGED(name) cmocka_unit_test_setup_teardown(name, set_stage, clear_stage)

int main(void) {
    const struct CMUnitTest tests[] = {
        STAGED(test_makes_room),
        STAGED(test_events_name_no_pod_of_another_namespace),
        STAGED(test_agent_is_replaced),
        STAGED(test_agent_stays_away),
        STAGED(test_says_where_it_waits),
        STAGED(test_nobody_helps),
        STAGED(test_budget_says_no),
        STAGED(test_restart),
        STAGED(test_higher_priority_takes_over),
        STAGED(test_only_the_leader),
        STAGED(test_hands_off),
        STAGED(test_follows),
        STAGED(test_restart_before_eviction),
        STAGED(test_gone_when_nominated),
        STAGED(test_never_seen),
        STAGED(test_held_meanwhile),
        STAGED(test_many_wait),
        STAGED(test_large_cluster),
        STAGED(test_refused_in_the_middle),
        STAGED(test_placed_meanwhile),
        STAGED(test_refused_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
