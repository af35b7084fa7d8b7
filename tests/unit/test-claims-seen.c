/* SPDX-License-Identifier: Apache-2.0 */

/* What GPU.status says of shares by ResourceClaims. The test is the watches and the API server. */

#include "claim-allocation-world.h"

static const char *status_of(struct dra_world *d, uint32_t card) {
    static char text[4096];
    _cleanup_buf_ struct buf out = BUF_INIT(sizeof(text) - 1);
    struct state_node *node = state_node_find(d->w->state, "n");
    assert_non_null(node);
    gpu_status_text(d->w->state, node->cards[card], &out);
    (void) snprintf(text, sizeof(text), "%s", buf_str(&out));
    return text;
}

static void expect_status(struct dra_world *d, uint32_t card, const char *part) {
    const char *text = status_of(d, card);
    if (!strstr(text, part))
        fail_msg("%s: %s", part, text);
}

/* Two containers of it use the claim. */
static void see_user(struct dra_world *d, const char *pod, const char *claim) {
    see(d, DRA_PODS,
        "{'metadata':{'name':'%s','namespace':'d','uid':'p-%s'},'spec':{'nodeName':'n',"
        "'resourceClaims':[{'name':'gpu','resourceClaimName':'%s'}],"
        "'initContainers':[{'name':'side','resources':{'claims':[{'name':'gpu'}]}}],"
        "'containers':[{'name':'none'},{'name':'main','resources':{'claims':[{'name':'gpu'}]}}]}}",
        pod, pod, claim);
}

#define USERS(users)                                                                               \
    "'allocation':{'devices':{'results':[" RESULT(                                                 \
        "gpu-0", "30",                                                                             \
        "24Gi") "]},'nodeSelector':{'nodeSelectorTerms':[{'matchFields':[{'key':'metadata.name',"  \
                "'operator':'In','values':['n']}]}]}},'reservedFor':[" users "]"
#define USER(pod) "{'resource':'pods','name':'" pod "','uid':'p-" pod "'}"
#define AMOUNT                                                                                     \
    "\"resource\":{\"elasticgpu.io/gpu-core\":\"30\",\"elasticgpu.io/gpu-memory\":\"24Gi\"}"
#define REST                                                                                       \
    "{\"allocatable\":{\"elasticgpu.io/gpu-core\":\"70\",\"elasticgpu.io/gpu-memory\":\"56Gi\"},"
#define NAMED(container, pod) "{\"container\":\"" container "\",\"pod\":\"" pod "\"}"

/* The share is there once, with all that use it. */
static void test_the_users_of_a_claim(void **state) {
    struct dra_world *d = *state;
    see_user(d, "two", "c");
    see_claim(d, "c", 1, true, SHARE, USERS(USER("two") "," USER("one")));
    expect_status(d, 0,
                  REST "\"allocated\":{\"u-c\":{\"claim\":\"c\",\"containers\":[{"
                       "\"container\":\"\"," AMOUNT "}],\"namespace\":\"d\",\"pod\":\"one\","
                       "\"users\":[" NAMED("", "one") "," NAMED("main", "two") "," NAMED(
                           "side", "two") "]}}}");
    expect_status(d, 1, "\"allocated\":{}}");
    see_user(d, "one", "c"); /* the watch of pods comes later */
    expect_status(d, 0, "\"container\":\"main\"," AMOUNT "}],\"namespace\":\"d\",\"pod\":\"one\"");
    see_claim(d, "c", 2, true, SHARE, USERS(USER("two")));
    expect_status(d, 0, "\"users\":[" NAMED("main", "two") "," NAMED("side", "two") "]}}}");
}

/* No pod has it yet, or any more. */
static void test_a_claim_without_users_is_kept(void **state) {
    static const char kept[] = REST "\"allocated\":{},\"held\":[{\"by\":\"claim d/c\"," AMOUNT
                                    "}],\"heldBy\":\"claim d/c\"}";
    struct dra_world *d = *state;
    see_claim(d, "c", 1, true, SHARE, USERS(""));
    expect_status(d, 0, kept);
    see_claim(d, "c", 2, true, SHARE, USERS(USER("p")));
    expect_status(d, 0, "\"pod\":\"p\"");
    see_claim(d, "c", 3, true, SHARE, USERS(""));
    expect_status(d, 0, kept);
    see_claim(d, "c", 4, true, SHARE, "");
    expect_status(d, 0, "\"allocated\":{}}");
}

