/* SPDX-License-Identifier: Apache-2.0 */

/* The extender's state machine: every order of requests, events and answers that can go wrong. */

#include <time.h>

#include "scheduler-world.h"

static void test_one_pod(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf notes = BUF_INIT(0);
    show_node(w, "n", 2);
    run_pod(w, "a", HALF, "n", &notes);
    assert_int_equal(free_core(w, "n", 0), 50);
    assert_int_equal(free_core(w, "n", 1), 100);
    struct assignment a;
    const struct state_pod *pod = state_pod_find(w->state, "a");
    assert_int_equal(state_assignment(pod, &a), 0);
    assert_true(a.containers[0].devices[0].memory == 40 * GIB);
    assert_string_equal(a.containers[0].devices[0].uuid, "GPU-n-0");
    assignment_done(&a);
    state_pod_gone(w->state, "a");
    assert_int_equal(free_core(w, "n", 0), 100);
}

static void test_twenty_at_once(void **state) {
    struct world *w = *state;
    char uid[20][8];
    struct buf notes[20] = {{0}};
    show_node(w, "n", 2);
    for (int i = 0; i < 20; i++) {
        snprintf(uid[i], sizeof(uid[i]), "u%d", i);
        show_pod(w, uid[i], TENTH, NULL, "");
        assert_string_equal(filter(w, uid[i], TENTH, "\"n\""), "n");
    }
    for (int i = 19; i >= 0; i--) {
        bind_pod(w, uid[i], "n");
        annotations_of(w, &w->asked[19 - i], &notes[i]);
    }
    assert_int_equal(free_core(w, "n", 0) + free_core(w, "n", 1), 0);
    show_pod(w, "late", TENTH, NULL, "");
    assert_int_equal(filter(w, "late", TENTH, "\"n\"")[0], '!');
    while (w->nasked > 0)
        respond(w, w->nasked / 2, 201, false, NULL);
    assert_int_equal(w->binds_answered, 20);
    assert_string_equal(filter(w, "late", TENTH, "\"n\""), "-no GPU has enough free compute");
    for (int i = 0; i < 20; i++)
        show_pod(w, uid[i], TENTH, "n", buf_str(&notes[i]));
    assert_int_equal(free_core(w, "n", 0) + free_core(w, "n", 1), 0);
    const struct state_node *node = state_node_find(w->state, "n");
    assert_false(node->cards[0]->overcommitted || node->cards[1]->overcommitted);
    for (int i = 0; i < 20; i++)
        buf_done(&notes[i]);
}

static void test_bind_between_filters(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf notes = BUF_INIT(0);
    show_node(w, "n", 1);
    show_pod(w, "a", WHOLE, NULL, "");
    show_pod(w, "b", WHOLE, NULL, "");
    assert_string_equal(filter(w, "a", WHOLE, "\"n\""), "n");
    assert_int_equal(filter(w, "b", WHOLE, "\"n\"")[0], '!'); /* assumed: comes again by itself */
    bind_pod(w, "a", "n");
    assert_int_equal(filter(w, "b", WHOLE, "\"n\"")[0], '!');
    annotations_of(w, &w->asked[0], &notes);
    respond(w, 0, 201, false, NULL);
    assert_int_equal(w->refusals, 0);
    assert_string_equal(filter(w, "b", WHOLE, "\"n\""), "-not enough whole GPUs free");
    assert_int_equal(w->refusals, 1);
    assert_non_null(strstr(w->refusal, "NoGPUFits: main wants 1 whole GPU; n has free GPU 0: 0 %"));
    show_pod(w, "a", WHOLE, "n", buf_str(&notes));
    assert_string_equal(filter(w, "b", WHOLE, "\"n\""), "-not enough whole GPUs free");
    state_pod_gone(w->state, "a");
    assert_string_equal(filter(w, "b", WHOLE, "\"n\""), "n");
}

static void test_filter_twice_assumes_once(void **state) {
    struct world *w = *state;
    show_node(w, "n", 1);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(filter(w, "a", HALF, "\"n\""), "n");
        assert_int_equal(free_core(w, "n", 0), 50);
    }
    w->now += ASSUMED_TTL_MS;
    binder_audit(&w->binder);
    assert_int_equal(free_core(w, "n", 0), 100);
}

static void test_invented_pods_are_forgotten(void **state) {
    struct world *w = *state;
    char uid[16];
    show_node(w, "n", 1);
    show_pod(w, "real", WHOLE, NULL, "");
    for (int i = 0; i < 100; i++) {
        snprintf(uid, sizeof(uid), "invented-%d", i);
        (void) filter(w, uid, TENTH, "\"n\"");
    }
    for (int i = 0; i < 14; i++) {
        w->now += ASSUMED_TTL_MS;
        binder_audit(&w->binder);
    }
    assert_int_equal(HASH_COUNT(w->state->pods), 1);
    assert_non_null(state_pod_find(w->state, "real"));
    assert_int_equal(free_core(w, "n", 0), 100);
}

