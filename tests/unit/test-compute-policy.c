/* SPDX-License-Identifier: Apache-2.0 */

/* What pods ask by annotations, and what becomes of it. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "agent/shares/compute_policy.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "wire/json.h"

static const struct compute_policy_node everything = {SHARE_FIXED, UINT32_MAX, true};

static void read_pod(const char *annotations, struct pod *ret) {
    _cleanup_json_ struct json_parser *parser = NULL;
    char text[1024];
    struct json root;

    (void) snprintf(text, sizeof(text),
                    "{\"metadata\":{\"uid\":\"u\",\"name\":\"p\",\"namespace\":\"n\","
                    "\"annotations\":{%s}},\"spec\":{\"containers\":[]}}",
                    annotations);
    assert_int_equal(json_open(text, strlen(text), &parser, &root, NULL), 0);
    assert_int_equal(pod_parse(root, ret, NULL), 0);
}

static int terms_of(const struct compute_policy_node *node, const char *annotations,
                    const char *container, uint32_t core, struct slot_terms *ret, struct err *why) {
    struct pod pod;
    int r;

    read_pod(annotations, &pod);
    r = compute_policy_read(node, &pod, container, core, ret, why);
    pod_done(&pod);
    return r;
}

static void test_what_holds_where_nothing_is_asked(void **state) {
    const struct compute_policy_node burst = {SHARE_BURST, 0, false};
    struct slot_terms t;
    struct err why;

    (void) state;
    assert_int_equal(terms_of(&everything, "", "main", 30, &t, &why), 0);
    assert_int_equal(t.policy, SHARE_FIXED);
    assert_true(t.slices);
    assert_int_equal(terms_of(&burst, "", "main", 30, &t, &why), 0);
    assert_int_equal(t.policy, SHARE_BURST);
    assert_false(t.slices);
    /* No share, or all of the card: what there is. */
    assert_int_equal(terms_of(&burst, "", "main", 0, &t, &why), 0);
    assert_int_equal(t.policy, SHARE_BEST_EFFORT);
    assert_int_equal(terms_of(&burst, "", "main", 100, &t, &why), 0);
    assert_int_equal(t.policy, SHARE_BEST_EFFORT);
    assert_int_equal(t.weight + t.ceiling + (int) t.memory_limit, 0);
}

static void test_fixed_is_of_a_part(void **state) {
    const char *text = "\"elasticgpu.io/compute-policy\":\"fixed\"";
    struct slot_terms t;
    struct err why;

    (void) state;
    /* Nothing, never more, would be nothing. */
    assert_int_equal(terms_of(&everything, text, "main", 0, &t, &why), -EINVAL);
    assert_int_equal(t.policy, SHARE_BEST_EFFORT);
    assert_non_null(strstr(why.text, "gpu-core"));
    assert_int_equal(terms_of(&everything, text, "main", 100, &t, &why), 0);
    assert_int_equal(t.policy, SHARE_BEST_EFFORT);
}

static void test_all_four(void **state) {
    struct slot_terms t;
    struct err why;

    (void) state;
    assert_int_equal(terms_of(&everything,
                              "\"elasticgpu.io/compute-policy\":\"weighted\","
                              "\"elasticgpu.io/compute-weight\":\"7\","
                              "\"elasticgpu.io/compute-ceiling\":\"60\","
                              "\"elasticgpu.io/memory-limit\":\"2Gi\"",
                              "main", 30, &t, &why),
                     0);
    assert_int_equal(t.policy, SHARE_WEIGHTED);
    assert_int_equal(t.weight, 7);
    assert_int_equal(t.ceiling, 60);
    assert_int_equal(t.memory_limit, 2ull << 30);
}

static void test_each_container_its_own(void **state) {
    const char *text = "\"elasticgpu.io/compute-policy\":\" burst , side = offline,other=fixed\"";
    struct slot_terms t;
    struct err why;

    (void) state;
    assert_int_equal(terms_of(&everything, text, "main", 30, &t, &why), 0);
    assert_int_equal(t.policy, SHARE_BURST);
    assert_int_equal(terms_of(&everything, text, "side", 30, &t, &why), 0);
    assert_int_equal(t.policy, SHARE_OFFLINE);
    assert_int_equal(terms_of(&everything, text, "sid", 30, &t, &why), 0);
    assert_int_equal(t.policy, SHARE_BURST);
}

static void test_names_of_others(void **state) {
    struct slot_terms t;
    struct err why;

    (void) state;
    assert_int_equal(terms_of(&everything, "\"tke.cloud.tencent.com/app-class\":\"online\"", "main",
                              0, &t, &why),
                     0);
    assert_int_equal(t.policy, SHARE_ONLINE);
    /* Ours counts where both are there. */
    assert_int_equal(terms_of(&everything,
                              "\"tke.cloud.tencent.com/app-class\":\"online\","
                              "\"elasticgpu.io/compute-policy\":\"burst-share\"",
                              "main", 20, &t, &why),
                     0);
    assert_int_equal(t.policy, SHARE_BURST);
    assert_int_equal(
        terms_of(&everything, "\"tencent.com/vcuda-core-limit\":\"50\"", "main", 20, &t, &why), 0);
    assert_int_equal(t.policy, SHARE_BURST);
    assert_int_equal(t.ceiling, 50);
}

