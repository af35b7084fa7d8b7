/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/units.h"
#include "kube/objects/resource_claim.h"
#include "kube/objects/share_config.h"

static struct json_parser *parser;
static struct resource_claim claim;

static int setup(void **state) {
    (void) state;
    parser = json_parser_new();
    return parser ? 0 : -1;
}

static int teardown(void **state) {
    (void) state;
    resource_claim_done(&claim);
    parser = json_parser_free(parser);
    return 0;
}

static int parse(const char *text) {
    struct json root;
    struct err err;

    resource_claim_done(&claim);
    if (json_parse(parser, text, strlen(text), &root, &err) < 0)
        fail_msg("%s: %s", err.text, text);
    return resource_claim_parse(root, &claim, &err);
}

#define META "'metadata':{'uid':'u1','namespace':'ns','name':'c','resourceVersion':'7'"

/* Quotes are single ones, so that the texts can be read. */
static int parse_as(const char *format, ...) {
    _cleanup_buf_ struct buf text = BUF_INIT(1 << 20);
    va_list ap;

    va_start(ap, format);
    buf_vprintf(&text, format, ap);
    va_end(ap);
    for (size_t i = 0; i < text.len; i++)
        if (text.data[i] == '\'')
            text.data[i] = '"';
    return parse(buf_str(&text));
}

static int parse_request(const char *exactly) {
    return parse_as("{" META "},'spec':{'devices':{'requests':[{'name':'gpu','exactly':"
                    "{'deviceClassName':'gpu.elasticgpu.io'%s}}]}}}",
                    exactly);
}

/* ---- spec ---- */

static void test_a_share_is_read(void **state) {
    (void) state;
    assert_int_equal(
        parse_as("{'metadata':{'uid':'u1','namespace':'ns','name':'c','resourceVersion':'7',"
                 "'creationTimestamp':'1970-01-01T00:00:09Z',"
                 "'finalizers':['resource.kubernetes.io/delete-protection'],"
                 "'deletionTimestamp':'2026-01-01T00:00:00Z',"
                 "'ownerReferences':[{'kind':'Pod','uid':'x'},"
                 "{'kind':'Pod','uid':'p1','controller':true}]},"
                 "'spec':{'devices':{'requests':[{'name':'gpu','exactly':{"
                 "'deviceClassName':'gpu.elasticgpu.io','allocationMode':'ExactCount','count':2,"
                 "'selectors':[{'cel':{'expression':'true'}}],"
                 "'capacity':{'requests':{'core':'30','memory':'20Gi'}}}}]}}}"),
        0);
    const struct device_choice *choice = &claim.requests[0].choices[0];

    assert_string_equal(claim.uid, "u1");
    assert_string_equal(claim.namespace, "ns");
    assert_string_equal(claim.version, "7");
    assert_string_equal(claim.owner_pod, "p1");
    assert_int_equal(claim.created, 9);
    assert_true(claim.protected && claim.deleting && !claim.allocated);
    assert_string_equal(claim.requests[0].name, "gpu");
    assert_string_equal(choice->name, "");
    assert_string_equal(choice->class, "gpu.elasticgpu.io");
    assert_int_equal(choice->count, 2);
    assert_true(choice->amounts.has_core && choice->amounts.has_memory);
    assert_int_equal(choice->amounts.core, 30);
    assert_int_equal(choice->amounts.memory, 20 * GIB);
    assert_string_equal(choice->amounts.odd, "");
    assert_string_equal(choice->selectors.v[0], "true");
}

static void test_what_is_not_named_is_absent(void **state) {
    (void) state;
    assert_int_equal(parse_request(""), 0);
    const struct device_choice *choice = &claim.requests[0].choices[0];

    assert_int_equal(choice->count, 1);
    assert_false(choice->amounts.has_core || choice->amounts.has_memory || choice->all);
    assert_false(choice->admin || claim.protected || claim.deleting);
    assert_int_equal(parse_request(",'allocationMode':'All','adminAccess':true,"
                                   "'tolerations':[{'operator':'Exists'}]"),
                     0);
    choice = &claim.requests[0].choices[0];
    assert_true(choice->all && choice->admin);
    assert_int_equal(choice->count, 0);
}

