/* SPDX-License-Identifier: Apache-2.0 */

/* Claims that grow while pods use them. */

#include "elastic-world.h"

/* A claim that has grown: the pod that runs is given more, by a new assignment of ours. */
static void test_a_pod_that_runs_is_given_more(void **state) {
    struct elastic_world *e = *state;
    _cleanup_buf_ struct buf annotations = BUF_INIT(0);
    see(e, CLAIMS_CLASSES, QGPU);
    see(e, CLAIMS_EGPUS, EGPU("1", "n-01", ",\"status\":{\"phase\":\"Bound\"}"));
    see(e, CLAIMS_CLAIMS, BOUND_CLAIM("2"));
    see_pod(e, "p", NULL, USES("c"));
    assert_string_equal(ask(e, "p"), "n");
    bind_by(e, "p");
    annotations_of(e->w, &e->w->asked[0], &annotations);
    respond(e->w, 0, 201, false, NULL);
    buf_puts(&annotations, "," USES("c"));
    see_pod(e, "p", "n", buf_str(&annotations));
    see(e, CLAIMS_EGPUS, GROWN_EGPU("3"));
    see(e, CLAIMS_CLAIMS, GROWING_CLAIM("4"));
    assert_int_equal(free_core(e->w, "n", 1), 70);
    run(e);
    size_t patch = 0;
    while (patch < e->w->nasked && !strstr(e->w->asked[patch].path, "/pods/pod-p/status"))
        patch++;
    assert_in_range(patch, 0, e->w->nasked - 1);
    const char *body = buf_str(&e->w->asked[patch].body);
    assert_non_null(strstr(body, "\\\"core\\\":30"));
    assert_non_null(strstr(body, "\\\"memory\\\":8589934592"));
    assert_non_null(strstr(body, "\"uid\":\"p\""));
    while (e->w->nasked > 0)
        respond(e->w, 0, 200, false, NULL);
}

/* After a rollback: it would be signed anew as one that an older agent may carry out. */
static void test_what_a_newer_scheduler_gave_stays(void **state) {
    struct elastic_world *e = *state;
    _cleanup_buf_ struct buf annotations = BUF_INIT(0);
    see(e, CLAIMS_CLASSES, QGPU);
    see(e, CLAIMS_EGPUS, EGPU("1", "n-01", ",\"status\":{\"phase\":\"Bound\"}"));
    see(e, CLAIMS_CLAIMS, BOUND_CLAIM("2"));
    bind_user(e, "p", &annotations);
    struct state_pod *pod = state_pod_find(e->w->state, "p");
    char text[512], signature[SIGNATURE_TEXT_MAX];
    snprintf(text, sizeof(text),
             "{\"v\":2,\"node\":\"n\",\"containers\":{\"%s\":[{\"index\":%u,\"uuid\":\"%s\","
             "\"core\":%u,\"memory\":%llu}]}}",
             pod->allocations[0].container, pod->allocations[0].device.index,
             pod->allocations[0].device.uuid, pod->allocations[0].device.core,
             (unsigned long long) pod->allocations[0].device.memory);
    assert_int_equal(assignment_sign(e->w->key, "p", "n", text, signature, NULL), 0);
    buf_reset(&annotations);
    buf_puts(&annotations, "\"elasticgpu.io/assignment\":\"");
    for (const char *c = text; *c; c++)
        buf_printf(&annotations, "%s%c", *c == '"' ? "\\" : "", *c);
    buf_printf(&annotations, "\",\"elasticgpu.io/assignment-signature\":\"%s\"," USES("c"),
               signature);
    see_pod(e, "p", "n", buf_str(&annotations));
    see(e, CLAIMS_EGPUS, GROWN_EGPU("3"));
    see(e, CLAIMS_CLAIMS, GROWING_CLAIM("4"));
    run(e);
    for (size_t i = 0; i < e->w->nasked; i++)
        assert_null(strstr(e->w->asked[i].path, "/pods/pod-p/status"));
    while (e->w->nasked > 0)
        respond(e->w, 0, 200, false, NULL);
}

/* It grows between filter and the Binding of a pod: the pod gets all of it, or is given more when
 * it is bound; the claim does not say that it has grown before. */
static void test_a_pod_on_its_way_is_given_more(void **state) {
    struct elastic_world *e = *state;
    see(e, CLAIMS_EGPUS, EGPU("1", "n-01", ",\"status\":{\"phase\":\"Bound\"}"));
    see(e, CLAIMS_CLAIMS, BOUND_CLAIM("2"));
    see(e, CLAIMS_CLASSES, "{" META("k", "1") "},\"provisioner\":\"x\",\"podsPerClaim\":1}");
    see_pod(e, "p", NULL, USES("c"));
    assert_string_equal(ask(e, "p"), "n");
    see(e, CLAIMS_EGPUS, GROWN_EGPU("3"));
    see(e, CLAIMS_CLAIMS, GROWING_CLAIM("4"));
    run(e);
    answer(e, "PATCH", "/elasticgpuclaims/c/status", "\"reason\":\"InProgress\"", 409);
    bind_by(e, "p");
    assert_non_null(strstr(buf_str(&e->w->asked[0].body), "\\\"core\\\":30"));
    assert_int_equal(e->w->nasked, 1);
    respond(e->w, 0, 201, false, NULL);
    run(e);
    answer(e, "PATCH", "/elasticgpuclaims/c/status", "\"elasticgpu.io/gpu-core\":\"30\"", 200);
}