static void test_prioritize_assumes_the_best(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf notes = BUF_INIT(0);
    show_node(w, "n1", 1);
    show_node(w, "n2", 1);
    run_pod(w, "a", HALF, "n2", &notes);
    assert_string_equal(filter(w, "b", HALF, "\"n1\",\"n2\""), "n1,n2");
    assert_int_equal(state_pod_find(w->state, "b")->stage, POD_PENDING);
    struct json scores = ask_nodes(w, true, "b", HALF, "\"n1\",\"n2\"");
    struct json_iter it = json_iter(scores);
    struct json first, second;
    int64_t s1, s2;
    assert_true(json_next(&it, NULL, &first) && json_next(&it, NULL, &second));
    assert_string_equal(json_string(json_get(first, "Host")), "n1");
    assert_true(json_i64(json_get(first, "Score"), &s1));
    assert_true(json_i64(json_get(second, "Score"), &s2));
    assert_true(s2 > s1); /* the half-used card is filled first */
    assert_string_equal(state_pod_find(w->state, "b")->node->name, "n2");
    assert_int_equal(free_core(w, "n2", 0), 0);
    /* A third one must not be sent to the same half. */
    assert_string_equal(filter(w, "c", HALF, "\"n1\",\"n2\""), "n1");
    /* kube-scheduler chooses otherwise: the bind counts. */
    bind_pod(w, "b", "n1");
    assert_string_equal(w->asked[0].path, "/api/v1/namespaces/d/pods/pod-b/binding?timeout=2s");
    assert_int_equal(free_core(w, "n2", 0), 50);
    respond(w, 0, 201, false, NULL);
    assert_string_equal(w->bind_answer, "");
}

/* The wait of a pod is counted once, when it is bound; and why it waits is the last answer. */
static void test_waits_are_counted(void **state) {
    struct world *w = *state;
    uint64_t observed = 0;
    show_node(w, "n", 1);
    show_pod(w, "a", WHOLE, NULL, "");
    show_pod(w, "b", WHOLE, NULL, "");
    state_pod_find(w->state, "a")->created = (int64_t) time(NULL) - 100;
    assert_null(state_pod_find(w->state, "a")->requeue.reason);
    assert_string_equal(filter(w, "a", WHOLE, "\"n\""), "n");
    assert_string_equal(state_pod_find(w->state, "a")->requeue.reason, "other");
    state_pod_find(w->state, "a")->created = (int64_t) time(NULL) - 100;
    bind_pod(w, "a", "n");
    respond(w, 0, 201, false, NULL);
    bind_pod(w, "a", "n"); /* kube-scheduler did not hear it */
    assert_string_equal(w->bind_answer, "");
    for (size_t i = 0; i <= PROM_BUCKETS; i++)
        observed += w->binder.waits.buckets[i];
    assert_int_equal(observed, 1);
    assert_in_range(w->binder.waits.sum_ns, UINT64_C(99000000000), UINT64_C(300000000000));
    (void) filter(w, "b", WHOLE, "\"n\"");
    assert_string_equal(state_pod_find(w->state, "b")->requeue.reason, "no-room");
    (void) filter(w, "c", "\"elasticgpu.io/gpu-core\":\"200\"", "\"n\"");
    assert_string_equal(state_pod_find(w->state, "c")->requeue.reason, "no-gpu");
}

/* Whatever filter answers, and whichever nodes kube-scheduler's own filters have left. */
static void test_why_a_pod_waits(void **state) {
    struct world *w = *state;
    show_node(w, "n", 1);
    for (const char *const *uid = (const char *const[]){"a", "b", "c", NULL}; *uid; uid++)
        show_pod(w, *uid, WHOLE, NULL, "");
    assert_string_equal(filter(w, "a", WHOLE, "\"n\""), "n");
    assert_int_equal(filter(w, "b", WHOLE, "\"n\"")[0], '!'); /* `a` is being bound there */
    assert_string_equal(state_pod_find(w->state, "b")->requeue.reason, "no-room");
    assert_int_equal(filter(w, "c", WHOLE, "\"without\"")[0], '-');
    assert_string_equal(state_pod_find(w->state, "c")->requeue.reason, "other");
    assert_int_equal(filter(w, "d", "\"elasticgpu.io/gpu-core\":\"200\"", "\"without\"")[0], '-');
    assert_string_equal(state_pod_find(w->state, "d")->requeue.reason, "no-gpu");
}

static void test_restart(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf a = BUF_INIT(0), b = BUF_INIT(0);
    show_node(w, "n", 1);
    run_pod(w, "a", HALF, "n", &a);
    run_pod(w, "b", TENTH, "n", &b);
    stop(w);
    start(w);
    show_pod(w, "a", HALF, "n", buf_str(&a)); /* pods may come before the cards */
    show_node(w, "n", 1);
    show_pod(w, "b", TENTH, "n", buf_str(&b));
    assert_int_equal(free_core(w, "n", 0), 40);
    /* The same annotations on another pod, on another node, or changed, are invalid. */
    show_pod(w, "c", TENTH, "n", buf_str(&b));
    show_node(w, "m", 1);
    show_pod(w, "d", TENTH, "m", buf_str(&b));
    assert_int_equal(free_core(w, "n", 0), 40);
    assert_int_equal(free_core(w, "m", 0), 100);
    assert_int_equal(w->state->forged, 2);
}