/* Kubernetes itself rounds them, or waits without a word. */
static void test_amounts_that_are_none_are_named(void **state) {
    static const struct {
        const char *amounts, *odd;
    } rows[] = {
        {"'core':'-5'", "core"},
        {"'core':'0.5'", "core"},
        {"'memory':'lots'", "memory"},
        {"'memory':null", "memory"},
        {"'cores':'5'", "cores"},
        {"'gpu.elasticgpu.io/core':'5'", "gpu.elasticgpu.io/core"},
        {"'core':'5','memory':'4Gi'", ""},
        {"'core':5", ""},
        {"'':'5'", "?"},
    };

    (void) state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[256];

        (void) snprintf(text, sizeof(text), ",'capacity':{'requests':{%s}}", rows[i].amounts);
        assert_int_equal(parse_request(text), 0);
        assert_string_equal(claim.requests[0].choices[0].amounts.odd, rows[i].odd);
    }
}

static void test_choices_in_their_order(void **state) {
    (void) state;
    assert_int_equal(parse_as("{" META "},'spec':{'devices':{'requests':[{'name':'gpu',"
                              "'firstAvailable':[{'name':'big','deviceClassName':'a',"
                              "'capacity':{'requests':{'memory':'200Gi'}}},"
                              "{'name':'small','deviceClassName':'b'}]}]}}}"),
                     0);
    assert_int_equal(claim.requests[0].nchoices, 2);
    assert_string_equal(claim.requests[0].choices[0].name, "big");
    assert_string_equal(claim.requests[0].choices[1].name, "small");
    assert_string_equal(claim.requests[0].choices[1].class, "b");
    /* A kind of request that is not known has no choice. */
    assert_int_equal(
        parse_as("{" META "},'spec':{'devices':{'requests':[{'name':'gpu','later':{}}]}}}"), 0);
    assert_int_equal(claim.requests[0].nchoices, 0);
}

static void test_constraints_and_configs(void **state) {
    (void) state;
    assert_int_equal(
        parse_as("{" META "},'spec':{'devices':{"
                 "'constraints':[{'requests':['a','b'],'matchAttribute':'gpu.elasticgpu.io/uuid'},"
                 "{'distinctAttribute':'gpu.elasticgpu.io/uuid'}],"
                 "'config':[{'requests':['a'],'opaque':{'driver':'gpu.elasticgpu.io',"
                 "'parameters':{'kind':'ShareConfig'}}},{'opaque':{'driver':'other'}}]}}}"),
        0);
    assert_int_equal(claim.nconstraints, 2);
    assert_string_equal(claim.constraints[0].match, "gpu.elasticgpu.io/uuid");
    assert_string_equal(claim.constraints[1].distinct, "gpu.elasticgpu.io/uuid");
    assert_int_equal(claim.nconfigs, 2);
    assert_string_equal(claim.configs[0].parameters, "{\"kind\":\"ShareConfig\"}");
    assert_string_equal(claim.configs[0].driver, "gpu.elasticgpu.io");
    assert_null(claim.configs[1].parameters);
    assert_true(device_requests_have(&claim.configs[0].requests, "a"));
    assert_true(device_requests_have(&claim.configs[0].requests, "a/small"));
    assert_false(device_requests_have(&claim.configs[0].requests, "ab"));
    assert_true(device_requests_have(&claim.configs[1].requests, "ab"));
}

/* ---- status ---- */

#define RESULT "'request':'gpu','driver':'gpu.elasticgpu.io','pool':'n1','device':'gpu-0'"

static void test_an_allocation_is_read(void **state) {
    (void) state;
    assert_int_equal(
        parse_as("{" META "},'status':{'allocation':{'devices':{'results':[{" RESULT
                 ",'shareID':'1b4e28ba-2fa1-11d2-883f-0016d3cca427',"
                 "'consumedCapacity':{'core':'30','memory':'20Gi'}}],"
                 "'config':[{'source':'FromClass','opaque':{'driver':'d','parameters':{}}},"
                 "{'source':'FromClaim','opaque':{'driver':'d','parameters':{}}}]},"
                 "'nodeSelector':{'nodeSelectorTerms':[{'matchFields':[{'key':'metadata.name',"
                 "'operator':'In','values':['n1']}]}]}},"
                 "'reservedFor':[{'resource':'pods','name':'p','uid':'p1'},"
                 "{'apiGroup':'x','resource':'pods','name':'p','uid':'p2'}]}}"),
        0);
    assert_true(claim.allocated && resource_claim_is_ours(&claim));
    assert_string_equal(claim.node, "n1");
    assert_int_equal(claim.nresults, 1);
    assert_string_equal(claim.results[0].pool, "n1");
    assert_string_equal(claim.results[0].device, "gpu-0");
    assert_string_equal(claim.results[0].share, "1b4e28ba-2fa1-11d2-883f-0016d3cca427");
    assert_int_equal(claim.results[0].consumed.core, 30);
    assert_true(claim.allocated_configs[0].from_class && !claim.allocated_configs[1].from_class);
    assert_true(resource_claim_is_for(&claim, "p1"));
    assert_false(resource_claim_is_for(&claim, "p2"));
}

