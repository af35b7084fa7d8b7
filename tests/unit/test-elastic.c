/* SPDX-License-Identifier: Apache-2.0 */

/* Claims in the scheduler: pods that use them, through filter, bind and the API server's answers.
 */

#include "elastic-world.h"

/* The share is reserved once, from the moment of its request, for any final owner. */
static void test_a_claim_holds_its_share_once(void **state) {
    struct elastic_world *e = *state;
    see(e, CLAIMS_CLASSES, QGPU);
    see(e, CLAIMS_CLAIMS, CLAIM("1", "", "", ""));
    run(e);
    assert_int_equal(free_core(e->w, "n", 0) + free_core(e->w, "n", 1), 190);
    answer(e, "POST", "/elasticgpus", "\"gpuName\":\"n-00\"", 201);
    see(e, CLAIMS_EGPUS, EGPU("2", "n-00", ""));
    see(e, CLAIMS_CLAIMS, BOUND_CLAIM("3"));
    assert_int_equal(free_core(e->w, "n", 0), 90);

    see_pod(e, "p", NULL, USES("c"));
    assert_string_equal(ask(e, "p"), "n");
    bind_by(e, "p");
    assert_non_null(strstr(buf_str(&e->w->asked[0].body), "\\\"core\\\":10"));
    _cleanup_buf_ struct buf annotations = BUF_INIT(0);
    annotations_of(e->w, &e->w->asked[0], &annotations);
    respond(e->w, 0, 201, false, NULL);
    assert_string_equal(e->w->bind_answer, "");
    buf_puts(&annotations, "," USES("c"));
    see_pod(e, "p", "n", buf_str(&annotations));
    assert_int_equal(free_core(e->w, "n", 0), 90);
    assert_int_equal(free_core(e->w, "n", 1), 100);

    /* A second pod is told why it waits. */
    see_pod(e, "q", NULL, USES("c"));
    assert_non_null(strstr(ask(e, "q"), "in use by pod pod-p"));

    /* With the ElasticGPU goes its hold; what the pod has stays. */
    state_pod_gone(e->w->state, "p");
    assert_int_equal(free_core(e->w, "n", 0), 90);
    claims_gone(e->elastic.claims, CLAIMS_EGPUS, "egpu-u-c");
    assert_int_equal(free_core(e->w, "n", 0), 100);
}

static void test_room_of_a_refused_object_is_given_back(void **state) {
    struct elastic_world *e = *state;
    see(e, CLAIMS_CLASSES, QGPU);
    see(e, CLAIMS_CLAIMS, CLAIM("1", "", "", ",\"status\":{\"phase\":\"Pending\"}"));
    run(e);
    answer(e, "POST", "/elasticgpus", "", 422);
    assert_int_equal(free_core(e->w, "n", 0) + free_core(e->w, "n", 1), 190);
    claims_gone(e->elastic.claims, CLAIMS_CLAIMS, "d/c");
    run(e);
    assert_int_equal(free_core(e->w, "n", 0) + free_core(e->w, "n", 1), 200);
}

/* The bind of a first consumer writes its node, waits for the claim, and goes on by itself; the
 * claim is made of the share that the pod was allocated. */
static void test_first_consumer(void **state) {
    struct elastic_world *e = *state;
    see(e, CLAIMS_CLASSES, LATE);
    see(e, CLAIMS_CLAIMS, CLAIM("1", "", "", ""));
    see_pod(e, "p", NULL, USES("c"));
    assert_string_equal(ask(e, "p"), "n");
    assert_int_equal(free_core(e->w, "n", 0) + free_core(e->w, "n", 1), 190);
    bind_by(e, "p");
    answer(e, "PATCH", "/elasticgpuclaims/c", "\"elasticgpu.io/selected-node\":\"n\"", 200);
    assert_string_equal(e->w->bind_answer, "?");
    see(e, CLAIMS_CLAIMS,
        CLAIM("2", ",\"annotations\":{\"elasticgpu.io/selected-node\":\"n\"}", "", ""));
    elastic_run(&e->elastic);
    assert_int_equal(free_core(e->w, "n", 0) + free_core(e->w, "n", 1), 190);
    const char *card =
        free_core(e->w, "n", 0) == 90 ? "\"gpuName\":\"n-00\"" : "\"gpuName\":\"n-01\"";
    bool first = free_core(e->w, "n", 0) == 90;
    answer(e, "POST", "/elasticgpus", card, 201);
    see(e, CLAIMS_EGPUS,
        first ? EGPU("3", "n-00", ",\"status\":{\"phase\":\"Bound\"}")
              : EGPU("3", "n-01", ",\"status\":{\"phase\":\"Bound\"}"));
    see(e, CLAIMS_CLAIMS, BOUND_CLAIM("4"));
    elastic_run(&e->elastic);
    assert_int_equal(free_core(e->w, "n", 0) + free_core(e->w, "n", 1), 190);
    size_t binding = 0;
    while (binding < e->w->nasked && !strstr(e->w->asked[binding].path, "/binding"))
        binding++;
    assert_in_range(binding, 0, e->w->nasked - 1);
    assert_non_null(strstr(buf_str(&e->w->asked[binding].body), "\\\"core\\\":10"));
    while (e->w->nasked > 0)
        respond(e->w, 0, 201, false, NULL);
    assert_string_equal(e->w->bind_answer, "");
}