/* The API server is asked for a pod that the state does not know: it is this one. */
static void answer_pod(struct world *w, const char *resources, const char *node) {
    _cleanup_buf_ struct buf pod = BUF_INIT(0);
    assert_int_equal(w->nasked, 1);
    assert_string_equal(w->asked[0].method, "GET");
    assert_string_equal(w->asked[0].path, "/api/v1/namespaces/d/pods/pod-a");
    put_pod(&pod, "a", resources, node, "", "Pending");
    respond(w, 0, 200, false, buf_str(&pod));
}

#define OF_OTHERS "\"example.com/gpu\":\"1\""

/* kube-scheduler hands over each pod that has a managed name, whatever its quantity. */
static void test_pods_that_ask_for_nothing(void **state) {
    struct world *w = *state;
    static const char *const none[] = {"\"nvidia.com/gpu\":\"0\"",
                                       "\"elasticgpu.io/gpu-memory\":\"0\"", OF_OTHERS};
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
        show_pod(w, "a", none[i], NULL, "");
        assert_string_equal(filter(w, "a", none[i], "\"plain\",\"n\""), "plain,n");
        bind_pod(w, "a", "plain");
        answer_pod(w, none[i], NULL);
        assert_string_equal(w->asked[0].path, "/api/v1/namespaces/d/pods/pod-a/binding");
        assert_string_equal(
            buf_str(&w->asked[0].body),
            "{\"apiVersion\":\"v1\",\"kind\":\"Binding\",\"metadata\":{\"name\":\"pod-a\","
            "\"namespace\":\"d\",\"uid\":\"a\",\"annotations\":{}},\"target\":{\"apiVersion\":"
            "\"v1\",\"kind\":\"Node\",\"name\":\"plain\"}}");
        respond(w, 0, 201, false, NULL);
        assert_string_equal(w->bind_answer, "");
    }
}

static void test_failing_to_bind_a_pod_that_asks_for_nothing(void **state) {
    struct world *w = *state;
    bind_pod(w, "a", "plain");
    respond(w, 0, 404, false, NULL);
    assert_string_equal(w->bind_answer, "the pod is gone");
    bind_pod(w, "a", "plain");
    respond(w, 0, 0, false, NULL);
    assert_non_null(strstr(w->bind_answer, "cannot read the pod"));
    bind_pod(w, "a", "plain");
    respond(w, 0, 200, false, "{\"metadata\":{}}");
    assert_non_null(strstr(w->bind_answer, "cannot read the pod"));
    bind_pod(w, "a", "plain"); /* the answer of an earlier bind was lost */
    answer_pod(w, OF_OTHERS, "plain");
    assert_string_equal(w->bind_answer, "");
    bind_pod(w, "a", "plain");
    answer_pod(w, OF_OTHERS, "m");
    assert_string_equal(w->bind_answer, "the pod is bound to another node");
    bind_pod(w, "b", "plain");
    w->asked[0].path[strlen(w->asked[0].path) - 1] = 'a';
    answer_pod(w, OF_OTHERS, NULL);
    assert_non_null(strstr(w->bind_answer, "another one has its name"));
    bind_pod(w, "a", "plain");
    answer_pod(w, OF_OTHERS, NULL);
    respond(w, 0, 409, false, NULL);
    assert_non_null(strstr(w->bind_answer, "cannot bind"));
}

static void test_bind_after_restart(void **state) {
    struct world *w = *state;
    show_node(w, "n", 1);
    show_pod(w, "a", HALF, NULL, "");
    assert_string_equal(filter(w, "a", HALF, "\"n\""), "n");
    stop(w);
    start(w);
    w->ready = false;
    bind_pod(w, "a", "n");
    assert_non_null(strstr(w->bind_answer, "still reading"));
    assert_non_null(strstr(filter(w, "a", HALF, "\"n\""), "still reading"));
    w->ready = true;
    show_node(w, "n", 1);
    bind_pod(w, "a", "n");
    answer_pod(w, HALF, NULL);
    assert_non_null(strstr(w->bind_answer, "not been seen"));
    show_pod(w, "a", HALF, NULL, "");
    bind_pod(w, "a", "n"); /* no assumed allocation is left: placed now */
    assert_int_equal(w->nasked, 1);
    respond(w, 0, 201, false, NULL);
    assert_string_equal(w->bind_answer, "");
}

