/* SPDX-License-Identifier: Apache-2.0 */

/* Bad days of a cluster that need many pods or objects of the same name. The others are in
 * test-scheduler.c and tests/e2e; docs/operations.md says which is where. */

#include "scheduler-world.h"

#define NODES 125
#define CARDS 8
#define PODS (NODES * CARDS * 10)

struct running {
    char uid[16], node[16];
    struct buf annotations;
};

static void show_running(struct world *w, const struct running *pod) {
    show_pod(w, pod->uid, TENTH, pod->node, buf_str(&pod->annotations));
}

static void check_full(struct world *w) {
    state_refresh_all(w->state);
    for (struct state_node *node = w->state->nodes; node; node = node->hh.next) {
        assert_int_equal(node->ncards, CARDS);
        for (uint32_t i = 0; i < CARDS; i++) {
            assert_int_equal(node->place[i].free.core, 0);
            assert_false(node->cards[i]->overcommitted);
        }
    }
}

/* A new process is shown what the one before had decided, in another order, and knows the same. */
static void test_restart_with_many_pods(void **state) {
    struct world *w = *state;
    struct running *pods = calloc(PODS, sizeof(*pods));
    char node[16];
    assert_non_null(pods);
    for (unsigned n = 0; n < NODES; n++) {
        snprintf(node, sizeof(node), "n%03u", n);
        show_node(w, node, CARDS);
    }
    for (unsigned i = 0; i < PODS; i++) {
        snprintf(pods[i].uid, sizeof(pods[i].uid), "u%05u", i);
        snprintf(pods[i].node, sizeof(pods[i].node), "n%03u", i % NODES);
        run_pod(w, pods[i].uid, TENTH, pods[i].node, &pods[i].annotations);
    }
    check_full(w);
    stop(w);
    start(w);
    for (unsigned i = 0; i < PODS / 2; i++)
        show_running(w, &pods[i * 7 % PODS]); /* before there is a card, and some of them twice */
    for (unsigned n = NODES; n-- > 0;) {
        snprintf(node, sizeof(node), "n%03u", n);
        show_node(w, node, CARDS);
    }
    for (unsigned i = PODS; i-- > 0;)
        show_running(w, &pods[i]);
    assert_int_equal(HASH_COUNT(w->state->pods), PODS);
    assert_int_equal(w->state->forged, 0);
    check_full(w);
    show_pod(w, "late", TENTH, NULL, "");
    assert_int_equal(filter(w, "late", TENTH, "\"n000\",\"n124\"")[0], '-');
    state_pod_gone(w->state, pods[0].uid);
    assert_string_equal(filter(w, "late", TENTH, "\"n000\",\"n124\""), "n000");
    for (unsigned i = 0; i < PODS; i++)
        buf_done(&pods[i].annotations);
    free(pods);
}

static void drop_node(struct world *w, const char *node, unsigned cards) {
    char name[64];
    state_node_gone(w->state, node);
    for (unsigned i = 0; i < cards; i++) {
        snprintf(name, sizeof(name), "%s-%02u", node, i);
        state_gpu_gone(w->state, name);
    }
}

/* The machine came back under its name: what the pods that are still there hold of its cards stays
 * held, until they are gone. */
static void test_node_made_anew(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf a = BUF_INIT(0);
    show_node(w, "n", 1);
    run_pod(w, "a", HALF, "n", &a);
    drop_node(w, "n", 1);
    assert_int_equal(filter(w, "b", HALF, "\"n\"")[0], '-');
    show_node(w, "n", 1);
    assert_int_equal(free_core(w, "n", 0), 50);
    state_pod_gone(w->state, "a");
    assert_int_equal(free_core(w, "n", 0), 100);
}

/* Another machine came under the name: its cards are others, and nothing of them is allocated. */
static void test_other_machine_of_the_same_name(void **state) {
    struct world *w = *state;
    _cleanup_buf_ struct buf a = BUF_INIT(0), b = BUF_INIT(0);
    struct gpu_object gpu = {.index = 0, .memory = 40 * GIB, .healthy = true};
    show_node(w, "n", 1);
    run_pod(w, "a", WHOLE, "n", &a);
    drop_node(w, "n", 1);
    assert_int_equal(state_node_seen(w->state, "n"), 0);
    snprintf(gpu.name, sizeof(gpu.name), "n-00");
    snprintf(gpu.uuid, sizeof(gpu.uuid), "GPU-of-another-machine");
    snprintf(gpu.node, sizeof(gpu.node), "n");
    assert_int_equal(state_gpu_seen(w->state, &gpu, NULL), 0);
    assert_int_equal(free_core(w, "n", 0), 100);
    run_pod(w, "b", WHOLE, "n", &b);
    assert_non_null(strstr(buf_str(&b), "GPU-of-another-machine"));
    state_pod_gone(w->state, "a");
    assert_int_equal(free_core(w, "n", 0), 0);
}

