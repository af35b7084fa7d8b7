/* SPDX-License-Identifier: Apache-2.0 */

/* Selectors in CEL. What they answer here is what Kubernetes 1.36 answers to the same expressions
 * for the same devices (k8s.io/dynamic-resource-allocation/cel). */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "cel/cel.h"

#define DRIVER "gpu.elasticgpu.io"
#define TEXT(name, value)                                                                          \
    { DRIVER, name, CEL_KIND_STRING, 0, value }

static const struct cel_attribute first[] = {
    TEXT("uuid", "GPU-1"),
    TEXT("model", "NVIDIA H100 80GB HBM3"),
    {DRIVER, "index", CEL_KIND_INT, 0, NULL},
    {DRIVER, "numa", CEL_KIND_INT, 1, NULL},
    TEXT("driverVersion", "570.124.06"),
    TEXT("allocator", "aliquot"),
    {DRIVER, "ver", CEL_KIND_VERSION, 0, "570.1.2"},
    {DRIVER, "flag", CEL_KIND_BOOL, 1, NULL},
    {"other.io", "x", CEL_KIND_STRING, 0, "\u00e9"},
};
static const struct cel_capacity first_capacities[] = {
    {DRIVER, "core", 100},
    {DRIVER, "memory", UINT64_C(80) << 30},
};
static const struct cel_attribute second[] = {
    TEXT("uuid", "GPU-2"),
    TEXT("model", "Tesla T4"),
    {DRIVER, "index", CEL_KIND_INT, 7, NULL},
    {DRIVER, "ver", CEL_KIND_VERSION, 0, "1.2.3-rc.1+b"},
    {DRIVER, "flag", CEL_KIND_BOOL, 0, NULL},
};
static const struct cel_capacity second_capacities[] = {
    {DRIVER, "core", 100},
    {DRIVER, "memory", UINT64_C(16) << 30},
};
#define LIST(list) sizeof(list) / sizeof((list)[0])
static const struct cel_device devices[] = {
    {DRIVER, true, LIST(first), LIST(first_capacities), first, first_capacities},
    {DRIVER, false, LIST(second), LIST(second_capacities), second, second_capacities},
    {"x.io", false, 0, 0, NULL, NULL},
};

static char ask(const struct cel *cel, const struct cel_device *device, uint64_t budget,
                struct err *err) {
    static const char letters[] = {
        [CEL_NO] = 'N', [CEL_YES] = 'Y', [CEL_FAILS] = 'E', [CEL_UNSERVED] = 'U'};
    return letters[cel_ask(cel, device, &budget, err)];
}

#define A "device.attributes[\"gpu.elasticgpu.io\"]"
#define C "device.capacity[\"gpu.elasticgpu.io\"]"

