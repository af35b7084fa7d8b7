/* SPDX-License-Identifier: Apache-2.0 */

/* What selectors require of labels. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "kube/api/labels.h"

static struct json parse(const char *text) {
    static struct json_parser *parser;
    struct json root;
    if (!parser)
        parser = json_parser_new();
    assert_int_equal(json_parse(parser, text, strlen(text), &root, NULL), 0);
    return root;
}

static void test_labels_as_text(void **unused) {
    char *text = NULL;
    (void) unused;
    assert_int_equal(labels_read(parse("{\"a\":\"b\",\"c\":\"\",\"d\":1}"), &text), 0);
    assert_string_equal(text, "a=b,c=,");
    free(text);
    assert_int_equal(labels_read(parse("{}"), &text), 0);
    assert_null(text);
}

#define EXPRESSION(key, operator, values)                                                          \
    "{\"key\":\"" key "\",\"operator\":\"" operator"\",\"values\":[" values "]}"
#define LABELS "zone=z1,cards=8,x=,"

static void test_nodes(void **unused) {
    static const struct {
        const char *selector;
        bool holds; /* of node n with LABELS */
    } rows[] = {
        {"[]", true},
        {"{}", true},
        {"[{}]", false}, /* an empty term matches nothing */
        {"[{\"matchExpressions\":[" EXPRESSION("zone", "In", "\"z2\",\"z1\"") "]}]", true},
        {"[{\"matchExpressions\":[" EXPRESSION("zone", "In", "\"z\"") "]}]", false},
        {"[{\"matchExpressions\":[" EXPRESSION("zone", "NotIn", "\"z1\"") "]}]", false},
        {"[{\"matchExpressions\":[" EXPRESSION("other", "NotIn", "\"z1\"") "]}]", true},
        {"[{\"matchExpressions\":[" EXPRESSION("x", "Exists", "") "]}]", true},
        {"[{\"matchExpressions\":[" EXPRESSION("x", "DoesNotExist", "") "]}]", false},
        {"[{\"matchExpressions\":[" EXPRESSION("cards", "Gt", "\"7\"") "]}]", true},
        {"[{\"matchExpressions\":[" EXPRESSION("cards", "Gt", "\"8\"") "]}]", false},
        {"[{\"matchExpressions\":[" EXPRESSION("cards", "Lt", "\"10\"") "]}]", true},
        {"[{\"matchExpressions\":[" EXPRESSION("zone", "Lt", "\"10\"") "]}]", false},
        {"[{\"matchExpressions\":[" EXPRESSION("cards", "Lt", "\"many\"") "]}]", false},
        {"[{\"matchExpressions\":[" EXPRESSION("zone", "Near", "\"z1\"") "]}]", false},
        {"[{\"matchFields\":[" EXPRESSION("metadata.name", "In", "\"m\",\"n\"") "]}]", true},
        {"[{\"matchFields\":[" EXPRESSION("metadata.name", "NotIn", "\"n\"") "]}]", false},
        {"[{\"matchFields\":[" EXPRESSION("metadata.uid", "In", "\"n\"") "]}]", false},
        /* a label of that name is no field */
        {"[{\"matchExpressions\":[" EXPRESSION("metadata.name", "In", "\"n\"") "]}]", false},
        /* all of a term, one of the terms */
        {"[{\"matchExpressions\":[" EXPRESSION(
             "zone", "In", "\"z1\"") "],\"matchFields\":[" EXPRESSION("metadata.name", "In",
                                                                      "\"m\"") "]}]",
         false},
        {"[{},{\"matchExpressions\":[" EXPRESSION("zone", "In", "\"z1\"") "]}]", true},
        /* allowedTopologies */
        {"[{\"matchLabelExpressions\":[{\"key\":\"zone\",\"values\":[\"z1\"]}]}]", true},
        {"[{\"matchLabelExpressions\":[{\"key\":\"zone\",\"values\":[\"z1\"]},"
         "{\"key\":\"cards\",\"values\":[\"4\"]}]}]",
         false},
    };
    (void) unused;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct node_selector s;
        assert_int_equal(node_selector_read(parse(rows[i].selector), &s), 0);
        if (node_selector_holds(&s, LABELS, "n") != rows[i].holds)
            fail_msg("%s", rows[i].selector);
        (void) node_selector_holds(&s, NULL, "n");
        node_selector_done(&s);
    }
}

static void test_bounds(void **unused) {
    struct buf text = BUF_INIT(0);
    struct node_selector s;
    struct label_terms terms;
    (void) unused;
    buf_puts(&text, "[{}");
    for (int i = 1; i < NODE_SELECTOR_MAX; i++)
        buf_puts(&text, ",{}");
    buf_puts(&text, "]");
    assert_int_equal(node_selector_read(parse(buf_str(&text)), &s), 0);
    node_selector_done(&s);
    buf_reset(&text);
    buf_puts(&text, "[{}");
    for (int i = 0; i < NODE_SELECTOR_MAX; i++)
        buf_puts(&text, ",{}");
    buf_puts(&text, "]");
    assert_int_equal(node_selector_read(parse(buf_str(&text)), &s), -EINVAL);
    buf_done(&text);
    /* What nodes have beyond labels of pods is not understood there. */
    assert_int_equal(
        label_selector_read(parse("{\"matchExpressions\":[" EXPRESSION("a", "Gt", "\"1\"") "]}"),
                            &terms),
        -EINVAL);
}

/* As in a URL; LABELS is what is selected from. */
static void test_text(void **unused) {
    static const struct {
        const char *text;
        int read;
        bool holds;
    } rows[] = {
        {"", 0, true},
        {"zone=z1", 0, true},
        {"zone==z1", 0, true},
        {"zone = z1", 0, true},
        {"zone=z2", 0, false},
        {"zone!=z1", 0, false},
        {"none!=z1", 0, true},
        {"zone in (z0, z1)", 0, true},
        {"zone in (z0)", 0, false},
        {"zone notin (z0,z2)", 0, true},
        {"zone notin (z1)", 0, false},
        {"zone", 0, true},
        {"!zone", 0, false},
        {"! none", 0, true},
        {"zone,!none,cards", 0, true},
        {"zone=z1,none", 0, false},
        {"in", 0, false},
        {"acme.com/team=", 0, false},
        {",", -EINVAL, false},
        {"zone,", -EINVAL, false},
        {"zone z1", -EINVAL, false},
        {"zone=z1 cards", -EINVAL, false},
        {"zone in z1", -EINVAL, false},
        {"zone in (z1", -EINVAL, false},
        {"zone in (z1,)x", -EINVAL, false},
        {"zone=\"z1\"", -EINVAL, false},
        {"=z1", -EINVAL, false},
        {"!zone=z1", -EINVAL, false},
        {"zone>1", -EINVAL, false},
    };
    struct label_terms terms;
    char word[400];
    (void) unused;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (label_selector_parse(rows[i].text, &terms) != rows[i].read)
            fail_msg("%s", rows[i].text);
        if (rows[i].read < 0)
            continue;
        if (label_terms_hold(&terms, LABELS, "n") != rows[i].holds)
            fail_msg("%s", rows[i].text);
        label_terms_done(&terms);
    }
    memset(word, 'a', sizeof(word) - 1);
    word[sizeof(word) - 1] = '\0';
    assert_int_equal(label_selector_parse(word, &terms), -EINVAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_labels_as_text),
        cmocka_unit_test(test_nodes),
        cmocka_unit_test(test_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