/* Who does not act any more says so at once. Who acts next makes the claim on the node that was
 * chosen, without a bind that waits for it, and the pod finds it there. */
static void test_first_consumer_of_who_acts_no_more(void **state) {
    struct elastic_world *e = *state;
    see(e, CLAIMS_CLASSES, LATE);
    see(e, CLAIMS_CLAIMS, CLAIM("1", "", "", ""));
    see_pod(e, "p", NULL, USES("c"));
    assert_string_equal(ask(e, "p"), "n");
    bind_by(e, "p");
    answer(e, "PATCH", "/elasticgpuclaims/c", "\"elasticgpu.io/selected-node\":\"n\"", 200);
    elastic_waits_refuse(&e->elastic, "another acts");
    assert_string_equal(e->w->bind_answer, "another acts");
    see(e, CLAIMS_CLAIMS,
        CLAIM("2", ",\"annotations\":{\"elasticgpu.io/selected-node\":\"n\"}", "", ""));
    elastic_run(&e->elastic);
    bool first = strstr(buf_str(&e->w->asked[0].body), "n-00") != NULL;
    answer(e, "POST", "/elasticgpus", "\"gpuName\":\"n-0", 201);
    see(e, CLAIMS_EGPUS,
        first ? EGPU("3", "n-00", ",\"status\":{\"phase\":\"Bound\"}")
              : EGPU("3", "n-01", ",\"status\":{\"phase\":\"Bound\"}"));
    see(e, CLAIMS_CLAIMS, BOUND_CLAIM("4"));
    assert_string_equal(ask(e, "p"), "n");
    assert_int_equal(free_core(e->w, "n", first ? 0 : 1), 90);
    assert_int_equal(free_core(e->w, "n", first ? 1 : 0), 100);
    bind_by(e, "p");
    answer(e, "POST", "/binding", "\\\"core\\\":10", 201);
    assert_string_equal(e->w->bind_answer, "");
}

static void test_first_consumer_hears_in_time(void **state) {
    struct elastic_world *e = *state;
    see(e, CLAIMS_CLASSES, LATE);
    see(e, CLAIMS_CLAIMS,
        CLAIM("1", "", "",
              ",\"status\":{\"phase\":\"Pending\",\"conditions\":["
              "{\"type\":\"Bound\",\"reason\":\"WaitForFirstConsumer\","
              "\"message\":\"waiting for the first pod that uses the "
              "claim\"}]}"));
    see_pod(e, "p", NULL, USES("c"));
    assert_string_equal(ask(e, "p"), "n");
    bind_by(e, "p");
    answer(e, "PATCH", "/elasticgpuclaims/c", "selected-node", 409);
    e->w->now += 600;
    elastic_run(&e->elastic); /* the version was old: once more */
    answer(e, "PATCH", "/elasticgpuclaims/c", "selected-node", 0);
    assert_string_equal(e->w->bind_answer, "?");
    e->w->now += 3000;
    elastic_run(&e->elastic);
    assert_non_null(strstr(e->w->bind_answer, "being made"));
}

/* Every claim is looked at when one of them has changed, or its pod; not whenever a pod has. */
static void test_pods_without_claims_are_no_news(void **state) {
    struct elastic_world *e = *state;
    see(e, CLAIMS_CLASSES, QGPU);
    assert_true(claims_has_news(e->elastic.claims));
    elastic_run(&e->elastic);
    assert_false(claims_has_news(e->elastic.claims));
    see_pod(e, "x", NULL, "");
    elastic_pod(&e->elastic, "x", NULL);
    assert_false(claims_has_news(e->elastic.claims));
    see_pod(e, "p", NULL, USES("c"));
    assert_true(claims_has_news(e->elastic.claims));
    elastic_run(&e->elastic);
    elastic_pod(&e->elastic, "p", NULL);
    assert_true(claims_has_news(e->elastic.claims));

    /* Time is news enough: what was refused is tried again. */
    see(e, CLAIMS_CLAIMS, CLAIM("1", "", "", ""));
    elastic_run(&e->elastic);
    answer(e, "POST", "/elasticgpus", "", 422);
    elastic_run(&e->elastic);
    while (e->w->nasked > 0)
        respond(e->w, 0, 201, false, NULL);
    elastic_run(&e->elastic);
    assert_false(claims_has_news(e->elastic.claims));
    run(e);
    answer(e, "POST", "/elasticgpus", "", 422);
}

static void test_what_is_missing_is_said(void **state) {
    struct elastic_world *e = *state;
    assert_non_null(strstr(ask(e, "p"), "not known yet"));
    see_pod(e, "p", NULL, USES("c"));
    assert_non_null(strstr(ask(e, "p"), "claim c of container main does not exist"));
    see(e, CLAIMS_CLAIMS, CLAIM("1", "", "", ""));
    assert_non_null(strstr(ask(e, "p"), "not bound"));
    see(e, CLAIMS_CLAIMS, BOUND_CLAIM("2"));
    assert_non_null(strstr(ask(e, "p"), "lost its ElasticGPU"));
}

