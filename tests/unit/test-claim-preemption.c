/* SPDX-License-Identifier: Apache-2.0 */

/* Preemption for pods with ResourceClaims, and of them. */

#include "claim-members-world.h"

#define WHOLE_CARD(card) RESULT(card, "100", "80Gi")
#define EVICTION(pod) "/api/v1/namespaces/d/pods/" pod "/eviction"

/* Both cards of the node are taken by pods of priority 0. */
static void fill(struct stage *s) {
    run_user(s, "a", WHOLE_CARD("gpu-0"), 0, "'app':'a'");
    run_user(s, "b", WHOLE_CARD("gpu-1"), 1, "'app':'b'");
}

/* The pod is searched a place for, and found to have none; the time for others passes. */
static void refuse(struct stage *s) {
    run(s->d);
    run_evictor(s);
}

static void expect_nomination(struct stage *s, const char *pod) {
    char path[128];
    (void) snprintf(path, sizeof(path), "/api/v1/namespaces/d/pods/%s/status", pod);
    expect(s, path, "\"nominatedNodeName\":\"n\"", 200);
}

static void end_pod(struct stage *s, const char *name) {
    char uid[64];
    (void) snprintf(uid, sizeof(uid), "p-%s", name);
    see_gone(s->d, DRA_PODS, "{'metadata':{'name':'%s','namespace':'d','uid':'%s'}}", name, uid);
    state_pod_ended(s->w->state, uid);
    see_gone(s->d, DRA_CLAIMS,
             "{'metadata':{'name':'%s','namespace':'d','uid':'u-%s','resourceVersion':'99'},"
             "'spec':{'devices':{}}}",
             name, name);
}

static void test_room_is_made(void **state) {
    struct stage *s = *state;
    fill(s);
    see_share(s->d, "c", CORE("30"));
    wait_for(s, "high", "c", 10, "");
    refuse(s);
    expect_nomination(s, "high");
    run_evictor(s);
    expect(s, EVICTION("a"), "\"uid\":\"p-a\"", 201);
    expect(s, "/api/v1/namespaces/d/pods/a/status", "PreemptionByScheduler", 200);
    run(s->d);
    run_evictor(s);
    expect_nothing(s); /* it ends in its time */
    end_pod(s, "a");
    /* What becomes free is for that pod: none of lower priority gets it. */
    see_share(s->d, "e", CORE("90"));
    wait_for(s, "late", "e", 5, "");
    allocate(s->d, "c", "gpu-0");
    assert_int_equal(pod_of(s, "high")->stage, POD_ASSUMED);
    run_evictor(s);
    assert_int_equal(evictor_waiting(&s->e), 1); /* the late one waits for pods below its own */
    assert_int_equal(free_of(s->d, "n", 0).core, 70);
}

/* Pods of both ways are victims of both. */
static void test_a_pod_with_resource_names_goes(void **state) {
    struct stage *s = *state;
    struct state_pod *named;
    run_user(s, "b", WHOLE_CARD("gpu-1"), 9, "");
    show_pod(s->w, "one", "\"elasticgpu.io/gpu-core\":\"100\"", NULL, "");
    named = state_pod_find(s->w->state, "one");
    struct place_result result;
    state_plan(s->w->state, named, &s->d->dra.request, &s->d->dra.plan);
    assert_int_equal(state_place(s->w->state, &s->d->dra.plan, state_node_find(s->w->state, "n"),
                                 named, false, &result),
                     PLACE_OK);
    assert_int_equal(state_allocate(s->w->state, named, state_node_find(s->w->state, "n"), &result,
                                    POD_BOUND, s->w->now),
                     0);
    see_share(s->d, "c", CORE("30"));
    wait_for(s, "high", "c", 10, "");
    refuse(s);
    expect_nomination(s, "high");
    run_evictor(s);
    expect(s, EVICTION("pod-one"), "\"uid\":\"one\"", 201);
}

static void test_a_pod_with_resource_names_evicts_claims(void **state) {
    struct stage *s = *state;
    fill(s);
    show_text(s->w, "{\"metadata\":{\"name\":\"high\",\"namespace\":\"d\",\"uid\":\"h\"},\"spec\":{"
                    "\"priority\":10,\"containers\":[{\"name\":\"main\",\"resources\":{\"limits\":{"
                    "\"elasticgpu.io/gpu-core\":\"30\"}}}]}}");
    struct state_pod *pod = state_pod_find(s->w->state, "h");
    struct state_node *node = state_node_find(s->w->state, "n");
    uint32_t tests = PREEMPT_TESTS;
    state_plan(s->w->state, pod, &s->p->request, &s->p->plan);
    const struct evict_plan plan = preempt_on_node(s->p, pod, node, s->w->now, &tests);
    assert_ptr_equal(plan.node, node);
    assert_int_equal(plan.nvictims, 1);
    assert_string_equal(plan.victims[0]->name, "a");
}