static void test_duplicate_and_late_events(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf notes = BUF_INIT(0);
    show_node(w, "n", 1);
    run_pod(w, "a", HALF, "n", &notes);
    for (int i = 0; i < 3; i++)
        show_pod(w, "a", HALF, "n", buf_str(&notes));
    show_pod(w, "a", HALF, NULL, ""); /* from before the Binding */
    show_node(w, "n", 1);
    assert_int_equal(free_core(w, "n", 0), 50);
    show_pod(w, "a", HALF, "n", "\"elasticgpu.io/assignment\":\"{}\""); /* tampered with later */
    assert_int_equal(free_core(w, "n", 0), 50);
    state_pod_gone(w->state, "a");
    state_pod_gone(w->state, "a");
    assert_int_equal(free_core(w, "n", 0), 100);
}

static void test_watch_before_answer(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf notes = BUF_INIT(0);
    show_node(w, "n", 1);
    show_pod(w, "a", HALF, NULL, "");
    bind_pod(w, "a", "n");
    annotations_of(w, &w->asked[0], &notes);
    show_pod(w, "a", HALF, "n", buf_str(&notes));
    respond(w, 0, 201, false, NULL);
    assert_string_equal(w->bind_answer, "");
    assert_int_equal(state_pod_find(w->state, "a")->stage, POD_BOUND);
    assert_int_equal(free_core(w, "n", 0), 50);
}

static void test_deleted_while_assumed(void **state) {
    struct world *w = *state;
    show_node(w, "n", 1);
    show_pod(w, "a", HALF, NULL, "");
    assert_string_equal(filter(w, "a", HALF, "\"n\""), "n");
    state_pod_gone(w->state, "a");
    assert_int_equal(free_core(w, "n", 0), 100);
    bind_pod(w, "a", "n");
    respond(w, 0, 404, false, NULL);
    assert_int_equal(w->nasked, 0);
    show_pod(w, "b", HALF, NULL, "");
    bind_pod(w, "b", "n");
    assert_int_equal(free_core(w, "n", 0), 50);
    state_pod_gone(w->state, "b");
    assert_int_equal(free_core(w, "n", 0), 100);
    respond(w, 0, 404, false, NULL);
    assert_true(w->bind_answer[0] != '\0');
    assert_null(state_pod_find(w->state, "b"));
}

static void test_terminating_holds_until_gone(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf notes = BUF_INIT(0), text = BUF_INIT(0);
    show_node(w, "n", 1);
    run_pod(w, "a", WHOLE, "n", &notes);
    put_pod(&text, "a", WHOLE, "n", buf_str(&notes), "Running");
    char *meta = strstr(text.data, "\"name\"");
    _cleanup_buf_ struct buf deleting = BUF_INIT(0);
    buf_append(&deleting, text.data, (size_t) (meta - text.data));
    buf_printf(&deleting, "\"deletionTimestamp\":\"2026-01-01T00:00:00Z\",%s", meta);
    show_text(w, buf_str(&deleting));
    assert_int_equal(free_core(w, "n", 0), 0);
    buf_reset(&text);
    put_pod(&text, "a", WHOLE, "n", buf_str(&notes), "Succeeded");
    show_text(w, buf_str(&text));
    assert_int_equal(free_core(w, "n", 0), 100);
}

static void test_unknown_outcome(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf notes = BUF_INIT(0), pod = BUF_INIT(0), first = BUF_INIT(0);
    show_node(w, "n", 1);
    show_node(w, "m", 1);
    show_pod(w, "a", WHOLE, NULL, "");
    assert_string_equal(filter(w, "a", WHOLE, "\"n\""), "n");
    bind_pod(w, "a", "n");
    annotations_of(w, &w->asked[0], &notes);
    buf_puts(&first, buf_str(&w->asked[0].body));
    buf_done(&w->asked[0].body);
    respond(w, 0, 0, true, NULL); /* time-out */
    assert_string_equal(w->asked[0].method, "GET");
    put_pod(&pod, "a", WHOLE, NULL, "", "Pending");
    respond(w, 0, 200, false, buf_str(&pod));
    assert_true(w->bind_answer[0] != '\0');
    /* It may still be done: kept, no other pod gets it, and the pod can go nowhere else. */
    assert_int_equal(free_core(w, "n", 0), 0);
    assert_int_equal(filter(w, "b", WHOLE, "\"n\"")[0], '!');
    assert_int_equal(filter(w, "a", WHOLE, "\"m\"")[0], '!');
    assert_string_equal(filter(w, "a", WHOLE, "\"m\",\"n\""), "n");
    struct json failed =
        json_get(ask_nodes(w, false, "a", WHOLE, "\"m\",\"n\""), "FailedAndUnresolvableNodes");
    assert_string_equal(uncounted(json_string(json_get(failed, "m"))),
                        "an earlier Binding may still send the pod to another node");
    bind_pod(w, "a", "n"); /* the very same Binding again */
    assert_string_equal(buf_str(&w->asked[0].body), buf_str(&first));
    buf_done(&w->asked[0].body);
    respond(w, 0, 409, false, NULL);
    buf_reset(&pod);
    put_pod(&pod, "a", WHOLE, "n", buf_str(&notes), "Pending");
    respond(w, 0, 200, false, buf_str(&pod)); /* the first one had been carried out */
    assert_string_equal(w->bind_answer, "");
    assert_int_equal(state_pod_find(w->state, "a")->stage, POD_AWAITED);
    show_text(w, buf_str(&pod));
    assert_int_equal(state_pod_find(w->state, "a")->stage, POD_BOUND);
}