static void test_a_pod_that_is_being_bound_is_given_more(void **state) {
    struct elastic_world *e = *state;
    see(e, CLAIMS_EGPUS, EGPU("1", "n-01", ",\"status\":{\"phase\":\"Bound\"}"));
    see(e, CLAIMS_CLAIMS, BOUND_CLAIM("2"));
    see_pod(e, "p", NULL, USES("c"));
    assert_string_equal(ask(e, "p"), "n");
    bind_by(e, "p");
    see(e, CLAIMS_EGPUS, GROWN_EGPU("3"));
    see(e, CLAIMS_CLAIMS, GROWING_CLAIM("4"));
    run(e);
    assert_int_equal(e->w->nasked, 2); /* the Binding, and that it is in progress */
    respond(e->w, 1, 409, false, NULL);
    respond(e->w, 0, 201, false, NULL);
    run(e);
    bool given = false;
    for (size_t i = 0; i < e->w->nasked; i++)
        given |= strstr(e->w->asked[i].path, "/pods/pod-p/status") &&
                 strstr(buf_str(&e->w->asked[i].body), "\\\"core\\\":30");
    assert_true(given);
    while (e->w->nasked > 0)
        respond(e->w, 0, 200, false, NULL);
}

#define GROWING                                                                                    \
    "{" META("k", "1") "},\"provisioner\":\"elasticgpu.io/qgpu\",\"allowExpansion\":true}"
#define LARGER_CLAIM(rv)                                                                           \
    "{" META(                                                                                      \
        "c",                                                                                       \
        rv) ",\"namespace\":\"d\"" GUARD                                                           \
            ",\"annotations\":{\"elasticgpu.io/bind-completed\":\"yes\"}},\"spec\":{"              \
            "\"elasticGPUClassName\":\"k\",\"elasticGPUName\":\"egpu-u-c\",\"resources\":{"        \
            "\"requests\":{\"elasticgpu.io/gpu-core\":30,\"elasticgpu.io/gpu-memory\":\"4Gi\"}}}," \
            "\"status\":{\"phase\":\"Bound\",\"capacity\":{\"elasticgpu.io/gpu-core\":\"10\","     \
            "\"elasticgpu.io/gpu-memory\":\"4Gi\"}}}"

static void test_what_it_grows_by_is_kept(void **state) {
    struct elastic_world *e = *state;
    see(e, CLAIMS_CLASSES, GROWING);
    see(e, CLAIMS_EGPUS, EGPU("1", "n-01", PHASE("Bound")));
    see(e, CLAIMS_CLAIMS, LARGER_CLAIM("2"));
    assert_int_equal(free_core(e->w, "n", 1), 90);
    run(e);
    assert_int_equal(free_core(e->w, "n", 1), 70);
    answer(e, "PATCH", "/elasticgpus/egpu-u-c", "\"elasticgpu.io/gpu-core\":\"30\"", 409);
    see(e, CLAIMS_EGPUS, EGPU("3", "n-01", PHASE("Bound")));
    assert_int_equal(free_core(e->w, "n", 1), 90);
}

/* Two pods that run name a claim for one, by annotations changed since: neither is given more. */
static void test_more_pods_than_may_use_it_are_not_given_more(void **state) {
    struct elastic_world *e = *state;
    _cleanup_buf_ struct buf p = BUF_INIT(0), q = BUF_INIT(0);
    see(e, CLAIMS_CLASSES, "{" META("k", "1") "},\"provisioner\":\"x\",\"podsPerClaim\":2}");
    see(e, CLAIMS_EGPUS, EGPU("1", "n-01", PHASE("Bound")));
    see(e, CLAIMS_CLAIMS, BOUND_CLAIM("2"));
    bind_user(e, "p", &p);
    bind_user(e, "q", &q);
    assert_int_equal(free_core(e->w, "n", 1), 90);
    see(e, CLAIMS_CLASSES, "{" META("k", "2") "},\"provisioner\":\"x\",\"podsPerClaim\":1}");
    see(e, CLAIMS_EGPUS, EGPU("3", "n-01", PHASE("Bound")));
    see(e, CLAIMS_CLAIMS,
        CLAIM("4", ",\"annotations\":{\"elasticgpu.io/bind-completed\":\"yes\"}",
              ",\"elasticGPUName\":\"egpu-u-c\"",
              ",\"status\":{\"phase\":\"Bound\",\"capacity\":{\"elasticgpu.io/gpu-core\":\"9\"}}"));
    run(e);
    for (size_t i = 0; i < e->w->nasked; i++)
        assert_null(strstr(e->w->asked[i].path, "/pods/"));
    while (e->w->nasked > 0)
        respond(e->w, 0, 200, false, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_pod_that_runs_is_given_more, begin, end),
        cmocka_unit_test_setup_teardown(test_what_a_newer_scheduler_gave_stays, begin, end),
        cmocka_unit_test_setup_teardown(test_a_pod_on_its_way_is_given_more, begin, end),
        cmocka_unit_test_setup_teardown(test_a_pod_that_is_being_bound_is_given_more, begin, end),
        cmocka_unit_test_setup_teardown(test_what_it_grows_by_is_kept, begin, end),
        cmocka_unit_test_setup_teardown(test_more_pods_than_may_use_it_are_not_given_more, begin,
                                        end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
