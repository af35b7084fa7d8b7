/* SPDX-License-Identifier: Apache-2.0 */

/* Gangs of pods with ResourceClaims: all claims of all members are allocated, or none is. */

#include "claim-members-world.h"
#include "scheduler/dra/dra_internal.h"

#define GANG(size) ",'annotations':{'elasticgpu.io/gang':'g','elasticgpu.io/gang-size':'" size "'}"

static void join_gang(struct stage *s, const char *name, const char *claims, const char *amounts,
                      const char *gang) {
    see_share(s->d, claims, amounts);
    show_user(s, name, claims, gang, "," GATED, "");
}

static void run_later(struct stage *s) {
    s->w->now += 1000;
    run(s->d);
    answer_events(s);
}

static size_t written(const struct stage *s) {
    size_t n = 0;
    for (size_t i = 0; i < s->w->nasked; i++)
        n += strstr(s->w->asked[i].path, "/resourceclaims/") != NULL;
    return n;
}

static void test_all_members_get_their_shares(void **state) {
    struct stage *s = *state;
    join_gang(s, "one", "a", CORE("100"), GANG("3"));
    run_later(s);
    assert_int_equal(written(s), 0);
    join_gang(s, "two", "b", CORE("50"), GANG("3"));
    run_later(s);
    assert_int_equal(written(s), 0);
    assert_int_equal(pod_of(s, "one")->stage, POD_PENDING);
    assert_string_equal(pod_of(s, "one")->requeue.reason, "gang"); /* in the metrics */
    join_gang(s, "three", "c", CORE("50"), GANG("3"));
    run_later(s);
    assert_int_equal(written(s), 3);
    assert_int_equal(free_of(s->d, "n", 0).core + free_of(s->d, "n", 1).core, 0);
    answer_claim(s->d, "a", "", 2, "delete-protection");
    answer_claim(s->d, "a", "/status", 3, "allocationTimestamp");
    open_gate(s->d, "one");
}

static void test_a_gang_that_does_not_fit_takes_nothing(void **state) {
    struct stage *s = *state;
    run_user(s, "other", RESULT("gpu-0", "40", "32Gi"), 0, "");
    join_gang(s, "one", "a", CORE("100"), GANG("3"));
    join_gang(s, "two", "b", CORE("50"), GANG("3"));
    join_gang(s, "three", "c", CORE("50"), GANG("3"));
    for (int i = 0; i < 4; i++)
        run_later(s);
    assert_int_equal(written(s), 0);
    assert_int_equal(free_of(s->d, "n", 0).core, 60);
    assert_int_equal(free_of(s->d, "n", 1).core, 100);
    /* Others use the room meanwhile. */
    see_share(s->d, "d", CORE("60"));
    wait_for(s, "single", "d", 0, "");
    allocate(s->d, "d", "gpu-0");
    see_gone(s->d, DRA_CLAIMS,
             "{'metadata':{'name':'d','namespace':'d','uid':'u-d','resourceVersion':'9'},"
             "'spec':{'devices':{}}}");
    see_gone(s->d, DRA_CLAIMS,
             "{'metadata':{'name':'other','namespace':'d','uid':'u-other','resourceVersion':'10'},"
             "'spec':{'devices':{}}}");
    run_later(s);
    assert_int_equal(written(s), 3);
}

/* kube-scheduler asks about the one, and the one with claims is placed with it. */
static void test_members_of_both_ways(void **state) {
    struct stage *s = *state;
    const char *note = "\"elasticgpu.io/gang\":\"g\",\"elasticgpu.io/gang-size\":\"2\"";
    const char *half = "\"elasticgpu.io/gpu-core\":\"60\"";
    join_gang(s, "one", "a", CORE("100"), GANG("2"));
    run_later(s);
    assert_int_equal(written(s), 0);
    show_pod(s->w, "named", half, NULL, note);
    s->w->annotations = note;
    run_later(s);
    assert_int_equal(written(s), 1);
    assert_int_equal(state_pod_find(s->w->state, "named")->stage, POD_ASSUMED);
    const struct json answer = ask_nodes(s->w, false, "named", half, "\"n\"");
    assert_int_equal(json_size(json_get(answer, "NodeNames")), 1);
}

/* The first to be placed is the one with a resource name: it gives back what it was to have. */
static void test_a_gang_of_both_ways_that_does_not_fit(void **state) {
    struct stage *s = *state;
    const char *note = "\"elasticgpu.io/gang\":\"g\",\"elasticgpu.io/gang-size\":\"3\"";
    show_pod(s->w, "named", "\"elasticgpu.io/gpu-core\":\"100\"", NULL, note);
    join_gang(s, "one", "a", CORE("60"), GANG("3"));
    join_gang(s, "two", "b", CORE("60"), GANG("3"));
    for (int i = 0; i < 3; i++)
        run_later(s);
    assert_int_equal(written(s), 0);
    assert_int_equal(state_pod_find(s->w->state, "named")->stage, POD_PENDING);
    assert_int_equal(free_of(s->d, "n", 0).core + free_of(s->d, "n", 1).core, 200);
}