static void test_nonsense_changes_nothing_and_says_so(void **state) {
    static const char *const bad[] = {
        "\"elasticgpu.io/compute-policy\":\"greedy\"",
        "\"elasticgpu.io/compute-policy\":\"\\u0000\"",
        "\"elasticgpu.io/compute-weight\":\"0\"",
        "\"elasticgpu.io/compute-weight\":\"101\"",
        "\"elasticgpu.io/compute-weight\":\"-1\"",
        "\"elasticgpu.io/compute-ceiling\":\"150\"",
        "\"elasticgpu.io/compute-ceiling\":\"50%\"",
        "\"elasticgpu.io/memory-limit\":\"0\"",
        "\"elasticgpu.io/memory-limit\":\"lots\"",
        "\"elasticgpu.io/memory-limit\":\"-1Gi\"",
    };

    (void) state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct slot_terms t;
        struct err why;
        int r = terms_of(&everything, bad[i], "main", 30, &t, &why);

        /* A text with a NUL is none. */
        assert_int_equal(r, strstr(bad[i], "u0000") ? 0 : -EINVAL);
        if (r < 0)
            assert_non_null(strstr(why.text, "has no effect"));
        assert_int_equal(t.policy, SHARE_FIXED);
        assert_int_equal(t.weight + t.ceiling + (int) t.memory_limit, 0);
    }
}

static void test_one_bad_annotation_does_not_spoil_the_others(void **state) {
    struct slot_terms t;
    struct err why;

    (void) state;
    assert_int_equal(terms_of(&everything,
                              "\"elasticgpu.io/compute-policy\":\"nonsense\","
                              "\"elasticgpu.io/compute-ceiling\":\"40\"",
                              "main", 30, &t, &why),
                     -EINVAL);
    assert_non_null(strstr(why.text, "compute-policy"));
    assert_int_equal(t.policy, SHARE_FIXED);
    assert_int_equal(t.ceiling, 40);
}

static void test_the_node_says_what_pods_may(void **state) {
    struct compute_policy_node node = {SHARE_FIXED, 0, false};
    struct slot_terms t;
    struct err why;

    (void) state;
    assert_int_equal(compute_policies_parse("fixed,burst-share", &node.pods_may), 0);
    assert_int_equal(
        terms_of(&node, "\"elasticgpu.io/compute-policy\":\"online\"", "main", 30, &t, &why),
        -EPERM);
    assert_int_equal(t.policy, SHARE_FIXED);
    assert_non_null(strstr(why.text, "--pod-policies"));
    assert_int_equal(
        terms_of(&node, "\"elasticgpu.io/compute-policy\":\"burst\"", "main", 30, &t, &why), 0);
    assert_int_equal(t.policy, SHARE_BURST);
    assert_int_equal(compute_policies_parse("fixed,greedy", &node.pods_may), -EINVAL);
    assert_int_equal(compute_policies_parse("default", &node.pods_may), -EINVAL);
    assert_int_equal(compute_policies_parse("none", &node.pods_may), 0);
    assert_int_equal(node.pods_may, 0);
    assert_int_equal(
        terms_of(&node, "\"tencent.com/vcuda-core-limit\":\"50\"", "main", 20, &t, &why), 0);
    assert_int_equal(t.policy, SHARE_FIXED);
}

/* Five seconds of polls, 500 ms apart. */
static bool five_seconds(struct audit_compute *o, uint32_t percent, uint32_t entitled) {
    bool found = false;

    for (int i = 0; i < 10; i++)
        found = audit_compute_poll(o, 500000000, percent, entitled);
    return found;
}

static void test_more_time_than_there_was_to_have(void **state) {
    struct audit_compute o = {0};

    (void) state;
    assert_false(five_seconds(&o, 30, 300000));
    assert_false(five_seconds(&o, 49, 300000));
    assert_true(five_seconds(&o, 52, 300000));
    assert_true(o.over);
    assert_false(five_seconds(&o, 100, UINT32_MAX));
    assert_false(o.over);
    (void) audit_compute_poll(&o, 5000000000, 0, 300000);
    /* What it could have went up and down between the polls; it took what it was given. */
    for (int i = 0; i < 10; i++)
        assert_false(audit_compute_poll(&o, 500000000, 90, i % 2 ? 1000000 : 300000));
    (void) audit_compute_poll(&o, 5000000000, 0, 300000);
    /* One late figure is no proof. */
    for (int i = 0; i < 9; i++)
        assert_false(audit_compute_poll(&o, 500000000, 30, 300000));
    assert_false(audit_compute_poll(&o, 500000000, 100, 300000));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_holds_where_nothing_is_asked),
        cmocka_unit_test(test_fixed_is_of_a_part),
        cmocka_unit_test(test_all_four),
        cmocka_unit_test(test_each_container_its_own),
        cmocka_unit_test(test_names_of_others),
        cmocka_unit_test(test_nonsense_changes_nothing_and_says_so),
        cmocka_unit_test(test_one_bad_annotation_does_not_spoil_the_others),
        cmocka_unit_test(test_the_node_says_what_pods_may),
        cmocka_unit_test(test_more_time_than_there_was_to_have),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