static void test_other_selectors_are_no_node(void **state) {
    static const char *const selectors[] = {
        "{}",
        "{'nodeSelectorTerms':[]}",
        "{'nodeSelectorTerms':[{'matchExpressions':[{'key':'zone','operator':'In','values':['z']}]}"
        "]}",
        "{'nodeSelectorTerms':[{'matchFields':[{'key':'metadata.name','operator':'NotIn','values':["
        "'n1']}]}]}",
        "{'nodeSelectorTerms':[{'matchFields':[{'key':'metadata.name','operator':'In','values':['"
        "n1','n2']}]}]}",
        "{'nodeSelectorTerms':[{'matchFields':[{'key':'metadata.name','operator':'In','values':['"
        "n1']}]},{}]}",
        "{'nodeSelectorTerms':[{'matchFields':[{'key':'metadata.name','operator':'In','values':[5]}"
        "]}]}",
    };

    (void) state;
    for (size_t i = 0; i < sizeof(selectors) / sizeof(selectors[0]); i++) {
        assert_int_equal(
            parse_as("{" META "},'status':{'allocation':{'nodeSelector':%s}}}", selectors[i]), 0);
        assert_true(claim.allocated);
        assert_string_equal(claim.node, "");
        assert_false(resource_claim_is_ours(&claim));
    }
}

/* ---- hostile input ---- */

#define TEN(x) x x x x x x x x x x
#define LONG TEN(TEN("0123456789"))

static void test_what_is_no_claim_is_refused(void **state) {
    static const char *const texts[] = {
        "[]",
        "{}",
        "{'metadata':{'uid':'u','name':'c'}}",
        "{'metadata':{'uid':'u','namespace':'ns','name':5}}",
        "{'metadata':{'uid':'u','namespace':'ns','name':'" LONG "'}}",
        "{" META "},'spec':{'devices':{'requests':{'a':{}}}}}",
        "{" META "},'spec':{'devices':{'requests':[{}]}}}",
        "{" META "},'spec':{'devices':{'requests':[7]}}}",
        "{" META "},'spec':{'devices':{'requests':[{'name':'gpu','exactly':{}}]}}}",
        "{" META "},'spec':{'devices':{'requests':[{'name':'gpu','exactly':"
        "{'deviceClassName':'c','count':0}}]}}}",
        "{" META "},'spec':{'devices':{'requests':[{'name':'gpu','exactly':"
        "{'deviceClassName':'c','count':-1}}]}}}",
        "{" META "},'spec':{'devices':{'requests':[{'name':'gpu','exactly':"
        "{'deviceClassName':'c','selectors':[{'lua':{}}]}}]}}}",
        "{" META "},'status':{'allocation':{'devices':{'results':[{}]}}}}",
        "{" META "},'status':{'reservedFor':[{'name':'p'}]}}",
        "{" META "},'spec':{'devices':{'constraints':[{'matchAttribute':'" LONG "'}]}}}",
    };

    (void) state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (parse_as("%s", texts[i]) != -EINVAL)
            fail_msg("accepted: %s", texts[i]);
}

static void put_many(struct buf *text, const char *before, const char *item, unsigned n,
                     const char *after) {
    buf_puts(text, before);
    for (unsigned i = 0; i < n; i++)
        buf_printf(text, "%s%s", i ? "," : "", item);
    buf_puts(text, after);
}

static void test_lists_have_limits(void **state) {
    static const struct {
        const char *before, *item;
        unsigned max;
        const char *after;
    } rows[] = {
        {"'spec':{'devices':{'requests':[", "{'name':'gpu'}", DEVICE_REQUESTS_MAX, "]}}"},
        {"'spec':{'devices':{'requests':[{'name':'gpu','firstAvailable':[",
         "{'name':'a','deviceClassName':'c'}", DEVICE_CHOICES_MAX, "]}]}}"},
        {"'spec':{'devices':{'config':[", "{}", DEVICE_REQUESTS_MAX, "]}}"},
        {"'status':{'allocation':{'devices':{'results':[", "{" RESULT "}", DEVICE_RESULTS_MAX,
         "]}}}"},
        {"'status':{'reservedFor':[", "{'name':'p','uid':'u'}", DEVICE_USERS_MAX, "]}"},
    };

    (void) state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        for (unsigned more = 0; more < 2; more++) {
            _cleanup_buf_ struct buf text = BUF_INIT(1 << 20);

            put_many(&text, rows[i].before, rows[i].item, rows[i].max + more, rows[i].after);
            assert_int_equal(parse_as("{" META "},%s}", buf_str(&text)), more ? -EINVAL : 0);
        }
}