/* An assumed allocation of a machine that went is none of the one that came. */
static void test_node_made_anew_between_filter_and_bind(void **state) {
    struct world *w = *state;
    show_node(w, "n", 2);
    show_pod(w, "a", WHOLE, NULL, "");
    assert_string_equal(filter(w, "a", WHOLE, "\"n\""), "n");
    drop_node(w, "n", 2);
    bind_pod(w, "a", "n");
    assert_int_equal(w->nasked, 0);
    assert_string_not_equal(w->bind_answer, "");
    show_node(w, "n", 1);
    assert_string_equal(filter(w, "a", WHOLE, "\"n\""), "n");
}

/* kube-scheduler may ask about a pod whose end we have seen before it: to answer must not bring the
 * pod back, which nothing would end again. */
static void test_asked_about_after_its_end(void **state) {
    struct world *w = *state;
    char uid[16];
    show_node(w, "n", 1);
    show_node(w, "m", 1);
    show_pod(w, "a", HALF, NULL, "");
    assert_string_equal(filter(w, "a", HALF, "\"n\",\"m\""), "n,m");
    state_pod_ended(w->state, "a");
    state_pod_ended(w->state, "a"); /* it is told of by an answer and by the watch */
    assert_string_equal(filter(w, "a", HALF, "\"n\",\"m\""), "!the pod has ended");
    (void) ask_nodes(w, true, "a", HALF, "\"n\",\"m\"");
    assert_null(state_pod_find(w->state, "a"));
    show_pod(w, "b", HALF, NULL, "");
    show_text(w, "{\"metadata\":{\"name\":\"pod-b\",\"namespace\":\"d\",\"uid\":\"b\"},"
                 "\"spec\":{\"containers\":[{\"name\":\"main\",\"resources\":{\"limits\":{" HALF
                 "}}}]},\"status\":{\"phase\":\"Failed\"}}");
    assert_string_equal(filter(w, "b", HALF, "\"n\""), "!the pod has ended");
    for (unsigned i = 0; i < STATE_ENDED_MAX - 2; i++) {
        snprintf(uid, sizeof(uid), "more%u", i);
        show_pod(w, uid, HALF, NULL, "");
        state_pod_ended(w->state, uid);
    }
    assert_string_equal(filter(w, "a", HALF, "\"n\""), "!the pod has ended");
    assert_string_equal(filter(w, "new", HALF, "\"n\""), "n");
}

#define LONG_MS 120000

/* A long list comes in pages, and time goes on between them. */
static void test_waits_while_a_list_is_read(void **state) {
    struct world *w = *state;
    show_node(w, "n", 1);
    show_pod(w, "a", HALF, NULL, "");
    assert_string_equal(filter(w, "a", HALF, "\"n\""), "n");
    (void) state_expire(w->state, w->now += LONG_MS, ASSUMED_TTL_MS);
    assert_int_equal(state_pod_find(w->state, "a")->stage, POD_PENDING);
    state_sync_begin(w->state, STATE_PODS);
    (void) state_expire(w->state, w->now += 1000, ASSUMED_TTL_MS);
    assert_non_null(state_pod_find(w->state, "a"));
    state_sync_end(w->state, STATE_PODS);
    assert_null(state_pod_find(w->state, "a"));
    /* One whose Binding is in doubt is left to the audit then: nothing else will end it. */
    show_pod(w, "c", HALF, NULL, "");
    assert_string_equal(filter(w, "c", HALF, "\"n\""), "n");
    state_pod_stage(state_pod_find(w->state, "c"), POD_IN_DOUBT, w->now);
    state_sync_begin(w->state, STATE_PODS);
    state_sync_end(w->state, STATE_PODS);
    assert_non_null(state_pod_find(w->state, "c"));
    state_release(w->state, state_pod_find(w->state, "c"));
    (void) state_expire(w->state, w->now += LONG_MS, ASSUMED_TTL_MS);
    assert_null(state_pod_find(w->state, "c"));
    /* One that was never shown is not waited for. */
    assert_string_equal(filter(w, "b", HALF, "\"n\""), "n");
    (void) state_expire(w->state, w->now += LONG_MS, ASSUMED_TTL_MS);
    (void) state_expire(w->state, w->now += LONG_MS, ASSUMED_TTL_MS);
    assert_null(state_pod_find(w->state, "b"));
}