/* What is heard of an earlier attempt takes nothing from the one that is under way. */
static void test_two_attempts_at_once(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf pod = BUF_INIT(0);
    put_pod(&pod, "a", WHOLE, NULL, "", "Pending");
    show_node(w, "n", 1);
    show_pod(w, "a", WHOLE, NULL, "");
    bind_pod(w, "a", "n");
    respond(w, 0, 409, false, NULL); /* and is asked about */
    bind_pod(w, "a", "n");
    assert_int_equal(w->nasked, 2);
    respond(w, 0, 200, false, buf_str(&pod));
    assert_int_equal(free_core(w, "n", 0), 0);
    respond(w, 0, 201, false, NULL);
    assert_string_equal(w->bind_answer, "");
    assert_int_equal(free_core(w, "n", 0), 0);
}

/* The second attempt is heard of before the question about the first one is answered. */
static void test_older_answer_after_success(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf pod = BUF_INIT(0);
    put_pod(&pod, "a", WHOLE, NULL, "", "Pending");
    show_node(w, "n", 1);
    show_pod(w, "a", WHOLE, NULL, "");
    bind_pod(w, "a", "n");
    respond(w, 0, 0, true, NULL); /* and is asked about */
    bind_pod(w, "a", "n");
    respond(w, 1, 201, false, NULL);
    assert_string_equal(w->bind_answer, "");
    respond(w, 0, 200, false, buf_str(&pod)); /* read before the 201 */
    assert_int_equal(free_core(w, "n", 0), 0);
    assert_int_equal(filter(w, "b", WHOLE, "\"n\"")[0], '-');
    /* The audit asks anew, and what it hears counts. */
    w->now += AUDIT_AFTER_MS;
    binder_audit(&w->binder);
    respond(w, 0, 200, false, buf_str(&pod));
    assert_int_equal(free_core(w, "n", 0), 100);
}

/* That the first Binding was refused for certain says nothing about the second one. */
static void test_older_refusal_in_doubt(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf pod = BUF_INIT(0);
    put_pod(&pod, "a", WHOLE, NULL, "", "Pending");
    show_node(w, "n", 1);
    show_pod(w, "a", WHOLE, NULL, "");
    bind_pod(w, "a", "n");
    respond(w, 0, 409, false, NULL);
    bind_pod(w, "a", "n");
    respond(w, 1, 0, true, NULL);
    assert_int_equal(w->nasked, 2);
    for (int i = 0; i < 2; i++) {
        respond(w, 0, 200, false, buf_str(&pod));
        assert_int_equal(state_pod_find(w->state, "a")->stage, POD_IN_DOUBT);
        assert_int_equal(free_core(w, "n", 0), 0);
    }
}

/* A question from before the end of the doubt does not end it, however late its answer comes. */
static void test_doubt_ends_by_a_later_question(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf pod = BUF_INIT(0);
    put_pod(&pod, "a", WHOLE, NULL, "", "Pending");
    show_node(w, "n", 1);
    show_pod(w, "a", WHOLE, NULL, "");
    bind_pod(w, "a", "n");
    respond(w, 0, 0, true, NULL);
    w->now += DOUBT_MAX_MS;
    respond(w, 0, 200, false, buf_str(&pod));
    assert_int_equal(free_core(w, "n", 0), 0);
    binder_audit(&w->binder);
    respond(w, 0, 200, false, buf_str(&pod));
    assert_int_equal(free_core(w, "n", 0), 100);
}

static void test_doubt_ends(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf pod = BUF_INIT(0);
    put_pod(&pod, "a", WHOLE, NULL, "", "Pending");
    show_node(w, "n", 1);
    show_pod(w, "a", WHOLE, NULL, "");
    bind_pod(w, "a", "n");
    respond(w, 0, 500, false, NULL);
    respond(w, 0, 0, false, NULL); /* the question gets no answer either */
    assert_int_equal(w->binds_answered, 1);
    for (int i = 0; i < 20 && state_pod_find(w->state, "a")->stage == POD_IN_DOUBT; i++) {
        assert_int_equal(free_core(w, "n", 0), 0);
        w->now += AUDIT_AFTER_MS;
        binder_audit(&w->binder);
        assert_int_equal(w->nasked, 1);
        respond(w, 0, 200, false, buf_str(&pod));
    }
    assert_int_equal(state_pod_find(w->state, "a")->stage, POD_PENDING);
    assert_int_equal(free_core(w, "n", 0), 100);
    assert_int_equal(w->binds_answered, 1);
}

