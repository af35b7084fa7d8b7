/* SPDX-License-Identifier: Apache-2.0 */

/* The claims controller where quotas hold a claim: what it writes, and when it tries again. */

#include "claims-writes-world.h"

#define HELD(rv, notes)                                                                            \
    "{\"metadata\":{\"name\":\"c\",\"namespace\":\"ns\",\"uid\":\"1\",\"resourceVersion\":\"" rv   \
    "\",\"finalizers\":[\"" CLAIM_FINALIZER "\"],\"annotations\":{" notes "}},\"spec\":{"          \
    "\"resources\":{\"requests\":{\"elasticgpu.io/gpu-core\":10}}" OF_CLASS(                       \
        "k") "},\"status\":{"                                                                      \
             "\"phase\":\"Pending\",\"conditions\":[{\"type\":\"Bound\",\"status\":\"False\","     \
             "\"reason\":"                                                                         \
             "\"QuotaExceeded\",\"message\":\"quota: 1 used\"}]}}"

/* The reason is in status and Event. Amounts that change are not a write each, but the claim goes
 * on as soon as there is quota. */
static void a_claim_waits_for_quota(void **state) {
    enum { TELL_MS = 30000 };
    struct world *w = *state;
    w->cards = 1;
    w->over_quota = 1;
    show(w, CLAIMS_CLASSES, CLASS(""));
    show(w, CLAIMS_CLAIMS, CLAIM("", 10, OF_CLASS("k"), ""));
    assert_int_equal(plan(w, T0), 1);
    const char *body = body_of(w, "claim:ns/c");
    assert_non_null(strstr(body, "\"reason\":\"QuotaExceeded\""));
    assert_non_null(strstr(body, "quota: 1 used"));
    assert_string_equal(w->events, "Warning ElasticGPUClaim c QuotaExceeded;");
    assert_int_equal(w->searches, 0);

    show(w, CLAIMS_CLAIMS, HELD("2", ""));
    w->over_quota = 2;
    assert_int_equal(plan(w, T0 + 500), 0);
    assert_int_equal(plan(w, T0 + TELL_MS - 1), 0);
    assert_int_equal(plan(w, T0 + TELL_MS), 1);
    assert_non_null(strstr(body_of(w, "claim:ns/c"), "quota: 2 used"));

    show(w, CLAIMS_CLAIMS, HELD("3", ""));
    w->over_quota = 0;
    assert_int_equal(plan(w, T0 + TELL_MS + 1), 1);
    assert_non_null(body_of(w, "new:ns/c"));
}

/* The pod whose node it is has to be placed anew, when it is let pass. */
static void a_selected_node_is_given_back(void **state) {
    struct world *w = *state;
    w->over_quota = 1;
    show(w, CLAIMS_CLASSES, CLASS(",\"bindingMode\":\"WaitForFirstConsumer\""));
    show(w, CLAIMS_CLAIMS, HELD("1", "\"" NOTE_SELECTED_NODE "\":\"node-a\""));
    assert_int_equal(plan(w, T0), 1);
    assert_non_null(strstr(body_of(w, "claim:ns/c"), "\"" NOTE_SELECTED_NODE "\":null"));
    assert_string_equal(w->events, "Warning ElasticGPUClaim c QuotaExceeded;");
}

/* A controller of another project is not asked either. */
static void no_other_provisioner_is_asked(void **state) {
    struct world *w = *state;
    w->over_quota = 1;
    show(w, CLAIMS_CLASSES,
         "{\"metadata\":{\"name\":\"k\",\"uid\":\"3\",\"resourceVersion\":\"1\"},"
         "\"provisioner\":\"example.com/x\"}");
    show(w, CLAIMS_CLAIMS, CLAIM("", 10, OF_CLASS("k"), ""));
    (void) plan(w, T0);
    assert_non_null(strstr(body_of(w, "claim:ns/c"), "QuotaExceeded"));
    w->over_quota = 0;
    (void) plan(w, T0 + SHOWN_MS);
    assert_non_null(strstr(body_of(w, "claim:ns/c"), "\"" NOTE_PROVISIONER "\":\"example.com/x\""));
}