/* Yes, no, an error, and unserved, for each device. */
static const struct {
    const char *text, *answers;
} answers[] = {
    {"true", "YYY"},
    {"device.driver == \"gpu.elasticgpu.io\"", "YYN"},
    {"device.driver != \"x\"", "YYY"},
    {A ".model == \"Tesla T4\"", "NYE"},
    {A "[\"model\"] == \"Tesla T4\"", "NYE"},
    {A ".model.startsWith(\"NVIDIA\")", "YNE"},
    {A ".model.contains(\"H100\")", "YNE"},
    {A ".model.endsWith(\"T4\")", "NYE"},
    {A ".model.lowerAscii().contains(\"h100\")", "YNE"},
    {A ".model.size() > 10", "YNE"},
    {"size(" A ".model) > 10", "YNE"},
    {A ".index == 0", "YNE"},
    {A ".index < 3", "YNE"},
    {A ".index in [0, 1, 2]", "YNE"},
    {A ".model in [\"Tesla T4\", \"A100\"]", "NYE"},
    {A ".ver in [\"x\"]", "UUE"},
    {A ".ver in [1]", "UUE"},
    {"\"gpu.elasticgpu.io\" in device.attributes", "YYN"},
    {"\"zz\" in device.attributes", "NNN"},
    {"\"gpu.elasticgpu.io\" in device.capacity", "YYN"},
    {"\"model\" in " A, "YYN"},
    {"\"memory\" in " C, "YYN"},
    {"has(" A ".model)", "YYN"},
    {"has(" A ".numa)", "YNN"},
    {"has(device.attributes[\"zz\"].foo)", "NNN"},
    {"has(device.attributes.foo)", "UUU"},
    {"has(device.driver)", "YYY"},
    {A ".nope == 1", "EEE"},
    {"has(" A ".nope) && " A ".nope == 1", "NNN"},
    {A ".nope == 1 && false", "NNN"},
    {A ".nope == 1 || true", "YYY"},
    {"true || " A ".nope == 1", "YYY"},
    {A ".nope == 1 || false", "EEE"},
    {"!" A ".nope", "EEE"},
    {A ".flag", "YNE"},
    {"!" A ".flag", "NYE"},
    {"!!" A ".flag", "YNE"},
    {A ".model", "EEE"},
    {A ".index", "EEE"},
    {C ".memory.compareTo(quantity(\"20Gi\")) >= 0", "YNE"},
    {C ".memory.isGreaterThan(quantity(\"20Gi\"))", "YNE"},
    {C ".memory.isLessThan(quantity(\"20Gi\"))", "NYE"},
    {C ".memory == quantity(\"16Gi\")", "NYE"},
    {C ".memory != quantity(\"16Gi\")", "YNE"},
    {C "[\"memory\"] == quantity(\"80Gi\")", "YNE"},
    {C ".nope.isGreaterThan(quantity(\"1\"))", "EEE"},
    {C ".memory == " A ".model", "EEE"},
    {A ".model == " C ".memory", "NNE"},
    {A ".ver == semver(\"570.1.2\")", "YNE"},
    {A ".ver == \"570.1.2\"", "EEE"},
    {A ".ver != \"570.1.2\"", "YYE"},
    {"\"570.1.2\" == " A ".ver", "NNE"},
    {A ".ver.isGreaterThan(semver(\"500.0.0\"))", "YNE"},
    {A ".ver.compareTo(semver(\"1.2.3\")) < 0", "NYE"},
    {A ".model.isGreaterThan(semver(\"1.0.0\"))", "EEE"},
    {A ".ver.isGreaterThan(quantity(\"1\"))", "EEE"},
    {"semver(" A ".driverVersion).isGreaterThan(semver(\"1.0.0\"))", "EEE"},
    {"semver(" A ".driverVersion, true).isGreaterThan(semver(\"570.124.5\"))", "YEE"},
    {"semver(" A ".driverVersion, true).major() == 570", "YEE"},
    {"isSemver(" A ".driverVersion)", "NEE"},
    {"isSemver(" A ".driverVersion, true)", "YEE"},
    {"semver(\"v1.0\", true) == semver(\"1.0.0\")", "YYY"},
    {"semver(\"1\", true) == semver(\"1.0.0\")", "YYY"},
    {"semver(\"01.02.03\", true) == semver(\"1.2.3\")", "YYY"},
    {"semver(\"1.2-rc\", true) == semver(\"1.2.0\")", "EEE"},
    {"semver(\"1.2.3+a\") == semver(\"1.2.3+b\")", "YYY"},
    {"semver(\"1.2.3-a.01\") == semver(\"1.2.3\")", "EEE"},
    {"semver(\"1.2.3-a.b\").isLessThan(semver(\"1.2.3-a.b.c\"))", "YYY"},
    {"semver(\"1.2.3-1\").isLessThan(semver(\"1.2.3-a\"))", "YYY"},
    {"device.allowMultipleAllocations", "YNN"},
    {"device.allowMultipleAllocations ? true : " A ".nope == 1", "YEE"},
    {A ".flag ? " A ".model : " A ".index", "EEE"},
    {A ".model ? true : false", "EEE"},
    {"1 + 1 == 2", "YYY"},
    {"9223372036854775807 + 1 > 0", "EEE"},
    {"-9223372036854775808 - 1 > 0", "EEE"},
    {"-(-9223372036854775808) > 0", "EEE"},
    {"-9223372036854775808 < 0", "YYY"},
    {"5 / 0 == 1", "EEE"},
    {"5 % 0 == 1", "EEE"},
    {"-5 / 2 == -2", "YYY"},
    {"-5 % 2 == -1", "YYY"},
    {"0x1F == 31", "YYY"},
    {"\"a\" + \"b\" == \"ab\"", "YYY"},
    {"\"a\" < \"b\"", "YYY"},
    {"false < true", "YYY"},
    {A ".index < \"x\"", "EEE"},
    {A ".model > 5", "EEE"},
    {A ".model + \"x\" == \"y\"", "NNE"},
    {A ".index + 1 == 1", "YNE"},
    {A ".index + " A ".index == 0", "YNE"},
    {"1 + " A ".index == 1", "YNE"},
    {A ".model + 1 == 1", "EEE"},
    {"\"é\".size() == 1", "YYY"},
    {"\"\\u00e9\" == \"é\"", "YYY"},
    {"\"\\x41\\102\" == \"AB\"", "YYY"},
    {"r\"a\\n\" == \"a\\\\n\"", "YYY"},
    {"R'x' == \"x\"", "YYY"},
    {"cel.bind(d, " A ", d.model == \"Tesla T4\" && d.index == 7)", "NYE"},
    {"cel.bind(d, device.attributes[\"zz\"].x, true)", "YYY"},
    {"cel.bind(d, device.attributes[\"zz\"].x, d == 1 || true)", "YYY"},
    {"cel.bind(x, " A ".nope, x == 1)", "EEE"},
    {"cel.bind(x, 1, cel.bind(x, 2, x == 2))", "YYY"},
    {"cel.bind(x, 1, cel.bind(y, x + 1, y == 2 && x == 1))", "YYY"},
    {"cel.bind(l, [\"a\", \"b\"], \"a\" in l)", "YYY"},
    {"cel.bind(l, [1], " A ".ver in l)", "UUE"},
    {"device.attributes.foo.bar == 1", "EEE"},
    {"device.attributes[" A ".model].foo == 1", "EEE"},
    {"device.attributes[" A ".index].foo == 1", "UUE"},
    {"true && " A ".index == 0", "YNE"},
    {A ".index && true", "EEE"},
    {A ".index && false", "NNN"},
    {"false && " A ".index", "NNN"},
    {A ".index || true", "YYY"},
    {A ".index ? true : false", "EEE"},
    {"true ? " A ".index : 1", "EEE"},
    {"(true)", "YYY"},
    {"((true))", "YYY"},
    {"true // comment", "YYY"},
    {"1 < 2 == true", "YYY"},
    {"1 == 1 == true", "YYY"},
    {"!true == false", "YYY"},
    {"!" A ".flag == false", "YNE"},
    {"!!" A ".index == 0", "YNE"},
    {"-" A ".index == 0", "YNE"},
    {"- 5 == -5", "YYY"},
    {A ".index in [\"a\"]", "NNE"},
    {"quantity(\"1.5Gi\").isGreaterThan(quantity(\"1Gi\"))", "YYY"},
    {"quantity(\"1e3\") == quantity(\"1k\")", "YYY"},
    {"quantity(\"1E3\") == quantity(\"1k\")", "YYY"},
    {"quantity(\"1E\") == quantity(\"1e18\")", "YYY"},
    {"quantity(\"0.5\") == quantity(\"500m\")", "YYY"},
    {"quantity(\"0.0000000001\").isGreaterThan(quantity(\"0\"))", "UUU"},
    {"quantity(\"100Ei\").isGreaterThan(quantity(\"0\"))", "UUU"},
    {"quantity(\"x\") == quantity(\"1\")", "UUU"},
    {"quantity(\"\") == quantity(\"1\")", "UUU"},
    {"quantity(\"+1\") == quantity(\"1\")", "YYY"},
    {"quantity(\"-1\") == quantity(\"1\")", "NNN"},
    {"quantity(\"007\") == quantity(\"7\")", "YYY"},
    {"quantity(\"1.\") == quantity(\"1\")", "UUU"},
    {"quantity(\".5\") == quantity(\"0.5\")", "UUU"},
    {"quantity(\"1Ki\") == quantity(\"1024\")", "YYY"},
    {"quantity(\"1K\") == quantity(\"1024\")", "UUU"},
    {"isSemver(\"1.0.0\")", "YYY"},
    {"\"A\".lowerAscii() == \"a\"", "YYY"},
    {"\"a\".upperAscii() == \"A\"", "YYY"},
    {"\"É\".lowerAscii() == \"É\"", "YYY"},
    {A ".model.lowerAscii() == \"tesla t4\"", "NYE"},
    {A ".index.lowerAscii() == \"x\"", "EEE"},
    {"device.attributes[\"gpu.elasticgpu.io\"].model==\"Tesla "
     "T4\"&&device.capacity[\"gpu.elasticgpu.io\"].core.compareTo(quantity('100'))==0",
     "NYE"},
    {A ".flag == true", "YNE"},
    {A ".flag == 1", "NNE"},
    {A ".index == true", "NNE"},
    {A ".index == \"0\"", "NNE"},
    {A ".index != \"0\"", "YYE"},
    {A ".numa != 5", "YEE"},
    {"!(has(" A ".numa)) || " A ".numa == 1", "YYY"},
    {A ".allocator == \"aliquot\"", "YEE"},
    {"cel.bind(v, semver(\"1.0.0\"), v.isLessThan(semver(\"2.0.0\")))", "YYY"},
    {C ".memory.isGreaterThan(quantity(" A ".model))", "UUE"},
};