/* A member whose claim is not there yet has not arrived. */
static void test_a_claim_that_is_not_there(void **state) {
    struct stage *s = *state;
    join_gang(s, "one", "a", CORE("50"), GANG("2"));
    show_user(s, "two", "b", GANG("2"), "," GATED, "");
    run_later(s);
    assert_int_equal(written(s), 0);
    see_share(s->d, "b", CORE("50"));
    run_later(s);
    assert_int_equal(written(s), 2);
}

/* Two members use one claim: it is taken back once. */
static void test_members_that_share_a_claim(void **state) {
    struct stage *s = *state;
    join_gang(s, "one", "a", CORE("60"), GANG("3"));
    show_user(s, "two", "a", GANG("3"), "," GATED, "");
    join_gang(s, "big", "c", "'count':2", GANG("3"));
    run_later(s);
    assert_int_equal(written(s), 0);
    assert_int_equal(free_of(s->d, "n", 0).core + free_of(s->d, "n", 1).core, 200);
    see_gone(s->d, DRA_PODS, "{'metadata':{'name':'big','namespace':'d','uid':'p-big'}}");
    state_pod_ended(s->w->state, "p-big");
    join_gang(s, "small", "e", CORE("60"), GANG("3"));
    run_later(s);
    assert_int_equal(written(s), 2);
}

/* The oldest one is searched for first, and its gate has another one, first by name, plan the claim
 * of both. */
static void test_a_claim_that_another_member_plans_meanwhile(void **state) {
    struct stage *s = *state;
    see_share(s->d, "x", CORE("60"));
    show_user(s, "p", "x", ",'creationTimestamp':'2026-01-01T00:00:00Z'" GANG("2"), "," GATED, "");
    show_user(s, "a", "x", ",'creationTimestamp':'2026-01-02T00:00:00Z'" GANG("2"), "," GATED, "");
    show_user(s, "b", "x", ",'creationTimestamp':'2026-01-02T00:00:00Z'" GANG("2"), "," GATED, "");
    run_later(s);
    assert_int_equal(written(s), 1);
    assert_string_equal(dra_claim_find(&s->d->dra, "d", "x")->plan->pod_name, "a");
    assert_int_equal(free_of(s->d, "n", 0).core + free_of(s->d, "n", 1).core, 140);
    assert_int_equal(pod_of(s, "p")->stage, POD_ASSUMED);
}

static int fail_request(void *context, const char *method, const char *path,
                        const char *content_type, const char *body, size_t size,
                        unsigned timeout_ms, kube_response_cb on_response, void *userdata,
                        struct err *err) {
    (void) context, (void) method, (void) path, (void) content_type, (void) body, (void) size;
    (void) timeout_ms, (void) on_response, (void) userdata;
    return err_set(err, ENOBUFS, "not now");
}

/* What was planned is not written yet when a member ends, and is planned anew, elsewhere, while the
 * gate of another pod of the claim is asked. */
static void test_a_claim_that_moves_meanwhile(void **state) {
    struct stage *s = *state;
    const struct api api = s->d->dra.api;
    see_share(s->d, "x", CORE("60"));
    show_user(s, "a", "x", GANG("2"), "," GATED, "");
    show_user(s, "b", "x", GANG("2"), "," GATED, "");
    s->d->dra.api.request = fail_request;
    run_later(s);
    const struct dra_claim *x = dra_claim_find(&s->d->dra, "d", "x");
    assert_string_equal(x->plan->node, "n");
    s->d->dra.api = api;
    state_pod_ended(s->w->state, "p-b");
    see_gone(s->d, DRA_PODS, "{'metadata':{'name':'b','namespace':'d','uid':'p-b'}}");
    see_node(s->d, "n", "'unschedulable':true");
    add_node(s->d, "m", 2);
    see_share(s->d, "y", CORE("5"));
    show_user(s, "p", "x,y", GANG("2"), "," GATED ",'priority':9", "");
    join_gang(s, "c", "z", CORE("50"), GANG("2"));
    run_later(s);
    assert_string_equal(x->plan->node, "m");
    assert_string_equal(dra_claim_find(&s->d->dra, "d", "y")->plan->node, "m");
    assert_int_equal(pod_of(s, "p")->stage, POD_ASSUMED);
}

/* What members want is read once, and not at each run. */
static void test_selectors_of_members_are_read_once(void **state) {
    struct stage *s = *state;
    join_gang(s, "one", "a", "'selectors':[{'cel':{'expression':'true'}}]", GANG("2"));
    run_later(s);
    uint64_t spent = s->d->dra.spent;
    assert_true(spent > 0);
    for (int i = 0; i < 3; i++)
        run(s->d);
    assert_int_equal(s->d->dra.spent, spent);
    join_gang(s, "two", "b", CORE("10"), GANG("2"));
    run_later(s);
    assert_int_equal(written(s), 2);
}