static void test_nobody_goes(void **state, int priority, const char *spec, const char *devices) {
    struct stage *s = *state;
    fill(s);
    see_claim(s->d, "c", 1, false, devices, "");
    wait_for(s, "high", "c", priority, spec);
    for (int i = 0; i < 3; i++)
        refuse(s);
    expect_nothing(s);
}

static void test_no_room_for_equals(void **state) {
    test_nobody_goes(state, 0, "", SHARE);
}

static void test_who_never_preempts(void **state) {
    test_nobody_goes(state, 10, ",'preemptionPolicy':'Never'", SHARE);
}

/* Nor for what no card has, even if it is empty. */
static void test_a_claim_that_cannot_be_satisfied(void **state) {
    test_nobody_goes(state, 10, "", "'requests':[" REQUEST("gpu", BOTH("10", "81Gi")) "]");
}

static void test_a_constraint_that_the_victims_would_not_meet(void **state) {
    test_nobody_goes(
        state, 10, "",
        "'requests':[" REQUEST("gpu", CORE("60")) "," REQUEST(
            "more", CORE("60")) "],"
                                "'constraints':[{'matchAttribute':'gpu.elasticgpu.io/uuid'}]");
}

/* A node that the pod does not tolerate would be emptied in vain. */
static void test_a_node_that_cannot_take_the_pod(void **state) {
    struct stage *s = *state;
    see_node(s->d, "n", "'unschedulable':true");
    test_nobody_goes(state, 10, "", SHARE);
}

/* They go together or not at all. */
static void test_pods_that_share_a_claim(void **state) {
    struct stage *s = *state;
    fill(s);
    see_claim(s->d, "a", 10, true, SHARE,
              "'allocation':{'devices':{'results':[" WHOLE_CARD(
                  "gpu-0") "]},'nodeSelector':{'nodeSelectorTerms':[{'matchFields':[{'key':"
                           "'metadata.name','operator':'In','values':['n']}]}]}},'reservedFor':["
                           "{'resource':'pods','name':'a','uid':'p-a'},"
                           "{'resource':'pods','name':'z','uid':'p-z'}]");
    show_user(s, "z", "a", "", ",'priority':7,'nodeName':'n'", "");
    see_share(s->d, "c", CORE("30"));
    wait_for(s, "high", "c", 10, "");
    refuse(s);
    expect_nomination(s, "high");
    run_evictor(s);
    expect(s, EVICTION("b"), "", 429); /* one of priority 1 is less than one of 7 and one of 0 */
    run_evictor(s);
    run(s->d);
    run_evictor(s);
    answer_events(s);
    assert_int_equal(s->w->nasked, 2);
    assert_string_equal(s->w->asked[0].path, EVICTION("z"));
    assert_string_equal(s->w->asked[1].path, EVICTION("a"));
    respond(s->w, 0, 201, false, NULL);
    respond(s->w, 0, 201, false, NULL);
    assert_true(pod_of(s, "a")->deleting && pod_of(s, "z")->deleting);
}

/* The claim is not free before its last pod has ended, and one of them may not go. */
static void test_a_claim_shared_with_an_important_pod(void **state) {
    struct stage *s = *state;
    run_user(s, "b", WHOLE_CARD("gpu-1"), 10, "");
    see_claim(s->d, "a", 10, true, SHARE,
              "'allocation':{'devices':{'results':[" WHOLE_CARD(
                  "gpu-0") "]},'nodeSelector':{'nodeSelectorTerms':[{'matchFields':[{'key':"
                           "'metadata.name','operator':'In','values':['n']}]}]}},'reservedFor':["
                           "{'resource':'pods','name':'a','uid':'p-a'},"
                           "{'resource':'pods','name':'z','uid':'p-z'}]");
    show_user(s, "a", "a", "", ",'priority':0,'nodeName':'n'", "");
    show_user(s, "z", "a", "", ",'priority':10,'nodeName':'n'", "");
    see_share(s->d, "c", CORE("30"));
    wait_for(s, "high", "c", 10, "");
    for (int i = 0; i < 3; i++)
        refuse(s);
    expect_nothing(s);
}