static void test_parameters_have_a_limit(void **state) {
    (void) state;
    assert_int_equal(
        parse_as("{" META
                 "},'spec':{'devices':{'config':[{'opaque':{'parameters':'" TEN(LONG) "'}}]}}}"),
        0);
    assert_int_equal(parse_as("{" META
                              "},'spec':{'devices':{'config':[{'opaque':{'parameters':'" TEN(LONG)
                                  LONG "'}}]}}}"),
                     -EINVAL);
}

/* ---- ShareConfig ---- */

#define CONFIG_HEAD "{'apiVersion':'gpu.elasticgpu.io/v1alpha1','kind':'ShareConfig'"

static int read_config(const char *text, struct share_config *ret, struct err *err) {
    char quoted[512];
    struct json root;

    (void) snprintf(quoted, sizeof(quoted), "%s", text);
    for (char *c = quoted; *c; c++)
        if (*c == '\'')
            *c = '"';
    if (json_parse(parser, quoted, strlen(quoted), &root, err) < 0)
        fail_msg("%s: %s", err->text, text);
    return share_config_read(root, ret, err);
}

static void test_a_share_config_is_read(void **state) {
    struct share_config c = {0};
    struct err err;

    (void) state;
    assert_int_equal(read_config(CONFIG_HEAD ",'computePolicy':'burst','weight':50,'ceiling':100,"
                                             "'placementPolicy':'best-fit'}",
                                 &c, &err),
                     0);
    assert_string_equal(c.compute_policy, "burst");
    assert_string_equal(c.placement_policy, "best-fit");
    assert_int_equal(c.weight, 50);
    assert_int_equal(c.ceiling, 100);
    /* What a second one does not name stays. */
    assert_int_equal(read_config(CONFIG_HEAD ",'weight':7}", &c, &err), 0);
    assert_string_equal(c.compute_policy, "burst");
    assert_int_equal(c.weight, 7);
}

static void test_bad_share_configs_are_named(void **state) {
    static const struct {
        const char *text, *word;
    } rows[] = {
        {"{}", "apiVersion gpu.elasticgpu.io/v1alpha1 and kind ShareConfig"},
        {"[]", "must be an object"},
        {"{'kind':'ShareConfig'}", "must be an object"},
        {"{'apiVersion':'gpu.elasticgpu.io/v2','kind':'ShareConfig'}",
         "apiVersion must be gpu.elasticgpu.io/v1alpha1"},
        {"{'apiVersion':'gpu.elasticgpu.io/v1alpha1','kind':'MpsConfig'}",
         "kind must be ShareConfig"},
        {CONFIG_HEAD ",'wieght':5}", "no field wieght"},
        {CONFIG_HEAD ",'weight':'5'}", "weight must be a whole number from 1 to 100"},
        {CONFIG_HEAD ",'weight':0}", "weight must be a whole number from 1 to 100"},
        {CONFIG_HEAD ",'weight':1.5}", "weight must be a whole number from 1 to 100"},
        {CONFIG_HEAD ",'ceiling':101}", "ceiling must be a whole number from 1 to 100"},
        {CONFIG_HEAD ",'computePolicy':5}", "computePolicy must be"},
        {CONFIG_HEAD ",'computePolicy':''}", "computePolicy must be"},
        {CONFIG_HEAD ",'computePolicy':'a b'}", "computePolicy must be"},
        {CONFIG_HEAD ",'placementPolicy':'greedy'}",
         "first-fit, best-fit, binpack, spread, fgd or esc"},
        {CONFIG_HEAD ",'placementPolicy':null}", "placementPolicy must be"},
    };

    (void) state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct share_config c = {.weight = 9};
        struct err err;

        assert_int_equal(read_config(rows[i].text, &c, &err), -EINVAL);
        if (!strstr(err.text, rows[i].word))
            fail_msg("%s: %s", rows[i].text, err.text);
        assert_int_equal(c.weight, 9);
    }
}

