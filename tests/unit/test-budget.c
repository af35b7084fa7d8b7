/* SPDX-License-Identifier: Apache-2.0 */

/* Which pods a disruption budget counts. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "kube/objects/budget.h"

static int parse(const char *selector, const char *allowed, struct budget *ret) {
    struct json_parser *parser = json_parser_new();
    struct json object;
    struct err err;
    char text[2048];
    snprintf(text, sizeof(text),
             "{\"metadata\":{\"name\":\"b\",\"namespace\":\"d\"},\"spec\":{%s},"
             "\"status\":{\"disruptionsAllowed\":%s}}",
             selector, allowed);
    assert_int_equal(json_parse(parser, text, strlen(text), &object, NULL), 0);
    int r = budget_parse(object, ret, &err);
    json_parser_free(parser);
    return r;
}

#define APP "\"selector\":{\"matchLabels\":{\"app\":\"a\"}"

static void test_match_labels(void **state) {
    (void) state;
    struct budget b;
    assert_int_equal(parse(APP "}", "2", &b), 0);
    assert_int_equal(b.allowed, 2);
    assert_true(budget_counts(&b, "d", "app=a,"));
    assert_true(budget_counts(&b, "d", "x=,app=a,y=z,"));
    assert_false(budget_counts(&b, "e", "app=a,"));
    assert_false(budget_counts(&b, "d", "app=ab,"));
    assert_false(budget_counts(&b, "d", "myapp=a,"));
    assert_false(budget_counts(&b, "d", "app=,"));
    assert_false(budget_counts(&b, "d", NULL));
    budget_done(&b);
}

static void test_expressions(void **state) {
    (void) state;
    static const struct {
        const char *expression, *labels;
        bool counts;
    } rows[] = {
        {"\"key\":\"t\",\"operator\":\"In\",\"values\":[\"a\",\"b\"]", "t=b,", true},
        {"\"key\":\"t\",\"operator\":\"In\",\"values\":[\"a\",\"b\"]", "t=c,", false},
        {"\"key\":\"t\",\"operator\":\"In\",\"values\":[\"\"]", "t=,", true},
        {"\"key\":\"t\",\"operator\":\"NotIn\",\"values\":[\"a\"]", "t=a,", false},
        {"\"key\":\"t\",\"operator\":\"NotIn\",\"values\":[\"a\"]", NULL, true},
        {"\"key\":\"t\",\"operator\":\"Exists\"", "t=,", true},
        {"\"key\":\"t\",\"operator\":\"Exists\"", "u=t,", false},
        {"\"key\":\"t\",\"operator\":\"DoesNotExist\"", "u=t,", true},
        {"\"key\":\"t\",\"operator\":\"DoesNotExist\"", "t=x,", false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct budget b;
        char text[256];
        snprintf(text, sizeof(text), "\"selector\":{\"matchExpressions\":[{%s}]}",
                 rows[i].expression);
        assert_int_equal(parse(text, "0", &b), 0);
        assert_int_equal(budget_counts(&b, "d", rows[i].labels), rows[i].counts);
        budget_done(&b);
    }
}

static void test_edges(void **state) {
    (void) state;
    struct budget b;
    assert_int_equal(parse("\"selector\":{}", "-3", &b), 0);
    assert_int_equal(b.allowed, 0);
    assert_true(budget_counts(&b, "d", NULL)); /* all */
    budget_done(&b);
    assert_int_equal(parse("\"x\":1", "1", &b), 0);
    assert_false(budget_counts(&b, "d", "app=a,")); /* none */
    budget_done(&b);
    assert_int_equal(
        parse("\"selector\":{\"matchExpressions\":[{\"key\":\"t\",\"operator\":\"Like\"}]}", "1",
              &b),
        -EINVAL);
    assert_int_equal(parse(APP ",\"matchExpressions\":[{\"operator\":\"Exists\"}]}", "1", &b),
                     -EINVAL);
    assert_int_equal(parse("\"selector\":{\"matchLabels\":{\"app\":7}}", "1", &b), -EINVAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_match_labels),
        cmocka_unit_test(test_expressions),
        cmocka_unit_test(test_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
