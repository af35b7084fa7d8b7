/* SPDX-License-Identifier: Apache-2.0 */

/* Requests in names of templates: what admission writes is read as the same pod's
 * resources are. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "model/request_code.h"

static struct container_request read(const char *code) {
    struct container_request req = {0};
    enum request_problem problem = request_code_read(code, &req);
    if (problem != REQUEST_OK)
        fail_msg("%s: %s", code, request_problem_text(problem, (struct dialect_pair){0}));
    return req;
}

static void test_amounts_mean_what_the_dialect_says(void **state) {
    static const struct {
        const char *code;
        enum dialect_id dialect;
        uint32_t cards, core, percent;
        uint64_t memory;
        bool whole, offline;
    } rows[] = {
        {"aliquot-native-core-30", DIALECT_NATIVE, 1, 30, 0, 0, false, false},
        {"aliquot-native-core-30-memory-21474836480", DIALECT_NATIVE, 1, 30, 0, 20 * GIB, false,
         false},
        {"aliquot-native-core-200", DIALECT_NATIVE, 2, 0, 0, 0, true, false},
        {"aliquot-native-memory-21474836480", DIALECT_NATIVE, 1, 0, 0, 20 * GIB, false, false},
        {"aliquot-elasticgpushare-core-10-memory-4", DIALECT_ELASTIC_GPUSHARE, 1, 10, 0, 4 * GIB,
         false, false},
        {"aliquot-qgpu-core-160-memory-31", DIALECT_QGPU, 2, 80, 0, 15 * GIB, false, false},
        {"aliquot-qgpu-memory-5-coreoffline-10", DIALECT_QGPU, 1, 0, 0, 5 * GIB, false, true},
        {"aliquot-gpushare-memory-8-split-2", DIALECT_GPUSHARE, 2, 0, 0, 4 * GIB, false, false},
        {"aliquot-gpumanager-core-50-memory-30", DIALECT_GPU_MANAGER, 1, 50, 0, 7680 * MIB, false,
         false},
        {"aliquot-hami-cards-1-memory-3000-coreeach-30", DIALECT_HAMI, 1, 30, 0, 3000 * MIB, false,
         false},
        {"aliquot-hami-cards-1-coreeach-30", DIALECT_HAMI, 1, 30, 100, 0, false, false},
        {"aliquot-hami-cards-2-memory-0", DIALECT_HAMI, 2, 0, 0, 0, true, false},
        {"aliquot-koordinator-core-50-memoryratio-50-split-1", DIALECT_KOORDINATOR, 1, 50, 50, 0,
         false, false},
        {"aliquot-kai-fraction-0d5", DIALECT_KAI, 1, 50, 50, 0, false, false},
        {"aliquot-kai-fraction-d25-devices-2", DIALECT_KAI, 2, 25, 25, 0, false, false},
        {"aliquot-kai-memory-2000", DIALECT_KAI, 1, 0, 0, 2000 * MIB, false, false},
        {"aliquot-timeslicing-replicas-1", DIALECT_TIME_SLICING, 1, 0, 0, 0, false, false},
    };
    (void) state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct container_request req = read(rows[i].code);
        if (req.dialect != rows[i].dialect || req.cards != rows[i].cards ||
            req.core != rows[i].core || req.memory_percent != rows[i].percent ||
            req.memory != rows[i].memory || req.whole != rows[i].whole ||
            req.offline != rows[i].offline)
            fail_msg("%s: %u cards, core %u, %u %%, %llu bytes", rows[i].code, req.cards, req.core,
                     req.memory_percent, (unsigned long long) req.memory);
    }
    assert_int_equal(read("aliquot-timeslicing-replicas-1").replicas, 1);
    assert_int_equal(read("aliquot-native-tflops-20").tflops, 20);
}

static void test_bad_names(void **state) {
    static const struct {
        const char *code;
        enum request_problem problem;
    } rows[] = {
        {"", REQUEST_NOT_A_NUMBER},
        {"other-native-core-30", REQUEST_NOT_A_NUMBER},
        {"aliquot-", REQUEST_NOT_A_NUMBER},
        {"aliquot-native", REQUEST_NOT_A_NUMBER},
        {"aliquot-native-core", REQUEST_NOT_A_NUMBER},
        {"aliquot-native-core-", REQUEST_NOT_A_NUMBER},
        {"aliquot-native-core-30-", REQUEST_NOT_A_NUMBER},
        {"aliquot-native--core-30", REQUEST_NOT_A_NUMBER},
        {"aliquot-native-core--30", REQUEST_NOT_A_NUMBER},
        {"aliquot-native-core-x", REQUEST_NOT_A_NUMBER},
        {"aliquot-native-cores-30", REQUEST_NOT_A_NUMBER},
        {"aliquot-NATIVE-core-30", REQUEST_NOT_A_NUMBER},
        {"aliquot-elastic-core-30", REQUEST_NOT_A_NUMBER},
        {"aliquot-native-core-30-core-30", REQUEST_TWICE},
        {"aliquot-native-core-150", REQUEST_CORE_STEP},
        {"aliquot-native-core-0", REQUEST_CORE_ZERO},
        {"aliquot-native-memory-4096", REQUEST_MEMORY_SMALL},
        {"aliquot-hami-priority-1", REQUEST_NOT_A_NUMBER},
        {"aliquot-hami-memory-0", REQUEST_NOT_A_NUMBER},
        {"aliquot-kai-fraction-2", REQUEST_FRACTION},
        {"aliquot-kai-fraction-0d5-memory-20", REQUEST_FRACTION},
        {"aliquot-kai-fraction-x", REQUEST_FRACTION},
        {"aliquot-kai-devices-2", REQUEST_FRACTION},
        {"aliquot-hami-cards-1-cards-1-cards-1-cards-1-cards-1-cards-1-cards-1-cards-1-cards-1",
         REQUEST_NOT_A_NUMBER},
    };
    char longest[REQUEST_CODE_MAX + 1];
    struct container_request req;
    (void) state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        enum request_problem problem = request_code_read(rows[i].code, &req);
        if (problem != rows[i].problem)
            fail_msg("%s: %s", rows[i].code,
                     request_problem_text(problem, (struct dialect_pair){0}));
    }
    memset(longest, '0', sizeof(longest));
    memcpy(longest, "aliquot-native-core-3", strlen("aliquot-native-core-3"));
    longest[REQUEST_CODE_MAX] = '\0';
    assert_false(request_code_is(longest));
    assert_int_equal(request_code_read(longest, &req), REQUEST_NOT_A_NUMBER);
}

/* Each entry of the policy's map has a row in the table: `'NAME': 'DIALECT-WORD'`. */
static void test_the_words_in_deploy(void **state) {
    static char text[1 << 16];
    FILE *file = fopen(SOURCE_ROOT "/deploy/dra-pods/policy-dra-pods.yaml", "r");
    unsigned n = 0;
    (void) state;
    assert_non_null(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    (void) fclose(file);
    char *rest = strstr(text, "- name: words");
    assert_non_null(rest);
    for (char *line = strtok_r(rest, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char name[80], word[40], code[128];
        struct container_request req = {.dialect = DIALECT_COUNT};
        if (sscanf(line, " %*[{]'%79[^']': '%39[^']'", name, word) != 2 &&
            sscanf(line, " '%79[^']': '%39[^']'", name, word) != 2) {
            if (n > 0)
                break;
            continue;
        }
        n++;
        (void) snprintf(code, sizeof(code), "aliquot-%s-1", word);
        /* Alone it can be too little, or no request at all, but it is no unknown word. */
        enum request_problem problem = request_code_read(code, &req);
        if (problem == REQUEST_NOT_A_NUMBER && !strstr(word, "-priority"))
            fail_msg("%s: %s is not understood", name, word);
    }
    assert_true(n >= dialect_quantities_count);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_amounts_mean_what_the_dialect_says),
        cmocka_unit_test(test_bad_names),
        cmocka_unit_test(test_the_words_in_deploy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