static void test_the_claim_counts_before_the_class(void **state) {
    struct share_config c;
    struct err err;

    (void) state;
    assert_int_equal(
        parse_as("{" META "},'status':{'allocation':{'devices':{'config':["
                 "{'source':'FromClaim','requests':['a'],'opaque':{'driver':'gpu.elasticgpu.io',"
                 "'parameters':" CONFIG_HEAD ",'weight':5}}},"
                 "{'source':'FromClass','opaque':{'driver':'gpu.elasticgpu.io',"
                 "'parameters':" CONFIG_HEAD ",'weight':80,'ceiling':90}}},"
                 "{'source':'FromClaim','opaque':{'driver':'other','parameters':{}}}]}}}}"),
        0);
    assert_int_equal(
        share_config_of(claim.allocated_configs, claim.nallocated_configs, "a", &c, &err), 0);
    assert_int_equal(c.weight, 5);
    assert_int_equal(c.ceiling, 90);
    assert_int_equal(
        share_config_of(claim.allocated_configs, claim.nallocated_configs, "b/x", &c, &err), 0);
    assert_int_equal(c.weight, 80);
    assert_int_equal(parse_as("{" META "},'spec':{'devices':{'config':["
                              "{'opaque':{'driver':'gpu.elasticgpu.io'}}]}}}"),
                     0);
    assert_int_equal(share_config_of(claim.configs, claim.nconfigs, "a", &c, &err), -EINVAL);
}

/* ---- DeviceClass ---- */

static int parse_class(char *text, struct device_class *ret) {
    struct json root;
    struct err err;

    for (char *c = text; *c; c++)
        if (*c == '\'')
            *c = '"';
    if (json_parse(parser, text, strlen(text), &root, &err) < 0)
        fail_msg("%s: %s", err.text, text);
    return device_class_parse(root, ret, &err);
}

static void test_a_class_is_read(void **state) {
    char ours[] = "{'metadata':{'name':'gpu.elasticgpu.io','labels':{"
                  "'gpu.elasticgpu.io/allocator':'aliquot'}},'spec':{'selectors':[{'cel':"
                  "{'expression':'false'}}],'config':[{'opaque':{'driver':'gpu.elasticgpu.io',"
                  "'parameters':{}}}]}}";
    char other[] = "{'metadata':{'name':'x','labels':{'gpu.elasticgpu.io/allocator':"
                   "'kube-scheduler'}},'spec':{}}";
    char bad[] = "{'metadata':{'name':'x'},'spec':{'selectors':[{}]}}", none[] = "{}";
    struct device_class class;

    (void) state;
    assert_int_equal(parse_class(ours, &class), 0);
    assert_string_equal(class.name, "gpu.elasticgpu.io");
    assert_true(class.by_aliquot);
    assert_string_equal(class.selectors.v[0], "false");
    assert_int_equal(class.nconfigs, 1);
    assert_true(class.configs[0].from_class);
    device_class_done(&class);
    assert_int_equal(parse_class(other, &class), 0);
    assert_false(class.by_aliquot);
    device_class_done(&class);
    assert_int_equal(parse_class(bad, &class), -EINVAL);
    assert_int_equal(parse_class(none, &class), -EINVAL);
}

/* The label alone would leave the same claims to two allocators. */
static void test_a_class_of_ours_keeps_kube_scheduler_off(void **state) {
    static const char *const selectors[] = {"", "{'cel':{'expression':'true'}}",
                                            "{'cel':{'expression':'false'}},"
                                            "{'cel':{'expression':'false'}}"};
    struct device_class class;

    (void) state;
    for (size_t i = 0; i < sizeof(selectors) / sizeof(selectors[0]); i++) {
        char text[512];

        (void) snprintf(text, sizeof(text),
                        "{'metadata':{'name':'x','labels':{'gpu.elasticgpu.io/allocator':"
                        "'aliquot'}},'spec':{'selectors':[%s]}}",
                        selectors[i]);
        assert_int_equal(parse_class(text, &class), 0);
        assert_false(class.by_aliquot);
        device_class_done(&class);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_class_of_ours_keeps_kube_scheduler_off),
        cmocka_unit_test(test_a_share_is_read),
        cmocka_unit_test(test_what_is_not_named_is_absent),
        cmocka_unit_test(test_amounts_that_are_none_are_named),
        cmocka_unit_test(test_choices_in_their_order),
        cmocka_unit_test(test_constraints_and_configs),
        cmocka_unit_test(test_an_allocation_is_read),
        cmocka_unit_test(test_other_selectors_are_no_node),
        cmocka_unit_test(test_what_is_no_claim_is_refused),
        cmocka_unit_test(test_lists_have_limits),
        cmocka_unit_test(test_parameters_have_a_limit),
        cmocka_unit_test(test_a_share_config_is_read),
        cmocka_unit_test(test_a_class_is_read),
        cmocka_unit_test(test_bad_share_configs_are_named),
        cmocka_unit_test(test_the_claim_counts_before_the_class),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