static void test_answers(void **state) {
    (void) state;
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        struct cel *cel;
        struct err err = {.text = ""};
        if (cel_parse(answers[i].text, &cel, &err) < 0)
            fail_msg("%s: %s", answers[i].text, err.text);
        for (size_t j = 0; j < sizeof(devices) / sizeof(devices[0]); j++) {
            char answer = ask(cel, &devices[j], 100000, &err);
            if (answer != answers[i].answers[j])
                fail_msg("%s of device %zu: %c (%s)", answers[i].text, j, answer, err.text);
        }
        cel_free(cel);
    }
}

static const struct {
    const char *text, *why;
} refusals[] = {
    {"\"x\" in [" A ".model]", "a list of other than literals at column 48"},
    {A ".uuid in []", "an empty list at column 48"},
    {"has(" A ".model.foo)", "a field or index of what has none at column 50"},
    {"1.5 > 1.0", "a number that is no integer at column 1"},
    {"1u == 1u", "an unsigned number at column 1"},
    {A ".index == 0.0", "a number that is no integer at column 49"},
    {A ".index > 1.5", "a number that is no integer at column 48"},
    {"\"\"\"a\"\"\" == \"a\"", "a string in triple quotes at column 1"},
    {"b\"a\" == b\"a\"", "a string of bytes at column 1"},
    {"\"a\".matches(\"a.*\")", "the function or macro matches at column 5"},
    {A ".model.matches(\"^NVIDIA.*H100\")", "the function or macro matches at column 46"},
    {"cel.bind(dra, device, dra.driver == \"gpu.elasticgpu.io\")",
     "a field or index of what has none at column 27"},
    {"[\"a\"].exists(x, x == " A ".model)", "the name x at column 14"},
    {"[1,2].all(x, x > 0)", "the name x at column 11"},
    {"device.attributes.size() == 2", "other types of arguments of size at column 19"},
    {"size(device.attributes) == 2", "other types of arguments of size at column 1"},
    {"size(" A ") == 9", "other types of arguments of size at column 1"},
    {"device == device", "a comparison of these types at column 8"},
    {A " == " A, "a comparison of these types at column 40"},
    {"device.attributes[\"gpu.elasticgpu.io\"].?model.orValue(\"x\") == \"Tesla T4\"",
     "unexpected ? at column 40"},
    {A "[?\"model\"].hasValue()", "an optional field at column 39"},
    {A ".model[\"x\"] == 1", "a field or index of what has none at column 46"},
    {"\"x\" in " A ".model", "\"in\" for these types at column 5"},
    {A ".model == null", "the name null at column 49"},
    {"type(" A ".model) == string", "the function or macro type at column 1"},
    {"string(" A ".index) == \"0\"", "the function or macro string at column 1"},
    {"int(\"5\") == 5", "the function or macro int at column 1"},
    {"dyn(" A ".index) == 0", "the function or macro dyn at column 1"},
    {"--5 == 5", "unexpected - at column 2"},
    {"[1,2,3][0] == 1", "a field or index of what has none at column 9"},
    {"{\"a\":1}.a == 1", "a map or message at column 1"},
    {"\"a\" in {\"a\":1}", "a map or message at column 8"},
    {".device.driver == \"x\"", "unexpected . at column 1"},
    {C ".memory.asInteger() > 0", "the function or macro asInteger at column 45"},
    {C ".memory.sub(quantity(\"1Gi\")).isGreaterThan(quantity(\"20Gi\"))",
     "the function or macro sub at column 45"},
    {"isQuantity(\"20Gi\")", "the function or macro isQuantity at column 1"},
    {"\"a\".charAt(0) == \"a\"", "the function or macro charAt at column 5"},
    {"\"ab\".substring(1) == \"b\"", "the function or macro substring at column 6"},
    {"\"a,b\".split(\",\").size() == 2", "the function or macro split at column 7"},
    {"\"abc\".indexOf(\"b\") == 1", "the function or macro indexOf at column 7"},
    {"\"a\".replace(\"a\",\"b\") == \"b\"", "the function or macro replace at column 5"},
    {"\" a \".trim() == \"a\"", "the function or macro trim at column 7"},
    {"sets.contains([1],[1])", "the name sets at column 1"},
    {"cel.bind(sets, " A ", sets.model == \"Tesla T4\")", "unexpected sets at column 10"},
    {A ".index in [\"a\", 1]", "a list of several types at column 55"},
    {"1 in [\"a\"]", "\"in\" for these types at column 3"},
    {"device.foo", "the field foo at column 8"},
    {"1", "a result that is no bool at column 1"},
    {"(true", "the end of the expression at column 6"},
    {"\"a", "a string without its end at column 1"},
    {"\"\\q\"", "an unknown escape at column 2"},
    {"9223372036854775808 > 0", "the number 9223372036854775808 at column 1"},
    {"true true", "unexpected true at column 6"},
    {"", "the end of the expression at column 1"},
};