/* The answer that it is bound comes when it has ended, and its end was before a list. */
static void test_bound_and_gone_before_a_list(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf pod = BUF_INIT(0), notes = BUF_INIT(0);
    show_node(w, "n", 1);
    show_pod(w, "a", WHOLE, NULL, "");
    bind_pod(w, "a", "n");
    annotations_of(w, &w->asked[0], &notes);
    put_pod(&pod, "a", WHOLE, "n", buf_str(&notes), "Pending");
    respond(w, 0, 500, false, NULL);
    state_sync_begin(w->state, STATE_PODS);
    state_sync_end(w->state, STATE_PODS);
    respond(w, 0, 200, false, buf_str(&pod));
    assert_string_equal(w->bind_answer, "");
    assert_int_equal(free_core(w, "n", 0), 0);
    w->now += AUDIT_AFTER_MS;
    binder_audit(&w->binder);
    assert_int_equal(w->nasked, 1);
    respond(w, 0, 404, false, NULL);
    assert_null(state_pod_find(w->state, "a"));
    assert_int_equal(free_core(w, "n", 0), 100);
}

static void test_bound_by_somebody_else(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf pod = BUF_INIT(0);
    show_node(w, "n", 1);
    show_pod(w, "a", WHOLE, NULL, "");
    bind_pod(w, "a", "n");
    respond(w, 0, 409, false, NULL);
    put_pod(&pod, "a", WHOLE, "n", "", "Pending");
    respond(w, 0, 200, false, buf_str(&pod));
    assert_non_null(strstr(w->bind_answer, "another scheduler"));
    assert_int_equal(free_core(w, "n", 0), 100);
}

static void test_refused_binding(void **state) {
    struct world *w = *state;
    show_node(w, "n", 1);
    show_pod(w, "a", WHOLE, NULL, "");
    bind_pod(w, "a", "n");
    respond(w, 0, 403, false, NULL);
    assert_true(w->bind_answer[0] != '\0');
    assert_int_equal(free_core(w, "n", 0), 100);
    bind_pod(w, "a", "n"); /* and again, with nothing left behind */
    respond(w, 0, 201, false, NULL);
    assert_string_equal(w->bind_answer, "");
    bind_pod(w, "a", "n"); /* kube-scheduler did not hear it */
    assert_int_equal(w->nasked, 0);
    assert_string_equal(w->bind_answer, "");
}

/* Go's decoder takes keys in any case, and so do we. */
static void test_bind_in_any_case(void **state) {
    struct world *w = *state;
    static const char body[] =
        "{\"podNAME\":\"pod-a\",\"podnamespace\":\"d\",\"PODUID\":\"a\",\"node\":\"n\"}";
    show_node(w, "n", 1);
    show_pod(w, "a", WHOLE, NULL, "");
    binder_bind(&w->binder, body, strlen(body), w);
    assert_int_equal(w->nasked, 1);
    assert_non_null(strstr(buf_str(&w->asked[0].body), "\"name\":\"n\""));
    respond(w, 0, 201, false, NULL);
    assert_string_equal(w->bind_answer, "");
    assert_int_equal(free_core(w, "n", 0), 0);
}

/* The reason is a sentence of its own, which nothing may be glued to. */
static void test_bind_to_a_full_node(void **state) {
    struct world *w = *state;
    show_node(w, "n", 1);
    show_pod(w, "a", WHOLE, NULL, "");
    bind_pod(w, "a", "n");
    respond(w, 0, 201, false, NULL);
    show_pod(w, "b", WHOLE, NULL, "");
    bind_pod(w, "b", "n");
    assert_int_equal(w->nasked, 0);
    assert_non_null(strstr(w->bind_answer, "node n no longer fits: not enough whole GPUs free"));
    assert_null(strstr(w->bind_answer, "any more"));
}

static void test_assumed_card_lost(void **state) {
    struct world *w = *state;
    show_node(w, "n", 2);
    show_pod(w, "a", HALF, NULL, "");
    assert_string_equal(filter(w, "a", HALF, "\"n\""), "n");
    assert_string_equal(state_pod_find(w->state, "a")->allocations[0].device.uuid, "GPU-n-0");
    show_gpu(w, "n", 0, false);
    bind_pod(w, "a", "n");
    assert_string_equal(state_pod_find(w->state, "a")->allocations[0].device.uuid, "GPU-n-1");
    respond(w, 0, 201, false, NULL);
    show_pod(w, "b", HALF, NULL, "");
    assert_string_equal(filter(w, "b", HALF, "\"n\""), "n");
    state_gpu_gone(w->state, "n-00");
    state_gpu_gone(w->state, "n-01");
    bind_pod(w, "b", "n");
    assert_int_equal(w->nasked, 0);
    assert_non_null(strstr(w->bind_answer, "node has no GPU"));
}

static void test_annotations_too_large(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf notes = BUF_INIT(0);
    buf_puts(&notes, "\"x\":\"");
    for (int i = 0; i < 262000; i++)
        buf_putc(&notes, 'x');
    buf_puts(&notes, "\"");
    show_node(w, "n", 1);
    show_pod(w, "a", HALF, NULL, buf_str(&notes));
    bind_pod(w, "a", "n");
    assert_int_equal(w->nasked, 0);
    assert_non_null(strstr(w->bind_answer, "no room for the assignment"));
    assert_int_equal(free_core(w, "n", 0), 100);
}