/* One made by an admin: 60 core of a card. */
#define STATIC(rv, card, status)                                                                   \
    "{" META("s", rv) EGPU_GUARD                                                                   \
        "},\"spec\":{\"capacity\":{\"elasticgpu.io/gpu-core\":60,\"elasticgpu.io/gpu-memory\":"    \
        "\"4Gi\"},\"qGPU\":{\"gpuName\":\"" card "\"}}" status "}"

/* What was found to be free is kept while the write that says so is under way. */
static void test_what_was_checked_is_kept(void **state) {
    struct elastic_world *e = *state;
    see(e, CLAIMS_EGPUS, STATIC("1", "n-00", ""));
    assert_int_equal(free_core(e->w, "n", 0), 100);
    run(e);
    assert_int_equal(free_core(e->w, "n", 0), 40);
    answer(e, "PATCH", "/elasticgpus/s/status", "Available", 500);
    run(e); /* the same once more: it is not in its own way */
    assert_int_equal(free_core(e->w, "n", 0), 40);
    answer(e, "PATCH", "/elasticgpus/s/status", "Available", 409);
    see(e, CLAIMS_EGPUS, STATIC("2", "n-01", ""));
    assert_int_equal(free_core(e->w, "n", 0), 100); /* another pod was faster */
    run(e);
    assert_int_equal(free_core(e->w, "n", 1), 40);
    answer(e, "PATCH", "/elasticgpus/s/status", "Available", 200);
    see(e, CLAIMS_EGPUS, STATIC("3", "n-01", PHASE("Available")));
    run(e);
    assert_int_equal(free_core(e->w, "n", 1), 40);
    claims_gone(e->elastic.claims, CLAIMS_EGPUS, "s");
    assert_int_equal(free_core(e->w, "n", 1), 100);
}

/* The first of several pods finds room for the whole claim, and gets its own part of it. */
static void test_first_consumer_of_a_claim_for_two(void **state) {
    struct elastic_world *e = *state;
    bind_other(e, "x", "92");
    bind_other(e, "y", "92");
    see(e, CLAIMS_CLASSES, LATE_FOR_TWO);
    see(e, CLAIMS_CLAIMS, CLAIM("1", "", "", ""));
    see_pod(e, "p", NULL, USES("c"));
    assert_non_null(strstr(ask(e, "p"), "no GPU has enough free compute"));
    state_pod_gone(e->w->state, "y");
    assert_string_equal(ask(e, "p"), "n");
    bool first = free_core(e->w, "n", 0) == 90;
    bind_by(e, "p");
    answer(e, "PATCH", "/elasticgpuclaims/c", "selected-node", 200);
    see(e, CLAIMS_CLAIMS,
        CLAIM("2", ",\"annotations\":{\"elasticgpu.io/selected-node\":\"n\"}", "", ""));
    elastic_run(&e->elastic);
    answer(e, "POST", "/elasticgpus", "\"elasticgpu.io/gpu-core\":\"10\"", 201);
    see(e, CLAIMS_EGPUS, EGPU("3", "n-00", PHASE("Bound")));
    if (!first)
        see(e, CLAIMS_EGPUS, EGPU("3", "n-01", PHASE("Bound")));
    see(e, CLAIMS_CLAIMS, BOUND_CLAIM("4"));
    elastic_run(&e->elastic);
    size_t binding = 0;
    while (binding < e->w->nasked && !strstr(e->w->asked[binding].path, "/binding"))
        binding++;
    assert_in_range(binding, 0, e->w->nasked - 1);
    assert_non_null(strstr(buf_str(&e->w->asked[binding].body), "\\\"core\\\":5"));
    assert_int_equal(free_core(e->w, "n", first ? 0 : 1), 90);
    while (e->w->nasked > 0)
        respond(e->w, 0, 201, false, NULL);
}

/* After a start an ElasticGPU may be shown before its card. */
static void test_a_card_comes_after_its_elasticgpu(void **state) {
    struct elastic_world *e = *state;
    see(e, CLAIMS_EGPUS, EGPU("1", "m-00", PHASE("Bound")));
    see(e, CLAIMS_CLAIMS, BOUND_CLAIM("2"));
    elastic_run(&e->elastic);
    show_node(e->w, "m", 1);
    assert_int_equal(free_core(e->w, "m", 0), 100);
    run(e);
    assert_int_equal(free_core(e->w, "m", 0), 90);
    while (e->w->nasked > 0)
        respond(e->w, 0, 200, false, NULL);
}