/* Pods that share many claims go together, and what it takes to find that counts as work. */
static void test_pods_that_share_many_claims(void **state) {
    _cleanup_buf_ struct buf claims = BUF_INIT(1 << 16);
    struct stage *s = *state;
    char name[8];
    for (unsigned i = 0; i < 32; i++) {
        _cleanup_buf_ struct buf status = BUF_INIT(1 << 16);
        (void) snprintf(name, sizeof(name), "k%u", i);
        buf_printf(&claims, "%s%s", i ? "," : "", name);
        buf_printf(&status, ALLOCATED("n", RESULT("gpu-%u", "1", "1Gi"), "u0"), i % 2);
        status.len--; /* of the list of users */
        for (unsigned pod = 1; pod < 16; pod++)
            buf_printf(&status, ",{'resource':'pods','name':'u%u','uid':'p-u%u'}", pod, pod);
        buf_puts(&status, "]");
        see_claim(s->d, name, 9, true, SHARE, buf_str(&status));
    }
    for (unsigned pod = 0; pod < 16; pod++) {
        (void) snprintf(name, sizeof(name), "u%u", pod);
        show_user(s, name, buf_str(&claims), "", ",'priority':0,'nodeName':'n'", "");
    }
    show_pod(s->w, "high", "\"elasticgpu.io/gpu-core\":\"100\"", NULL, "");
    struct state_pod *pod = state_pod_find(s->w->state, "high");
    struct state_node *node = state_node_find(s->w->state, "n");
    uint32_t tests = PREEMPT_TESTS;
    pod->priority = 10;
    state_plan(s->w->state, pod, &s->p->request, &s->p->plan);
    const struct evict_plan plan = preempt_on_node(s->p, pod, node, s->w->now, &tests);
    assert_ptr_equal(plan.node, node);
    assert_int_equal(plan.nvictims, 16);
    assert_in_range(PREEMPT_TESTS - tests, (32 * 16 + 32 * 2) / 64, 100);
}

static void test_a_disruption_budget(void **state) {
    struct stage *s = *state;
    fill(s);
    show_budget(s->w, s->p, "app", "a", 0);
    see_share(s->d, "c", CORE("30"));
    wait_for(s, "high", "c", 10, "");
    refuse(s);
    expect_nomination(s, "high");
    run_evictor(s);
    expect(s, EVICTION("b"), "\"uid\":\"p-b\"", 201);
}

/* A quota would keep the pod from the room that is made. */
static void test_a_pod_that_a_quota_holds(void **state) {
    struct stage *s = *state;
    struct quota_object quota = {.namespace = "d", .name = "q"};
    quota.counted[QUOTA_CORE] = true;
    quota.max[QUOTA_CORE] = 220;
    assert_int_equal(quotas_seen(&s->quotas, QUOTA_OF_OURS, &quota), 0);
    test_nobody_goes(state, 10, "", SHARE);
}

/* The nodes may have changed since they were offered: they are looked at again first. */
static void test_an_old_offer(void **state) {
    struct stage *s = *state;
    fill(s);
    see_share(s->d, "c", CORE("30"));
    wait_for(s, "high", "c", 10, "");
    run(s->d);
    s->w->now += 60000;
    run_evictor(s);
    expect_nothing(s);
    assert_int_equal(s->asked, 1);
    refuse(s);
    s->w->now += 5000;
    run_evictor(s);
    answer_events(s);
    assert_int_equal(s->w->nasked, 1);
}

/* The next process finds the nomination, and evicts no second pod. */
static void test_another_process_goes_on(void **state) {
    struct stage *s = *state;
    fill(s);
    see_share(s->d, "c", CORE("30"));
    show_user(s, "a", "a", ",'deletionTimestamp':'2026-01-01T00:00:00Z'",
              ",'priority':0,'nodeName':'n'", "");
    show_user(s, "high", "c", "", "," GATED ",'priority':10", ",'nominatedNodeName':'n'");
    for (int i = 0; i < 3; i++)
        refuse(s);
    expect_nothing(s);
    end_pod(s, "a");
    allocate(s->d, "c", "gpu-0");
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_stage, clear_stage)
    const struct CMUnitTest tests[] = {
        TEST(test_room_is_made),
        TEST(test_a_pod_with_resource_names_goes),
        TEST(test_a_pod_with_resource_names_evicts_claims),
        TEST(test_no_room_for_equals),
        TEST(test_who_never_preempts),
        TEST(test_a_claim_that_cannot_be_satisfied),
        TEST(test_a_constraint_that_the_victims_would_not_meet),
        TEST(test_a_node_that_cannot_take_the_pod),
        TEST(test_pods_that_share_a_claim),
        TEST(test_a_claim_shared_with_an_important_pod),
        TEST(test_pods_that_share_many_claims),
        TEST(test_a_disruption_budget),
        TEST(test_a_pod_that_a_quota_holds),
        TEST(test_an_old_offer),
        TEST(test_another_process_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