static void test_what_is_refused_is_named(void **state) {
    (void) state;
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        struct cel *cel;
        struct err err;
        assert_int_equal(cel_parse(refusals[i].text, &cel, &err), -EINVAL);
        assert_string_equal(err.text, refusals[i].why);
    }
}

static void test_an_error_names_key_and_column(void **state) {
    struct cel *cel;
    struct err err;
    (void) state;
    assert_int_equal(cel_parse("true && " A ".nope == 1", &cel, NULL), 0);
    assert_int_equal(ask(cel, &devices[0], 1000, &err), 'E');
    assert_string_equal(err.text, "no such key: nope at column 48");
    cel_free(cel);
}

static char *repeat(const char *head, const char *part, size_t n, const char *tail) {
    size_t len = strlen(part);
    char *text = malloc(strlen(head) + n * len + strlen(tail) + 1), *at = stpcpy(text, head);
    for (size_t i = 0; i < n; i++)
        at = stpcpy(at, part);
    (void) stpcpy(at, tail);
    return text;
}

/* A hostile expression costs no more than its budget, its length and a bounded stack. */
static void test_bounds(void **state) {
    static const struct {
        const char *head, *part;
        size_t n;
        const char *tail, *answer;
    } rows[] = {
        {"", "(", 5000, "", "an expression that is nested too deep at column 65"},
        {"", "[", 5000, "", "an expression that is nested too deep at column 65"},
        {"", "!", 5001, "true", "N"},
        {"true", " && true", 1200, "", "Y"},
        {"0", "+0", 70, " == 0", "an expression that is nested too deep at column 128"},
        {"", "true ? true : ", 70, "true", "an expression that is nested too deep at column 897"},
        {"\"", "a", 10240, "\" == \"\"", "more than 10240 bytes"},
        {"\"", "a", 9000, "\".contains(\"b\")", "U"},
    };
    (void) state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        _cleanup_free_ char *text = repeat(rows[i].head, rows[i].part, rows[i].n, rows[i].tail);
        struct cel *cel = NULL;
        struct err err;
        if (cel_parse(text, &cel, &err) < 0) {
            assert_string_equal(err.text, rows[i].answer);
            continue;
        }
        assert_int_equal(ask(cel, &devices[0], 5000, &err), rows[i].answer[0]);
        cel_free(cel);
    }
}

