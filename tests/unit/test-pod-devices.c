/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/units.h"
#include "kube/objects/pod_devices.h"

static struct json_parser *parser;
static struct pod_devices pod;

static int setup(void **state) {
    (void) state;
    parser = json_parser_new();
    return parser ? 0 : -1;
}

static int teardown(void **state) {
    (void) state;
    pod_devices_done(&pod);
    parser = json_parser_free(parser);
    return 0;
}

/* Quotes are single ones, so that the texts can be read. */
static int parse(const char *format, ...) {
    _cleanup_buf_ struct buf text = BUF_INIT(1 << 20);
    struct json root;
    struct err err;
    va_list ap;

    va_start(ap, format);
    buf_vprintf(&text, format, ap);
    va_end(ap);
    for (size_t i = 0; i < text.len; i++)
        if (text.data[i] == '\'')
            text.data[i] = '"';
    if (json_parse(parser, buf_str(&text), text.len, &root, &err) < 0)
        fail_msg("%s: %s", err.text, buf_str(&text));
    pod_devices_done(&pod);
    return pod_devices_parse(root, &pod, &err);
}

#define META "'metadata':{'uid':'u','namespace':'ns','name':'p'}"
#define CLAIM "'resourceClaims':[{'name':'gpu','resourceClaimName':'c'}]"

static void test_a_pod_without_claims_is_none(void **state) {
    (void) state;
    assert_int_equal(parse("{" META ",'spec':{}}"), 0);
    assert_int_equal(parse("{}"), 0);
    assert_int_equal(parse("{" META ",'spec':{'resourceClaims':[]}}"), 0);
}

static void test_claims_by_name_and_by_template(void **state) {
    (void) state;
    assert_int_equal(
        parse("{'metadata':{'uid':'u','namespace':'ns','name':'p','deletionTimestamp':'x',"
              "'creationTimestamp':'1970-01-01T00:00:05Z'},"
              "'spec':{'nodeName':'n1','priority':7,'resourceClaims':[{'name':'a',"
              "'resourceClaimName':'standing'},{'name':'b','resourceClaimTemplateName':'t'},"
              "{'name':'c','resourceClaimTemplateName':'t'}],'containers':[{'name':'m',"
              "'resources':{'requests':{'cpu':'500m','memory':'1Gi'}}}]},"
              "'status':{'resourceClaimStatuses':[{'name':'b','resourceClaimName':'p-b-x'}]}}"),
        1);
    assert_int_equal(pod.nclaims, 3);
    assert_string_equal(pod.claims[0].claim, "standing");
    assert_string_equal(pod.claims[1].claim, "p-b-x");
    assert_string_equal(pod.claims[2].claim, "");
    assert_string_equal(pod.node, "n1");
    assert_true(pod.deleting);
    assert_int_equal(pod.created, 5);
    assert_int_equal(pod.priority, 7);
    assert_int_equal(pod.room.cpu, 500);
    assert_int_equal(pod.room.memory, GIB);
}

static void test_gates_are_told_apart(void **state) {
    static const struct {
        const char *gates;
        bool ours, others;
    } rows[] = {
        {"", false, false},
        {"{'name':'gpu.elasticgpu.io/placement'}", true, false},
        {"{'name':'kueue.x-k8s.io/admission'}", false, true},
        {"{'name':'a'},{'name':'gpu.elasticgpu.io/placement'}", true, true},
    };

    (void) state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(
            parse("{" META ",'spec':{" CLAIM ",'schedulingGates':[%s]}}", rows[i].gates), 1);
        assert_int_equal(pod.gated, rows[i].ours);
        assert_int_equal(pod.gated_by_others, rows[i].others);
    }
}

#define REQUIRED                                                                                   \
    "'affinity':{'nodeAffinity':{'requiredDuringSchedulingIgnoredDuringExecution':"                \
    "{'nodeSelectorTerms':[{'matchExpressions':[{'key':'zone','operator':'In',"                    \
    "'values':['a','b']}]}]}}}"

static void test_nodes_that_the_pod_names(void **state) {
    (void) state;
    assert_int_equal(parse("{" META ",'spec':{" CLAIM "}}"), 1);
    assert_true(pod_devices_may_be_on(&pod, NULL, "n"));
    assert_int_equal(parse("{" META ",'spec':{" CLAIM ",'nodeSelector':{'disk':'ssd'}," REQUIRED
                           ",'tolerations':[{'operator':'Exists'}]}}"),
                     1);
    assert_true(pod_devices_may_be_on(&pod, "disk=ssd,zone=b,", "n"));
    assert_false(pod_devices_may_be_on(&pod, "disk=ssd,zone=c,", "n"));
    assert_false(pod_devices_may_be_on(&pod, "zone=b,", "n"));
    assert_false(pod_devices_may_be_on(&pod, NULL, "n"));
    assert_string_equal(pod.tolerations, "[{\"operator\":\"Exists\"}]");
}

static void test_bounds(void **state) {
    _cleanup_buf_ struct buf many = BUF_INIT(1 << 20);

    (void) state;
    for (int i = 0; i <= POD_DEVICE_CLAIMS_MAX; i++)
        buf_printf(&many, "%s{'name':'a','resourceClaimName':'c'}", i ? "," : "");
    assert_int_equal(parse("{" META ",'spec':{'resourceClaims':[%s]}}", buf_str(&many)), 1);
    assert_true(pod.too_many);
    assert_int_equal(pod.nclaims, POD_DEVICE_CLAIMS_MAX);
    buf_reset(&many);
    for (int i = 0; i <= NODE_SELECTOR_MAX; i++)
        buf_printf(&many, "%s{}", i ? "," : "");
    assert_int_equal(
        parse("{" META ",'spec':{" CLAIM ",'affinity':{'nodeAffinity':{"
              "'requiredDuringSchedulingIgnoredDuringExecution':{'nodeSelectorTerms':[%s]}}}}}",
              buf_str(&many)),
        1);
    assert_true(pod_devices_may_be_on(&pod, NULL, "n")); /* kube-scheduler knows better */
    assert_int_equal(parse("{" META ",'spec':{'resourceClaims':[{}]}}"), -EINVAL);
    assert_int_equal(parse("{" META ",'spec':{'resourceClaims':{'a':{}}}}"), -EINVAL);
    assert_int_equal(parse("{'metadata':{'uid':'u','name':'p'},'spec':{" CLAIM "}}"), -EINVAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_pod_without_claims_is_none),
        cmocka_unit_test(test_claims_by_name_and_by_template),
        cmocka_unit_test(test_gates_are_told_apart),
        cmocka_unit_test(test_nodes_that_the_pod_names),
        cmocka_unit_test(test_bounds),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