/* What an administrator has made is not given to a claim beyond quota, also not to one that says
 * that it was bound before. */
static void an_elasticgpu_is_not_given_beyond_quota(void **state) {
    static const char *const claims[] = {
        CLAIM("", 10, OF_CLASS(""), ""),
        CLAIM("", 10, OF_CLASS("") NAMED("g"), ""),
        CLAIM(COMPLETED, 10, OF_CLASS("") NAMED("g"), ""),
    };
    for (size_t i = 0; i < sizeof(claims) / sizeof(claims[0]); i++) {
        struct world *w = *state;
        w->over_quota = 1;
        show(w, CLAIMS_EGPUS, EGPU("g", "", 10, "", AVAILABLE));
        show(w, CLAIMS_CLAIMS, claims[i]);
        (void) plan(w, T0);
        assert_null(body_of(w, "gpu:g"));
        assert_non_null(strstr(body_of(w, "claim:ns/c"), "QuotaExceeded"));
        w->over_quota = 0;
        (void) plan(w, T0 + SHOWN_MS);
        assert_non_null(strstr(body_of(w, "gpu:g"), "claimRef"));
        assert_int_equal(teardown(state), 0);
        assert_int_equal(setup(state), 0);
    }
}

/* One that names its claim from the start, as another controller writes it, takes no room. */
static void an_elasticgpu_that_names_its_claim_waits(void **state) {
    struct world *w = *state;
    w->over_quota = 1;
    show(w, CLAIMS_EGPUS, EGPU("g", "", 10, REF("c", "1"), ""));
    (void) plan(w, T0);
    assert_non_null(strstr(body_of(w, "gpu:g"), "\"reason\":\"QuotaExceeded\""));
    assert_non_null(strstr(body_of(w, "gpu:g"), "\"phase\":\"Pending\""));
    assert_string_equal(w->events, "Warning ElasticGPU g QuotaExceeded;");
    show(w, CLAIMS_EGPUS,
         EGPU("g", "", 10, REF("c", "1"),
              "\"phase\":\"Pending\",\"reason\":\"QuotaExceeded\",\"message\":\"quota: 1 used\""));
    w->over_quota = 2;
    assert_int_equal(plan(w, T0 + SHOWN_MS), 0);
    w->over_quota = 0;
    (void) plan(w, T0 + SHOWN_MS + 1);
    assert_non_null(strstr(body_of(w, "gpu:g"), "\"phase\":\"Available\""));
}

static void a_claim_does_not_grow_beyond_quota(void **state) {
    struct world *w = *state;
    w->over_quota = 1;
    show(w, CLAIMS_CLASSES, CLASS(",\"allowExpansion\":true"));
    show(w, CLAIMS_EGPUS, EGPU("g", "", 10, OF_CLASS("k") REF("c", "1"), BOUND));
    show(w, CLAIMS_CLAIMS, CLAIM(COMPLETED, 20, OF_CLASS("k") NAMED("g"), GRANTED(10)));
    assert_int_equal(plan(w, T0), 1);
    const char *body = body_of(w, "claim:ns/c");
    assert_non_null(strstr(body, "\"type\":\"Resizing\",\"status\":\"False\""));
    assert_non_null(strstr(body, "\"reason\":\"QuotaExceeded\""));
    assert_string_equal(w->events, "Warning ElasticGPUClaim c QuotaExceeded;");
    w->over_quota = 0;
    (void) plan(w, T0 + SHOWN_MS);
    assert_non_null(strstr(body_of(w, "gpu:g"), "\"elasticgpu.io/gpu-core\":\"20\""));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_claim_waits_for_quota, setup, teardown),
        cmocka_unit_test_setup_teardown(a_selected_node_is_given_back, setup, teardown),
        cmocka_unit_test_setup_teardown(no_other_provisioner_is_asked, setup, teardown),
        cmocka_unit_test_setup_teardown(an_elasticgpu_is_not_given_beyond_quota, setup, teardown),
        cmocka_unit_test_setup_teardown(an_elasticgpu_that_names_its_claim_waits, setup, teardown),
        cmocka_unit_test_setup_teardown(a_claim_does_not_grow_beyond_quota, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