/* A part of the holds is looked at in every pass, and each in ten seconds. */
static void test_each_hold_has_its_turn(void **state) {
    struct elastic_world *e = *state;
    see(e, CLAIMS_EGPUS, EGPU("1", "n-00", PHASE("Bound")));
    see(e, CLAIMS_CLAIMS, BOUND_CLAIM("2"));
    elastic_run(&e->elastic);
    state_unreserve(e->w->state, "elasticgpu/egpu-u-c");
    unsigned turns = 0;
    for (; turns < 20 && free_core(e->w, "n", 0) == 100; turns++) {
        e->w->now += 500;
        elastic_run(&e->elastic);
    }
    assert_int_equal(free_core(e->w, "n", 0), 90);
    while (e->w->nasked > 0)
        respond(e->w, 0, 200, false, NULL);
}

/* After a start the pod may be shown before the claim that it draws on. */
static void test_a_bound_pod_is_shown_before_its_claim(void **state) {
    struct elastic_world *e = *state;
    _cleanup_buf_ struct buf annotations = BUF_INIT(0);
    see(e, CLAIMS_EGPUS, EGPU("1", "n-00", PHASE("Bound")));
    see(e, CLAIMS_CLAIMS, BOUND_CLAIM("2"));
    bind_user(e, "p", &annotations);
    assert_int_equal(free_core(e->w, "n", 0), 90);

    state_pod_gone(e->w->state, "p");
    claims_gone(e->elastic.claims, CLAIMS_PODS, "p");
    claims_gone(e->elastic.claims, CLAIMS_CLAIMS, "d/c");
    claims_gone(e->elastic.claims, CLAIMS_EGPUS, "egpu-u-c");
    assert_int_equal(free_core(e->w, "n", 0), 100);
    see_pod(e, "p", "n", buf_str(&annotations));
    see(e, CLAIMS_EGPUS, EGPU("1", "n-00", PHASE("Bound")));
    see(e, CLAIMS_CLAIMS, BOUND_CLAIM("2"));
    run(e);
    assert_int_equal(free_core(e->w, "n", 0), 90);

    /* Also where the claim is being deleted, and stays only for the pod's sake. */
    state_pod_gone(e->w->state, "p");
    claims_gone(e->elastic.claims, CLAIMS_PODS, "p");
    see(e, CLAIMS_CLAIMS, DELETED_CLAIM("3"));
    see_pod(e, "p", "n", buf_str(&annotations));
    assert_int_equal(free_core(e->w, "n", 0), 90);
    while (e->w->nasked > 0)
        respond(e->w, 0, 200, false, NULL);
}

/* From the sending of its Binding on a pod uses its claim, though no watch shows it on a node. */
static void test_a_claim_stays_while_its_pod_is_being_bound(void **state) {
    struct elastic_world *e = *state;
    see(e, CLAIMS_EGPUS, EGPU("1", "n-00", PHASE("Bound")));
    see(e, CLAIMS_CLAIMS, BOUND_CLAIM("2"));
    see_pod(e, "p", NULL, USES("c"));
    assert_string_equal(ask(e, "p"), "n");
    bind_by(e, "p");
    assert_int_equal(e->w->nasked, 1);
    see(e, CLAIMS_CLAIMS, DELETED_CLAIM("3"));
    run(e);
    assert_int_equal(e->w->nasked, 1);
    respond(e->w, 0, 409, false, NULL); /* nothing was bound; it is asked what there is */
    while (e->w->nasked > 0)
        respond(e->w, 0, 404, false, NULL);
    run(e);
    answer(e, "PATCH", "/elasticgpuclaims/c", "\"finalizers\":[]", 200);
}

/* The claim was bound to what an admin has made, of another card than the pod was allocated. */
static void test_first_consumer_of_another_card(void **state) {
    struct elastic_world *e = *state;
    see(e, CLAIMS_CLASSES, LATE);
    see(e, CLAIMS_CLAIMS, CLAIM("1", "", "", ""));
    see_pod(e, "p", NULL, USES("c"));
    assert_string_equal(ask(e, "p"), "n");
    bool first = free_core(e->w, "n", 0) == 90;
    bind_by(e, "p");
    answer(e, "PATCH", "/elasticgpuclaims/c", "\"elasticgpu.io/selected-node\":\"n\"", 200);
    see(e, CLAIMS_EGPUS,
        first ? EGPU("3", "n-01", PHASE("Bound")) : EGPU("3", "n-00", PHASE("Bound")));
    see(e, CLAIMS_CLAIMS, BOUND_CLAIM("4"));
    elastic_run(&e->elastic);
    size_t binding = 0;
    while (binding < e->w->nasked && !strstr(e->w->asked[binding].path, "/binding"))
        binding++;
    assert_in_range(binding, 0, e->w->nasked - 1);
    assert_int_equal(free_core(e->w, "n", first ? 0 : 1), 100);
    assert_int_equal(free_core(e->w, "n", first ? 1 : 0), 90);
    while (e->w->nasked > 0)
        respond(e->w, 0, 201, false, NULL);
    assert_string_equal(e->w->bind_answer, "");
}

/* It was bound before the bind came: nothing waits for it then, and the assumed allocation is none
 * of it. */