static void test_malformed_request(void **state) {
    struct world *w = *state;
    const char *bad = "\"elasticgpu.io/gpu-core\":\"150\"";
    show_node(w, "n", 1);
    assert_string_equal(
        filter(w, "a", bad, "\"n\",\"unknown\""),
        "-GPU request is malformed: gpu-core must be below 100 or a multiple of 100");
    assert_non_null(strstr(w->refusal, "GPURequestMalformed: container main: "));
    show_pod(w, "a", bad, NULL, "");
    bind_pod(w, "a", "n");
    assert_non_null(strstr(w->bind_answer, "malformed"));
    assert_string_equal(filter(w, "b",
                               "\"elasticgpu.io/gpu-memory\":\"999Gi\",\"elasticgpu.io/slot\":"
                               "\"1\"",
                               "\"n\""),
                        "-no GPU has that much memory");
    assert_string_equal(filter(w, "c", HALF, "\"unknown\""), "-node has no GPU");
    assert_string_equal(filter(w, "d", "\"cpu\":\"1\"", "\"n\",\"unknown\""), "n,unknown");
}

static void test_hostile_bodies(void **state) {
    struct world *w = *state;
    static const char *const bodies[] = {
        "",
        "{",
        "null",
        "[]",
        "7",
        "\"x\"",
        "{}",
        "{\"NodeNames\":{}}",
        "{\"NodeNames\":[1]}",
        "{\"NodeNames\":[\"a\"]}",
        "{\"NodeNames\":[\"a\"],\"Pod\":[]}",
        "{\"NodeNames\":null,\"Nodes\":{\"items\":[]},\"Pod\":{}}",
        "{\"PodName\":1}",
        "{\"PodName\":\"../x\",\"PodNamespace\":\"d\",\"PodUID\":\"u\",\"Node\":"
        "\"n\"}",
    };
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        _cleanup_buf_ struct buf one = BUF_INIT(0), two = BUF_INIT(0);
        struct json root;
        assert_true(extender_filter(&w->extender, bodies[i], strlen(bodies[i]), 0, &one) < 0);
        assert_true(extender_prioritize(&w->extender, bodies[i], strlen(bodies[i]), 0, &two) < 0);
        assert_int_equal(json_parse(w->parser, one.data, one.len, &root, NULL), 0);
        assert_true(strlen(json_string(json_get(root, "Error"))) > 5);
        binder_bind(&w->binder, bodies[i], strlen(bodies[i]), w);
        assert_int_equal(w->binds_answered, (int) i + 1);
        assert_true(w->bind_answer[0] != '\0');
    }
    _cleanup_buf_ struct buf body = BUF_INIT(0), answer = BUF_INIT(0);
    struct json root, reason;
    const char *name;
    int told = 0;
    buf_puts(&body, "{\"pod\":");
    put_pod(&body, "a", HALF, NULL, "", "Pending");
    buf_puts(&body, ",\"nodenames\":[\"x\"");
    for (int i = 0; i < 4999; i++)
        buf_printf(&body, ",\"node-%d\"", i);
    buf_puts(&body, "]}");
    assert_int_equal(extender_filter(&w->extender, body.data, body.len, 0, &answer), 0);
    assert_int_equal(json_parse(w->parser, answer.data, answer.len, &root, NULL), 0);
    struct json_iter it = json_iter(json_get(root, "NodeNames"));
    assert_false(json_next(&it, NULL, &reason));
    it = json_iter(json_get(root, "FailedNodes"));
    assert_false(json_next(&it, NULL, &reason));
    /* Each once, in the order asked, with its reason. */
    it = json_iter(json_get(root, "FailedAndUnresolvableNodes"));
    for (; json_next(&it, &name, &reason); told++) {
        char expected[32] = "x";
        if (told > 0)
            snprintf(expected, sizeof(expected), "node-%d", told - 1);
        assert_string_equal(name, expected);
        assert_string_equal(json_string(reason), "node(s): node has no GPU");
    }
    assert_int_equal(told, 5000);
}

static void test_relist(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf a = BUF_INIT(0), b = BUF_INIT(0);
    show_node(w, "n", 2);
    run_pod(w, "a", HALF, "n", &a);
    run_pod(w, "b", HALF, "n", &b);
    show_pod(w, "c", HALF, NULL, "");
    bind_pod(w, "c", "n");
    state_sync_begin(w->state, STATE_PODS); /* a list from before c was bound */
    show_pod(w, "a", HALF, "n", buf_str(&a));
    state_sync_end(w->state, STATE_PODS);
    assert_null(state_pod_find(w->state, "b"));
    assert_int_equal(free_core(w, "n", 0) + free_core(w, "n", 1), 100);
    respond(w, 0, 201, false, NULL);
    state_sync_begin(w->state, STATE_GPUS);
    show_gpu(w, "n", 1, true);
    state_sync_end(w->state, STATE_GPUS);
    assert_int_equal(state_node_find(w->state, "n")->ncards, 1);
    state_sync_begin(w->state, STATE_NODES);
    state_sync_end(w->state, STATE_NODES);
    assert_false(state_node_find(w->state, "n")->exists);
    /* c never shows up: the audit asks, and hears that it is gone */
    w->now += AUDIT_AFTER_MS;
    binder_audit(&w->binder);
    respond(w, 0, 404, false, NULL);
    assert_null(state_pod_find(w->state, "c"));
}