/* About a million steps on each card. */
static void put_costly_selector(struct buf *out) {
    buf_puts(out, CORE("1") ",'selectors':[{'cel':{'expression':'cel.bind(l,[1");
    for (int i = 0; i < 1500; i++)
        buf_puts(out, ",1");
    buf_puts(out, "],true");
    for (int i = 0; i < 600; i++)
        buf_puts(out, "&&!(2 in l)");
    buf_puts(out, ")'}}]");
}

static void test_a_gang_with_costly_selectors(void **state) {
    struct stage *s = *state;
    _cleanup_buf_ struct buf amounts = BUF_INIT(1 << 16);
    put_costly_selector(&amounts);
    for (int i = 0; i < 40; i++) {
        char name[8];
        (void) snprintf(name, sizeof(name), "m%d", i);
        join_gang(s, name, name, buf_str(&amounts), GANG("40"));
    }
    run_later(s);
    assert_int_equal(written(s), 0);
    assert_in_range(s->d->dra.spent, 100000000, 130000000);
    assert_string_equal(dra_why(&s->d->dra, "d", "m0"),
                        "gang g: the selectors of its claims cost too much together: shorten them");
    /* Other gangs wait for what it took. */
    assert_true(s->gangs.placed > 1000);
}

static char told[512];
static unsigned tellings;

static void on_told(struct state_pod *pod, const char *reason, uint64_t key, const char *message,
                    void *userdata) {
    (void) pod, (void) key, (void) userdata;
    (void) snprintf(told, sizeof(told), "%s: %s", reason, message);
    tellings++;
}

/* What has been allocated is not taken back: kube-scheduler may be about to bind the pods. */
static void test_the_timeout_leaves_what_is_allocated(void **state) {
    struct stage *s = *state;
    s->gangs.refuse = on_told;
    join_gang(s, "one", "a", CORE("100"), GANG("2"));
    join_gang(s, "two", "b", CORE("100"), GANG("2"));
    run_later(s);
    for (int i = 0; i < 2; i++) {
        answer_claim(s->d, i ? "b" : "a", "", 2, "delete-protection");
        answer_claim(s->d, i ? "b" : "a", "/status", 3, "allocationTimestamp");
    }
    gangs_tick(&s->gangs, s->w->now += 60000);
    assert_string_equal(told, "GPUGangTimeout: gang g: 0 of 2 pods were bound within 60 s; 2 keep "
                              "their allocated ResourceClaims until they are deleted; the shares "
                              "of the others are given back, and it tries again in 1 s");
    assert_int_equal(tellings, 2);
    run_later(s);
    assert_int_equal(pod_of(s, "one")->stage, POD_ASSUMED);
    assert_int_equal(free_of(s->d, "n", 0).core + free_of(s->d, "n", 1).core, 0);
}

/* After the end of a process in between, the others go on waiting for the rest. */
static void test_a_gate_stays_until_all_have_a_place(void **state) {
    struct stage *s = *state;
    see_claim(s->d, "a", 9, true, SHARE, ALLOCATED("n", RESULT("gpu-0", "30", "24Gi"), "one"));
    show_user(s, "one", "a", GANG("2"), "," GATED, "");
    run_user(s, "other", RESULT("gpu-1", "100", "80Gi"), 0, "");
    join_gang(s, "two", "b", CORE("100"), GANG("2"));
    for (int i = 0; i < 3; i++)
        run_later(s);
    assert_false(is_asked(s->d, "/pods/one"));
    see_gone(s->d, DRA_CLAIMS,
             "{'metadata':{'name':'other','namespace':'d','uid':'u-other','resourceVersion':'10'},"
             "'spec':{'devices':{}}}");
    run_later(s);
    assert_int_equal(written(s), 1);
    run_later(s);
    assert_true(is_asked(s->d, "/pods/one"));
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_stage, clear_stage)
    const struct CMUnitTest tests[] = {
        TEST(test_all_members_get_their_shares),
        TEST(test_a_gang_that_does_not_fit_takes_nothing),
        TEST(test_members_of_both_ways),
        TEST(test_a_gang_of_both_ways_that_does_not_fit),
        TEST(test_a_claim_that_is_not_there),
        TEST(test_members_that_share_a_claim),
        TEST(test_a_claim_that_another_member_plans_meanwhile),
        TEST(test_a_claim_that_moves_meanwhile),
        TEST(test_selectors_of_members_are_read_once),
        TEST(test_a_gang_with_costly_selectors),
        TEST(test_the_timeout_leaves_what_is_allocated),
        TEST(test_a_gate_stays_until_all_have_a_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