static void test_a_claim_is_bound_after_filter(void **state) {
    struct elastic_world *e = *state;
    see(e, CLAIMS_CLASSES, LATE);
    see(e, CLAIMS_CLAIMS, CLAIM("1", "", "", ""));
    see_pod(e, "p", NULL, USES("c"));
    assert_string_equal(ask(e, "p"), "n");
    bool first = free_core(e->w, "n", 0) == 90;
    see(e, CLAIMS_EGPUS,
        first ? EGPU("3", "n-01", PHASE("Bound")) : EGPU("3", "n-00", PHASE("Bound")));
    see(e, CLAIMS_CLAIMS, BOUND_CLAIM("4"));
    bind_by(e, "p");
    answer(e, "POST", "/binding", first ? "GPU-n-1" : "GPU-n-0", 201);
    assert_int_equal(free_core(e->w, "n", first ? 0 : 1), 100);
    assert_int_equal(free_core(e->w, "n", first ? 1 : 0), 90);
}

/* Two pods may use it: each gets half, both together hold it once, and a third waits. */
static void test_two_pods_share_a_claim(void **state) {
    struct elastic_world *e = *state;
    _cleanup_buf_ struct buf p = BUF_INIT(0), q = BUF_INIT(0);
    see(e, CLAIMS_CLASSES, "{" META("k", "1") "},\"provisioner\":\"x\",\"podsPerClaim\":2}");
    see(e, CLAIMS_EGPUS, EGPU("1", "n-01", PHASE("Bound")));
    see(e, CLAIMS_CLAIMS, BOUND_CLAIM("2"));
    bind_user(e, "p", &p);
    bind_user(e, "q", &q);
    for (size_t i = 0; i < 2; i++) {
        const char *given = buf_str(i == 0 ? &p : &q);
        assert_non_null(strstr(given, "\\\"core\\\":5"));
        assert_non_null(strstr(given, "\\\"memory\\\":2147483648"));
        assert_non_null(strstr(given, "GPU-n-1"));
    }
    assert_int_equal(free_core(e->w, "n", 1), 90);
    assert_int_equal(free_core(e->w, "n", 0), 100);
    see_pod(e, "r", NULL, USES("c"));
    assert_non_null(strstr(ask(e, "r"), "its class lets 2 pods use it"));
    state_pod_gone(e->w->state, "p");
    claims_gone(e->elastic.claims, CLAIMS_PODS, "p");
    assert_int_equal(free_core(e->w, "n", 1), 90);
    assert_string_equal(ask(e, "r"), "n");
}

#define WHOLE_CLAIM(rv, notes, spec, status)                                                       \
    "{" META("c", rv) ",\"namespace\":\"d\"" GUARD notes                                           \
                      "},\"spec\":{\"elasticGPUClassName\":\"k\",\"resources\":{"                  \
                      "\"requests\":{\"elasticgpu.io/gpu-core\":200}}" spec "}" status "}"

/* Two whole cards of one node, although there are two idle ones elsewhere, one each. */
static void test_whole_cards(void **state) {
    struct elastic_world *e = *state;
    _cleanup_buf_ struct buf p = BUF_INIT(0);
    show_node(e->w, "a", 1);
    show_node(e->w, "b", 1);
    see(e, CLAIMS_CLASSES, "{" META("k", "1") "},\"provisioner\":\"elasticgpu.io/pgpu\"}");
    see(e, CLAIMS_CLAIMS, WHOLE_CLAIM("1", "", "", ""));
    run(e);
    assert_int_equal(free_core(e->w, "n", 0) + free_core(e->w, "n", 1), 0);
    answer(e, "POST", "/elasticgpus", "\"physicalGPU\":{\"gpuNames\":[\"n-00\",\"n-01\"]}", 201);
    see(e, CLAIMS_EGPUS,
        "{" META("egpu-u-c", "2") EGPU_GUARD
        ",\"annotations\":{\"elasticgpu.io/provisioned-by\":\"elasticgpu.io/pgpu\"}},\"spec\":{"
        "\"capacity\":{\"elasticgpu.io/gpu-core\":\"200\"},\"physicalGPU\":{\"gpuNames\":["
        "\"n-00\",\"n-01\"]},\"claimRef\":{\"namespace\":\"d\",\"name\":\"c\","
        "\"uid\":\"u-c\"}},\"status\":{\"phase\":\"Bound\"}}");
    see(e, CLAIMS_CLAIMS,
        WHOLE_CLAIM("3", ",\"annotations\":{\"elasticgpu.io/bind-completed\":\"yes\"}",
                    ",\"elasticGPUName\":\"egpu-u-c\"", ",\"status\":{\"phase\":\"Bound\"}"));
    bind_user(e, "p", &p);
    assert_non_null(strstr(buf_str(&p), "GPU-n-0"));
    assert_non_null(strstr(buf_str(&p), "GPU-n-1"));
    assert_non_null(strstr(buf_str(&p), "\\\"core\\\":100"));
    assert_int_equal(free_core(e->w, "n", 0) + free_core(e->w, "n", 1), 0);
}

#define CLASS_OF_POLICY(rv, mode, policy)                                                          \
    "{" META("k", rv) "},\"provisioner\":\"elasticgpu.io/qgpu\",\"bindingMode\":\"" mode           \
                      "\",\"parameters\":{\"x\":\"y\",\"placementPolicy\":\"" policy "\"}}"

