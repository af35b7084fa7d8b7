/* SPDX-License-Identifier: Apache-2.0 */

/* Fractions of a card in annotations, and the label that divides memory over cards. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <string.h>

#include "model/dialect.h"

static const char *fraction_of(const void *text, const char *key) {
    return strcmp(key, "gpu-fraction") == 0 ? text : NULL;
}

/* A fraction is rounded down to a percent, so that equal parts fit, and is one percent at least. */
static void test_fractions(void **state) {
    static const struct {
        const char *text;
        uint32_t percent; /* 0: malformed */
    } rows[] = {
        {"0.5", 50},  {".5", 50},    {"00.5", 50},  {"000.5", 50}, {"0000.5", 0}, {"0.05", 5},
        {"0.50", 50}, {"0.509", 50}, {"0.999", 99}, {"0.01", 1},   {"0.001", 1},  {"0.0", 0},
        {"0", 0},     {"", 0},       {".", 0},      {"1", 100},    {"1.", 100},   {"1.0", 100},
        {"01", 100},  {"001", 100},  {"1.00", 100}, {"1.01", 0},   {"1.001", 0},  {"2", 0},
        {"10", 0},    {"0.5x", 0},   {"x", 0},      {"-0.5", 0},   {" 0.5", 0},   {"0,5", 0},
        {"0.33", 33}, {"0.125", 12}, {"0.9", 90},   {"0.1.", 0},   {"11", 0},     {"0.019", 1},
    };
    (void) state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct annotated_request request;
        struct container_request req = {.cards = 0};
        assert_true(dialect_find_annotated(fraction_of, rows[i].text, &request));
        enum request_problem p = dialect_read_annotated(&request, &req);
        if (p != (rows[i].percent ? REQUEST_OK : REQUEST_FRACTION))
            fail_msg("%s: %d", rows[i].text, (int) p);
        if (p != REQUEST_OK)
            continue;
        assert_int_equal(req.cards, 1);
        assert_int_equal(req.whole, rows[i].percent == 100);
        assert_int_equal(req.core, rows[i].percent % 100);
        assert_int_equal(req.memory_percent, rows[i].percent % 100);
        assert_int_equal(req.memory, 0);
        assert_false(req.slot);
    }
}

/* The label that says over how many cards memory is divided, of pods that ask in its dialect and do
 * not say it in a resource. */
static void test_the_label_of_a_dialect(void **state) {
    static const struct {
        struct resource_line lines[2];
        size_t n;
        const char *label;
    } rows[] = {
        {{{"aliyun.com/gpu-mem", "4", 1}}, 1, "aliyun.com/gpu-count"},
        {{{"cpu", "4", 1}, {"aliyun.com/gpu-core.percentage", "4", 1}}, 2, "aliyun.com/gpu-count"},
        {{{"aliyun.com/gpu-mem", "4", 1}, {"cpu", "1", 1}}, 2, "aliyun.com/gpu-count"},
        {{{"aliyun.com/gpu-mem", "4", 1}, {"aliyun.com/gpu-count", "2", 1}}, 2, NULL},
        {{{"elasticgpu.io/gpu-core", "4", 1}}, 1, NULL},
        {{{"cpu", "4", 1}, {"memory", "4", 1}}, 2, NULL},
        {{{"cpu", "4", 1}}, 0, NULL},
    };
    (void) state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *label = dialect_label(rows[i].lines, rows[i].n);
        assert_string_equal(label ? label : "none", rows[i].label ? rows[i].label : "none");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fractions),
        cmocka_unit_test(test_the_label_of_a_dialect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