static void test_card_listed_twice(void **state) {
    struct world *w = *state;
    struct gpu_object gpu = {
        .name = "zzz-00", .node = "n", .uuid = "GPU-n-0", .memory = 80 * GIB, .healthy = true};
    show_node(w, "n", 1);
    assert_int_equal(state_gpu_seen(w->state, &gpu, NULL), 0); /* the address of the node changed */
    assert_string_equal(filter(w, "a", "\"elasticgpu.io/gpu-core\":\"200\"", "\"n\""),
                        "-not enough whole GPUs free");
    assert_string_equal(filter(w, "a2", WHOLE, "\"n\""), "n");
    state_gpu_gone(w->state, "n-00"); /* the other object takes over, with what is held */
    assert_int_equal(free_core(w, "n", 0), 0);
    show_gpu(w, "n", 0, false); /* and back, unhealthy: that the other one is healthy is nothing */
    bind_pod(w, "a2", "n");
    assert_int_equal(w->nasked, 0);
}

#define MEMORY(gib) "\"elasticgpu.io/gpu-core\":\"1\",\"elasticgpu.io/gpu-memory\":\"" gib "Gi\""

/* A card of 80 GiB with a capacity of 160: a pod whose whole memory is physical takes double of the
 * capacity, and its physical part is in the signed assignment. */
static void test_oversubscribed_card(void **state) {
    struct world *w = *state;
    struct gpu_object gpu = {.name = "n-00",
                             .node = "n",
                             .uuid = "GPU-n-0",
                             .healthy = true,
                             .memory = 80 * GIB,
                             .capacity = 160 * GIB};
    _cleanup_buf_ struct buf a = BUF_INIT(0), b = BUF_INIT(0);
    show_node(w, "n", 0);
    assert_int_equal(state_gpu_seen(w->state, &gpu, NULL), 0);
    run_pod(w, "a", MEMORY("100"), "n", &a);
    assert_non_null(strstr(buf_str(&a), "\\\"physical\\\":53687091200"));
    show_pod(w, "b", MEMORY("30"), NULL, "");
    /* The annotation is set while it waits. */
    w->annotations = "\"elasticgpu.io/memory-scaling\":\"1\"";
    show_pod(w, "b", MEMORY("30"), NULL, w->annotations);
    assert_string_equal(filter(w, "b", MEMORY("30"), "\"n\""), "n");
    w->annotations = NULL;
    bind_pod(w, "b", "n");
    annotations_of(w, &w->asked[0], &b);
    assert_null(strstr(buf_str(&b), "physical"));
    respond(w, 0, 201, false, NULL);
    show_pod(w, "b", MEMORY("30"), "n", buf_str(&b));
    assert_string_equal(filter(w, "c", MEMORY("1"), "\"n\""), "-no GPU has enough free memory");
    state_pod_gone(w->state, "b");
    assert_string_equal(filter(w, "d", MEMORY("60"), "\"n\""), "n");
    /* The node ends oversubscription: allocations stay, and nothing is free. */
    gpu.capacity = 0;
    assert_int_equal(state_gpu_seen(w->state, &gpu, NULL), 0);
    assert_string_equal(filter(w, "c", MEMORY("1"), "\"n\""), "-no GPU has enough free memory");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        T(test_oversubscribed_card),
        T(test_one_pod),
        T(test_twenty_at_once),
        T(test_bind_between_filters),
        T(test_filter_twice_assumes_once),
        T(test_invented_pods_are_forgotten),
        T(test_prioritize_assumes_the_best),
        T(test_waits_are_counted),
        T(test_why_a_pod_waits),
        T(test_restart),
        T(test_pods_that_ask_for_nothing),
        T(test_failing_to_bind_a_pod_that_asks_for_nothing),
        T(test_bind_after_restart),
        T(test_duplicate_and_late_events),
        T(test_watch_before_answer),
        T(test_deleted_while_assumed),
        T(test_terminating_holds_until_gone),
        T(test_unknown_outcome),
        T(test_two_attempts_at_once),
        T(test_older_answer_after_success),
        T(test_older_refusal_in_doubt),
        T(test_doubt_ends_by_a_later_question),
        T(test_doubt_ends),
        T(test_bound_and_gone_before_a_list),
        T(test_bound_by_somebody_else),
        T(test_refused_binding),
        T(test_bind_in_any_case),
        T(test_bind_to_a_full_node),
        T(test_assumed_card_lost),
        T(test_annotations_too_large),
        T(test_malformed_request),
        T(test_hostile_bodies),
        T(test_relist),
        T(test_card_listed_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