/* The class says how the cards of its claims are chosen: of two, one is in use already. */
static void test_a_class_has_its_policy(void **state) {
    struct elastic_world *e = *state;
    struct place_plan plan;
    struct gpu_request request;
    bind_other(e, "x", "20");
    bool first = free_core(e->w, "n", 0) == 80;
    see(e, CLAIMS_CLASSES, CLASS_OF_POLICY("1", "Immediate", "spread"));
    see(e, CLAIMS_CLAIMS, CLAIM("1", "", "", ""));
    run(e);
    answer(e, "POST", "/elasticgpus", first ? "\"n-01\"" : "\"n-00\"", 422);
    claims_gone(e->elastic.claims, CLAIMS_CLAIMS, "d/c");
    run(e);
    see(e, CLAIMS_CLASSES, CLASS_OF_POLICY("2", "Immediate", "binpack"));
    see(e, CLAIMS_CLAIMS, CLAIM("2", "", "", ""));
    run(e);
    answer(e, "POST", "/elasticgpus", first ? "\"n-00\"" : "\"n-01\"", 422);

    /* A first consumer's pod: its own word goes before the class's, that before the namespace's. */
    claims_gone(e->elastic.claims, CLAIMS_CLAIMS, "d/c");
    run(e);
    see(e, CLAIMS_CLASSES, CLASS_OF_POLICY("3", "WaitForFirstConsumer", "spread"));
    see(e, CLAIMS_CLAIMS, CLAIM("3", "", "", ""));
    assert_int_equal(state_namespace_policy(e->w->state, "d", "fgd", "fgd"), 0);
    see_pod(e, "p", NULL, USES("c"));
    assert_string_equal(ask(e, "p"), "n");
    assert_int_equal(free_core(e->w, "n", first ? 1 : 0), 90);
    state_plan(e->w->state, state_pod_find(e->w->state, "p"), &request, &plan);
    assert_string_equal(plan.policy.name, "spread");
    see_pod(e, "q", NULL, USES("c") ",\"elasticgpu.io/placement-policy\":\"best-fit\"");
    state_plan(e->w->state, state_pod_find(e->w->state, "q"), &request, &plan);
    assert_string_equal(plan.policy.name, "best-fit");

    /* A policy that there is not is none. */
    see(e, CLAIMS_CLASSES, CLASS_OF_POLICY("4", "WaitForFirstConsumer", "?"));
    assert_string_equal(ask(e, "p"), "n");
    state_plan(e->w->state, state_pod_find(e->w->state, "p"), &request, &plan);
    assert_string_equal(plan.policy.name, "fgd");
}

#define MPS_CLASS(rv, mode)                                                                        \
    "{" META("k", rv) "},\"provisioner\":\"elasticgpu.io/mps\",\"bindingMode\":\"" mode "\"}"

static void show_mps(struct elastic_world *e, unsigned index, bool under_mps) {
    struct gpu_object gpu = {
        .index = index, .memory = 80 * GIB, .healthy = true, .under_mps = under_mps};
    snprintf(gpu.name, sizeof(gpu.name), "n-%02u", index);
    snprintf(gpu.uuid, sizeof(gpu.uuid), "GPU-n-%u", index);
    snprintf(gpu.node, sizeof(gpu.node), "n");
    assert_int_equal(state_gpu_seen(e->w->state, &gpu, "{\"allocatable\":null,\"allocated\":null}"),
                     0);
}

/* Cards under MPS only, also where another card is the cheaper one. */
static void test_claims_under_mps(void **state) {
    struct elastic_world *e = *state;
    bind_other(e, "x", "20");
    unsigned other = free_core(e->w, "n", 0) == 80; /* the card that is idle */
    see(e, CLAIMS_CLASSES, MPS_CLASS("1", "Immediate"));
    see(e, CLAIMS_CLAIMS, CLAIM("1", "", "", ""));
    run(e);
    answer(e, "PATCH", "/elasticgpuclaims/c/status", "no GPU under MPS has room", 422);
    show_mps(e, other, true);
    run(e);
    answer(e, "POST", "/elasticgpus", other ? "\"n-01\"" : "\"n-00\"", 422);

    /* The pod that comes first goes there, too. */
    claims_gone(e->elastic.claims, CLAIMS_CLAIMS, "d/c");
    run(e);
    see(e, CLAIMS_CLASSES, MPS_CLASS("2", "WaitForFirstConsumer"));
    see(e, CLAIMS_CLAIMS, CLAIM("2", "", "", ""));
    see_pod(e, "p", NULL, USES("c"));
    assert_string_equal(ask(e, "p"), "n");
    assert_int_equal(free_core(e->w, "n", other), 90);
    assert_int_equal(free_core(e->w, "n", 1 - other), 80);
    show_mps(e, other, false);
    see_pod(e, "q", NULL, USES("c"));
    assert_string_not_equal(ask(e, "q"), "n");
    /* Other pods may be on such a card. */
    show_mps(e, 0, true);
    show_mps(e, 1, true);
    bind_other(e, "y", "60");
}