/* Each binding doubles the text of the one before. */
static void test_doubled_texts(void **state) {
    _cleanup_free_ char *text =
        repeat("cel.bind(a, \"", "x", 9000,
               "\", cel.bind(b, a + a, cel.bind(c, b + b, cel.bind(d, c + c, (d + d) == a))))");
    struct cel *cel;
    struct err err;
    (void) state;
    assert_int_equal(cel_parse(text, &cel, &err), 0);
    assert_int_equal(ask(cel, &devices[0], 10000000, &err), 'U');
    assert_non_null(strstr(err.text, "a text that is too long"));
    cel_free(cel);
}

/* The least of several: it is the work that counts, and not what disturbs it. */
static uint64_t cpu_ns_of_list(unsigned items) {
    char text[CEL_LENGTH_MAX + 1] = "1 in [1";
    uint64_t least = UINT64_MAX;
    size_t len = strlen(text);
    for (unsigned i = 1; i < items; i++, len += 2)
        memcpy(text + len, ",1", 2);
    memcpy(text + len, "]", 2);
    for (unsigned i = 0; i < 9; i++) {
        struct timespec a, b;
        struct cel *cel;
        struct err err;
        (void) clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
        assert_int_equal(cel_parse(text, &cel, &err), 0);
        (void) clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
        cel_free(cel);
        uint64_t ns =
            (uint64_t) (b.tv_sec - a.tv_sec) * 1000000000 + (uint64_t) (b.tv_nsec - a.tv_nsec);
        least = ns < least ? ns : least;
    }
    return least;
}

/* Eight times as many take eight times as long, and not 64 times. */
static void test_long_lists_are_read_in_linear_time(void **state) {
    (void) state;
    assert_in_range(cpu_ns_of_list(5000), 1, 24 * cpu_ns_of_list(625));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_what_is_refused_is_named),
        cmocka_unit_test(test_an_error_names_key_and_column),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_long_lists_are_read_in_linear_time),
        cmocka_unit_test(test_doubled_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