/* Another kind of object than a pod may be a user. */
static void test_another_kind_of_user(void **state) {
    struct dra_world *d = *state;
    see_claim(d, "c", 1, true, SHARE, USERS("{'resource':'jobs','name':'j','uid':'j'}"));
    expect_status(d, 0, "\"heldBy\":\"claim d/c\"");
}

/* Cards of kube-scheduler's, which the extender leaves alone, have their true figures, too. */
static void test_a_card_of_kube_scheduler(void **state) {
    struct dra_world *d = *state;
    see_slice(d, "n", 2, "kube-scheduler", "aliquot");
    see_user(d, "p", "c");
    see_claim(d, "c", 1, true,
              "'requests':[{'name':'gpu','exactly':{'deviceClassName':"
              "'first-fit.gpu.elasticgpu.io'}}]",
              USERS(USER("p")));
    expect_status(d, 0, REST "\"allocated\":{\"u-c\":{\"claim\":\"c\"");
}

/* A change of what uses a claim is written, and nothing else is. */
static void test_changes_are_projected(void **state) {
    struct dra_world *d = *state;
    struct state_node *node;
    see_user(d, "p", "c");
    see_claim(d, "c", 1, true, SHARE, USERS(USER("p")));
    node = state_node_find(d->w->state, "n");
    state_projected(node);
    see_user(d, "p", "c");
    assert_int_equal(d->w->state->nunprojected, 0);
    see_claim(d, "c", 2, true, SHARE, USERS(USER("p") "," USER("q")));
    assert_int_equal(d->w->state->nunprojected, 1);
}

/* A claim on card 0 with that many users. */
static void see_used(struct dra_world *d, const char *claim, const char *amounts, unsigned users) {
    _cleanup_buf_ struct buf list = BUF_INIT(1 << 16);
    for (unsigned i = 0; i < users; i++)
        buf_printf(&list, "%s{'resource':'pods','name':'p%u','uid':'p-%u'}", i ? "," : "", i, i);
    see(d, DRA_CLAIMS,
        "{'metadata':{'name':'%s','namespace':'d','uid':'u-%.40s','resourceVersion':'1'},'spec':{"
        "'devices':{" SHARE "}},'status':{'allocation':{'devices':{'results':[{'request':'gpu',"
        "'driver':'gpu.elasticgpu.io','pool':'n','device':'gpu-0',"
        "'shareID':'1b4e28ba-2fa1-11d2-883f-0016d3cca427','consumedCapacity':{%s}}]},"
        "'nodeSelector':{'nodeSelectorTerms':[{'matchFields':[{'key':'metadata.name',"
        "'operator':'In','values':['n']}]}]}},'reservedFor':[%s]}}",
        claim, claim, amounts, buf_str(&list));
}

static unsigned named_users(struct dra_world *d, struct buf *out) {
    unsigned named = 0;
    gpu_status_text(d->w->state, state_node_find(d->w->state, "n")->cards[0], out);
    for (const char *at = buf_str(out); (at = strstr(at, "{\"container\":\"\",\"pod\"")); at++)
        named++;
    return named;
}

/* More than are named count nothing. */
static void test_many_users(void **state) {
    _cleanup_buf_ struct buf out = BUF_INIT(1 << 20);
    struct dra_world *d = *state;
    see_used(d, "c", "'core':'30','memory':'24Gi'", 100);
    assert_int_equal(named_users(d, &out), STATE_CLAIM_USERS_MAX);
    assert_non_null(strstr(buf_str(&out), REST));
}

/* Claims with many users leave those of others named. */
static void test_many_users_of_a_card(void **state) {
    _cleanup_buf_ struct buf out = BUF_INIT(1 << 20);
    struct dra_world *d = *state;
    for (unsigned i = 0; i < 48; i++) {
        char claim[8];
        (void) snprintf(claim, sizeof(claim), "c%02u", i);
        see_used(d, claim, "'core':'1','memory':'1Gi'", 64);
    }
    see_used(d, "other", "'core':'1','memory':'1Gi'", 2);
    assert_int_equal(named_users(d, &out), 2 * 49);
}