/* The node goes while the Binding is under way: it stays in memory for the pod, and no longer. */
static void test_node_goes_during_a_bind(void **state) {
    static const char unbound[] = "{\"metadata\":{\"name\":\"pod-a\",\"namespace\":\"d\","
                                  "\"uid\":\"a\"},\"spec\":{\"containers\":[]}}";
    struct world *w = *state;
    show_node(w, "n", 1);
    show_pod(w, "a", HALF, NULL, "");
    assert_string_equal(filter(w, "a", HALF, "\"n\""), "n");
    bind_pod(w, "a", "n");
    assert_int_equal(w->nasked, 1);
    drop_node(w, "n", 1);
    respond(w, 0, 500, true, NULL);
    const struct state_pod *a = state_pod_find(w->state, "a");
    assert_true(a->stage == POD_IN_DOUBT && a->node);
    respond(w, 0, 200, false, unbound);
    assert_int_equal(a->stage, POD_IN_DOUBT); /* it can be carried out yet */
    w->now += LONG_MS;
    binder_audit(&w->binder);
    respond(w, 0, 200, false, unbound);
    assert_int_equal(a->stage, POD_PENDING);
    binder_audit(&w->binder);
    assert_null(state_node_find(w->state, "n"));
    show_node(w, "m", 1);
    assert_string_equal(filter(w, "a", HALF, "\"m\""), "m");
}

/* A list from a cache that is behind shows a pod again that was gone: the answer to a Binding of
 * before says nothing about what is known of it since. */
static void test_answer_to_a_bind_of_a_former_life(void **state) {
    static const struct {
        int status;
        bool maybe;
    } answers[] = {{201, false}, {500, true}, {403, false}};
    struct world *w = *state;
    show_node(w, "m", 1);
    show_node(w, "n", 1);
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        show_pod(w, "a", HALF, NULL, "");
        assert_string_equal(filter(w, "a", HALF, "\"n\""), "n");
        bind_pod(w, "a", "n");
        assert_int_equal(w->nasked, 1);
        state_pod_gone(w->state, "a");
        show_pod(w, "a", HALF, NULL, "");
        assert_string_equal(filter(w, "a", HALF, "\"m\""), "m");
        respond(w, 0, answers[i].status, answers[i].maybe, NULL);
        if (w->nasked > 0)
            respond(w, 0, 0, false, NULL); /* nor can the pod be read */
        const struct state_pod *a = state_pod_find(w->state, "a");
        assert_int_equal(a->stage, POD_ASSUMED);
        assert_string_equal(a->node->name, "m");
        assert_int_equal(free_core(w, "m", 0), 50);
        state_pod_gone(w->state, "a");
    }
}

/* A pod that is being bound, is forgotten, and is being bound anew to the same node. */
static const struct state_pod *bind_twice(struct world *w) {
    show_node(w, "n", 1);
    for (int i = 0; i < 2; i++) {
        state_pod_gone(w->state, "a");
        show_pod(w, "a", HALF, NULL, "");
        assert_string_equal(filter(w, "a", HALF, "\"n\""), "n");
        bind_pod(w, "a", "n");
        assert_int_equal(w->nasked, i + 1);
    }
    return state_pod_find(w->state, "a");
}

/* The same where it is being bound anew, to the same node. */
static void test_answer_to_the_former_of_two_binds(void **state) {
    struct world *w = *state;
    const struct state_pod *a = bind_twice(w);
    respond(w, 0, 403, false, NULL);
    assert_int_equal(a->stage, POD_BINDING);
    assert_int_equal(free_core(w, "n", 0), 50);
    respond(w, 0, 201, false, NULL);
    assert_int_equal(a->stage, POD_AWAITED);
}

/* The same where the latter is in doubt: that the API server refused the former for good says
 * nothing about the latter, which can be carried out yet. */
static void test_refusal_of_the_former_of_two_binds(void **state) {
    static const char unbound[] = "{\"metadata\":{\"name\":\"pod-a\",\"namespace\":\"d\","
                                  "\"uid\":\"a\"},\"spec\":{\"containers\":[]}}";
    struct world *w = *state;
    const struct state_pod *a = bind_twice(w);
    respond(w, 1, 500, true, NULL);
    assert_int_equal(a->stage, POD_IN_DOUBT);
    respond(w, 0, 409, false, NULL);
    assert_int_equal(w->nasked, 2);
    respond(w, 1, 200, false, unbound);
    assert_int_equal(a->stage, POD_IN_DOUBT);
    assert_int_equal(free_core(w, "n", 0), 50);
    respond(w, 0, 200, false, unbound);
    assert_int_equal(a->stage, POD_IN_DOUBT);
    w->now += LONG_MS;
    binder_audit(&w->binder);
    respond(w, 0, 200, false, unbound);
    assert_int_equal(a->stage, POD_PENDING);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        T(test_restart_with_many_pods),
        T(test_node_made_anew),
        T(test_other_machine_of_the_same_name),
        T(test_node_made_anew_between_filter_and_bind),
        T(test_asked_about_after_its_end),
        T(test_waits_while_a_list_is_read),
        T(test_node_goes_during_a_bind),
        T(test_answer_to_a_bind_of_a_former_life),
        T(test_answer_to_the_former_of_two_binds),
        T(test_refusal_of_the_former_of_two_binds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