static void label(struct elastic_world *e, const char *node, const char *labels) {
    struct json root;
    struct err err;
    assert_int_equal(json_parse(e->w->parser, labels, strlen(labels), &root, &err), 0);
    assert_int_equal(elastic_node(&e->elastic, node, root), 0);
}

#define CLASS_OF_ZONE(rv, mode, zone)                                                              \
    "{" META("k", rv) "},\"provisioner\":\"elasticgpu.io/qgpu\",\"bindingMode\":\"" mode           \
                      "\",\"allowedTopologies\":[{\"matchLabelExpressions\":["                     \
                      "{\"key\":\"zone\",\"values\":[\"" zone "\"]}]}]}"

/* Claims are made only where their class allows, and so their first consumers go only there. */
static void test_allowed_topologies(void **state) {
    struct elastic_world *e = *state;
    show_node(e->w, "m", 1);
    label(e, "n", "{\"zone\":\"z1\"}");
    label(e, "m", "{\"zone\":\"z2\",\"x\":\"y\"}");
    see(e, CLAIMS_CLASSES, CLASS_OF_ZONE("1", "Immediate", "z2"));
    see(e, CLAIMS_CLAIMS, CLAIM("1", "", "", ""));
    run(e);
    answer(e, "POST", "/elasticgpus", "\"gpuName\":\"m-00\"", 422);
    claims_gone(e->elastic.claims, CLAIMS_CLAIMS, "d/c");
    run(e);

    see(e, CLAIMS_CLASSES, CLASS_OF_ZONE("2", "WaitForFirstConsumer", "z1"));
    see(e, CLAIMS_CLAIMS, CLAIM("2", "", "", ""));
    see_pod(e, "p", NULL, USES("c"));
    e->w->annotations = USES("c");
    assert_string_equal(filter(e->w, "p", SLOT, "\"m\",\"n\""), "n");
    label(e, "n", "{}");
    assert_non_null(strstr(filter(e->w, "p", SLOT, "\"m\",\"n\""), "class allows only others"));
    label(e, "m", "{\"zone\":\"z1\"}");
    assert_string_equal(filter(e->w, "p", SLOT, "\"m\",\"n\""), "m");
    see(e, CLAIMS_CLASSES, CLASS_OF_ZONE("3", "WaitForFirstConsumer", "z3"));
    assert_non_null(strstr(filter(e->w, "p", SLOT, "\"m\",\"n\""), "class allows only others"));

    /* A claim for which the node was chosen before that is not made there either. */
    see(e, CLAIMS_CLAIMS,
        CLAIM("3", ",\"annotations\":{\"elasticgpu.io/selected-node\":\"m\"}", "", ""));
    run(e);
    answer(e, "PATCH", "/elasticgpuclaims/c", "\"elasticgpu.io/selected-node\":null", 200);
}

#define AFFINE(rv, phase)                                                                          \
    "{" META("s", rv) EGPU_GUARD                                                                   \
        "},\"spec\":{\"capacity\":{\"elasticgpu.io/"                                               \
        "gpu-core\":60},\"qGPU\":{\"gpuName\":\"n-00\"},"                                          \
        "\"nodeAffinity\":{\"required\":{\"nodeSelectorTerms\":[{\"matchExpressions\":[{"          \
        "\"key\":\"zone\",\"operator\":\"In\",\"values\":[\"z1\"]}]}]}},\"claimRef\":{"            \
        "\"namespace\":\"d\",\"name\":\"c\",\"uid\":\"u-c\"}}" phase "}"

/* What an administrator makes is not there while its node is none that it may be on. */
static void test_node_affinity(void **state) {
    struct elastic_world *e = *state;
    see(e, CLAIMS_EGPUS, AFFINE("1", ""));
    run(e);
    answer(e, "PATCH", "/elasticgpus/s/status", "nodeAffinity allows", 200);
    assert_int_equal(free_core(e->w, "n", 0), 100);
    see(e, CLAIMS_EGPUS, AFFINE("2", PHASE("Pending")));
    label(e, "n", "{\"zone\":\"z1\"}");
    run(e);
    answer(e, "PATCH", "/elasticgpus/s/status", "\"phase\":\"Available\"", 200);

    /* The node is labelled anew: what is bound is kept, and new pods do not go there. */
    see(e, CLAIMS_EGPUS, AFFINE("3", PHASE("Bound")));
    see(e, CLAIMS_CLAIMS,
        CLAIM("4", ",\"annotations\":{\"elasticgpu.io/bind-completed\":\"yes\"}",
              ",\"elasticGPUName\":\"s\"", PHASE("Bound")));
    see_pod(e, "p", NULL, USES("c"));
    assert_string_equal(ask(e, "p"), "n");
    label(e, "n", "{\"zone\":\"z2\"}");
    assert_non_null(strstr(ask(e, "p"), "claim is on another node"));
    state_pod_gone(e->w->state, "p");
    elastic_run(&e->elastic);
    assert_int_equal(free_core(e->w, "n", 0), 40);
    while (e->w->nasked > 0)
        respond(e->w, 0, 200, false, NULL);
}