/* It stays as it is, and that is told once. */
static void test_a_status_that_is_too_long(void **state) {
    struct dra_world *d = *state;
    char claim[256];
    for (unsigned i = 0; i < 3000; i++) {
        (void) snprintf(claim, sizeof(claim), "%08u%0192u", i, 0);
        see_used(d, claim, "'core':'0','memory':'1Mi'", 1);
    }
    gpu_status_run(&d->w->gpu_status, d->w->parser);
    assert_int_equal(d->w->gpu_status.failed, 1);
    state_unproject(state_node_find(d->w->state, "n"));
    gpu_status_run(&d->w->gpu_status, d->w->parser);
    assert_int_equal(d->w->gpu_status.failed, 1);
    for (unsigned i = 1; i < 3000; i++) {
        (void) snprintf(claim, sizeof(claim), "%08u%0192u", i, 0);
        see_gone(d, DRA_CLAIMS, "{'metadata':{'name':'%s','namespace':'d','uid':'u-%.40s'}}", claim,
                 claim);
    }
    gpu_status_run(&d->w->gpu_status, d->w->parser);
    assert_true(is_asked(d, "/status"));
}

static void waits(struct dra_world *d, const char *pod, const char *claim, const char *amounts) {
    see_share(d, claim, amounts);
    see_pod(d, pod, claim, GATED);
    run(d);
}

static void count(const char *namespace, const char *reason, void *userdata) {
    unsigned *counts = userdata;
    assert_string_equal(namespace, "d");
    counts[strcmp(reason, "no-room") == 0 ? 0 : strcmp(reason, "refused") == 0 ? 1 : 2]++;
}

static void expect_waiting(struct dra_world *d, unsigned no_room, unsigned refused,
                           unsigned missing) {
    unsigned counts[3] = {0};
    dra_waiting_each(&d->dra, count, counts);
    assert_int_equal(counts[0], no_room);
    assert_int_equal(counts[1], refused);
    assert_int_equal(counts[2], missing);
}

/* Each card says why it is no help, and what would fit is told. */
static void test_why_a_claim_waits_card_by_card(void **state) {
    struct dra_world *d = *state;
    see_claim(d, "c", 1, true, SHARE, USERS(USER("p")));
    see_slice(d, "n", 1, "aliquot", "aliquot");
    waits(d, "q", "big", CORE("80"));
    const char *why = dra_why(&d->dra, "d", "q");
    assert_non_null(why);
    if (!strstr(why, "no node has room for the claims of pod q: 1 node(s): ") ||
        !strstr(why, " At most 70 % and 56Gi of one card would fit now. Free: n card 0: 70 %, 56Gi;"
                     " n card 1: in no ResourceSlice"))
        fail_msg("%s", why);
    expect_waiting(d, 1, 0, 0);
    add_node(d, "m", 1);
    run(d);
    assert_string_equal(dra_why(&d->dra, "d", "q"), "");
    expect_waiting(d, 0, 0, 0);
    assert_null(dra_why(&d->dra, "d", "none"));
    assert_null(dra_why(&d->dra, "e", "q"));
}

static void test_what_is_not_served_waits(void **state) {
    struct dra_world *d = *state;
    waits(d, "q", "admin", "'adminAccess':true");
    expect_waiting(d, 0, 1, 0);
    assert_non_null(strstr(dra_why(&d->dra, "d", "q"), "adminAccess"));
    see_gone(d, DRA_PODS,
             "{'metadata':{'name':'q','namespace':'d','uid':'p-q'},"
             "'spec':{'resourceClaims':[{'name':'x'}]}}");
    expect_waiting(d, 0, 0, 0); /* it is not wanted any more */
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(test_the_users_of_a_claim),           TEST(test_a_claim_without_users_is_kept),
        TEST(test_another_kind_of_user),           TEST(test_a_card_of_kube_scheduler),
        TEST(test_changes_are_projected),          TEST(test_many_users),
        TEST(test_many_users_of_a_card),           TEST(test_a_status_that_is_too_long),
        TEST(test_why_a_claim_waits_card_by_card), TEST(test_what_is_not_served_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
