/* SPDX-License-Identifier: Apache-2.0 */

/* Orders by annotation, and the times of conditions. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "kube/api/object_write.h"
#include "kube/objects/gpu_object.h"
#include "wire/json.h"

static struct json_parser *parser;

static struct json parse(const char *text) {
    struct json root;

    parser = json_parser_free(parser);
    assert_int_equal(json_open(text, strlen(text), &parser, &root, NULL), 0);
    return root;
}

static void test_order(void **state) {
    char order[GPU_ORDER_MAX];

    (void) state;
    gpu_object_read_order(parse("{\"annotations\":{\"" GPU_SET_HEALTHY "\":\"now\"}}"), order);
    assert_string_equal(order, "now");
    gpu_object_read_order(parse("{\"annotations\":{\"" GPU_SET_HEALTHY "\":7}}"), order);
    assert_string_equal(order, "");
    gpu_object_read_order(parse("{}"), order);
    assert_string_equal(order, "");
}

/* A condition keeps its time while its status is the same. */
static void test_condition_since(void **state) {
    static const char condition[] =
        "{\"status\":\"False\",\"lastTransitionTime\":\"2026-01-31T12:34:56Z\"}";
    char since[OBJECT_TIME_SIZE];

    (void) state;
    object_condition_since(parse(condition), false, since);
    assert_string_equal(since, "2026-01-31T12:34:56Z");
    object_condition_since(parse(condition), true, since);
    assert_string_equal(since, "");
    object_condition_since(parse("{}"), false, since);
    assert_string_equal(since, "");
}

static int end(void **state) {
    (void) state;
    parser = json_parser_free(parser);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_condition_since),
    };

    return cmocka_run_group_tests(tests, NULL, end);
}