#define MIG_CLASS "{" META("k", "1") "},\"provisioner\":\"elasticgpu.io/mig\"}"
#define MIG_CLAIM(name)                                                                            \
    "{" META(name, "1") ",\"namespace\":\"d\"" GUARD                                               \
                        "},\"spec\":{\"elasticGPUClassName\":\"k\",\"resources\":{\"requests\":{"  \
                        "\"nvidia.com/mig-1g.10gb\":1}}}}"

static void show_instance(struct elastic_world *e, const char *node, unsigned card, unsigned gi) {
    struct gpu_object gpu = {.index = card,
                             .memory = 10 * GIB,
                             .capacity = 10 * GIB,
                             .core = 14,
                             .healthy = true,
                             .mig = {.profile = "1g.10gb", .gi = gi, .start = gi, .size = 1}};

    (void) snprintf(gpu.name, sizeof(gpu.name), "%s-%02u-gi%u-ci0", node, card, gi);
    (void) snprintf(gpu.uuid, sizeof(gpu.uuid), "MIG-%s-%u-%u", node, card, gi);
    (void) snprintf(gpu.parent, sizeof(gpu.parent), "GPU-%s-%u", node, card);
    (void) snprintf(gpu.node, sizeof(gpu.node), "%s", node);
    assert_int_equal(state_gpu_seen(e->w->state, &gpu, NULL), 0);
}

/* A claim gets all of one instance: of the card with the fewest free ones. */
static void test_a_claim_of_a_mig_instance(void **state) {
    struct elastic_world *e = *state;

    see(e, CLAIMS_CLASSES, MIG_CLASS);
    see(e, CLAIMS_CLAIMS, MIG_CLAIM("c"));
    run(e);
    answer(e, "PATCH", "/elasticgpuclaims/c/status", "no MIG instance 1g.10gb is free now", 200);
    assert_int_equal(state_node_seen(e->w->state, "m"), 0);
    for (unsigned gi = 0; gi < 3; gi++)
        show_instance(e, "m", 0, gi);
    show_instance(e, "m", 1, 0);
    see(e, CLAIMS_CLAIMS, MIG_CLAIM("c"));
    e->w->now += 60000;
    run(e);
    answer(e, "POST", "/elasticgpus",
           "\"capacity\":{\"elasticgpu.io/gpu-core\":\"14\",\"elasticgpu.io/gpu-memory\":\"10Gi\"},"
           "\"elasticGPUClassName\":\"k\",\"reclaimPolicy\":\"Delete\",\"mig\":{\"gpuName\":"
           "\"m-01-gi0-ci0\",\"profile\":\"1g.10gb\"}",
           201);
    /* It is taken: the next one is on the other card. */
    see(e, CLAIMS_CLAIMS, MIG_CLAIM("d"));
    run(e);
    answer(e, "POST", "/elasticgpus", "\"gpuName\":\"m-00-gi0-ci0\"", 201);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_claim_holds_its_share_once, begin, end),
        cmocka_unit_test_setup_teardown(test_room_of_a_refused_object_is_given_back, begin, end),
        cmocka_unit_test_setup_teardown(test_first_consumer, begin, end),
        cmocka_unit_test_setup_teardown(test_first_consumer_of_who_acts_no_more, begin, end),
        cmocka_unit_test_setup_teardown(test_first_consumer_of_a_claim_for_two, begin, end),
        cmocka_unit_test_setup_teardown(test_first_consumer_hears_in_time, begin, end),
        cmocka_unit_test_setup_teardown(test_pods_without_claims_are_no_news, begin, end),
        cmocka_unit_test_setup_teardown(test_what_is_missing_is_said, begin, end),
        cmocka_unit_test_setup_teardown(test_what_was_checked_is_kept, begin, end),
        cmocka_unit_test_setup_teardown(test_a_bound_pod_is_shown_before_its_claim, begin, end),
        cmocka_unit_test_setup_teardown(test_a_claim_stays_while_its_pod_is_being_bound, begin,
                                        end),
        cmocka_unit_test_setup_teardown(test_first_consumer_of_another_card, begin, end),
        cmocka_unit_test_setup_teardown(test_a_claim_is_bound_after_filter, begin, end),
        cmocka_unit_test_setup_teardown(test_each_hold_has_its_turn, begin, end),
        cmocka_unit_test_setup_teardown(test_a_class_has_its_policy, begin, end),
        cmocka_unit_test_setup_teardown(test_claims_under_mps, begin, end),
        cmocka_unit_test_setup_teardown(test_allowed_topologies, begin, end),
        cmocka_unit_test_setup_teardown(test_node_affinity, begin, end),
        cmocka_unit_test_setup_teardown(test_a_card_comes_after_its_elasticgpu, begin, end),
        cmocka_unit_test_setup_teardown(test_two_pods_share_a_claim, begin, end),
        cmocka_unit_test_setup_teardown(test_whole_cards, begin, end),
        cmocka_unit_test_setup_teardown(test_a_claim_of_a_mig_instance, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
