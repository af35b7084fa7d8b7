/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants them first */
#include <cmocka.h>
#include <string.h>

#include "agent/cluster/gpu_manager.h"
#include "agent/config.h"
#include "base/err.h"
#include "model/scaling.h"

#define GIB ((uint64_t) 1 << 30)

static int parse(const char *text, const char *node, struct gpu_manager_config *ret) {
    static char strings[512];
    struct err err;
    return gpu_manager_parse(text, strlen(text), node, strings, ret, &err);
}

/* The file of the project's own documentation, without its comments. */
static const char readme[] =
    "{\"nodeConfig\":[{\"name\":\"k8s01\",\"deviceMemoryScaling\":1,"
    "\"containerRuntimeEndpoint\":\"/var/run/containerd/containerd.sock\","
    "\"cgroupDriver\":\"systemd\"},{\"name\":\"k8s02\",\"deviceMemoryScaling\":0.5}]}";

static void test_readme(void **state) {
    (void) state;
    struct gpu_manager_config c;
    assert_int_equal(parse(readme, "k8s01", &c), 0);
    assert_true(c.found);
    assert_int_equal(c.scaling, SCALING_ONE);
    assert_string_equal(c.cgroup, "systemd");
    assert_string_equal(c.endpoint, "/var/run/containerd/containerd.sock");
    assert_int_equal(parse(readme, "k8s02", &c), 0);
    assert_int_equal(c.scaling, 500);
    assert_string_equal(c.cgroup, "");
    assert_int_equal(parse(readme, "k8s03", &c), 0);
    assert_false(c.found);
}

static void test_bad(void **state) {
    (void) state;
    static const char *const texts[] = {
        "",
        "[]",
        "{}",
        "{\"nodeConfig\":{}}",
        "{\"nodeConfig\":[{\"name\":\"n\",\"deviceMemoryScaling\":0}]}",
        "{\"nodeConfig\":[{\"name\":\"n\",\"deviceMemoryScaling\":-1}]}",
        "{\"nodeConfig\":[{\"name\":\"n\",\"deviceMemoryScaling\":17}]}",
        "{\"nodeConfig\":[{\"name\":\"n\",\"deviceMemoryScaling\":\"2\"}]}",
    };
    struct gpu_manager_config c = {.scaling = 77};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        assert_true(parse(texts[i], "n", &c) < 0);
    assert_int_equal(c.scaling, 77);
    assert_int_equal(parse("{\"nodeConfig\":[7,{\"name\":3},{\"name\":\"n\"}]}", "n", &c), 0);
    assert_true(c.found && c.scaling == 0);
}

/* Memory kept back is not offered, and a whole card is what is offered of it. */
static void test_kept_back(void **state) {
    (void) state;
    assert_true(scaling_capacity(80 * GIB, 500) == 40 * GIB);
    assert_true(scaling_capacity(80 * GIB, 0) == 80 * GIB);
    assert_true(scaling_capacity(80 * GIB, 1) > 0);
    assert_true(scaling_capacity(100, 1) == 100);
}

/* The agent's option takes precedence over the ConfigMap, also when it is 1. */
static void test_who_has_the_say(void **state) {
    (void) state;
    const struct gpu_manager_config none = {.found = false, .scaling = 500},
                                    silent = {.found = true},
                                    half = {.found = true, .scaling = 500};
    assert_int_equal(gpu_manager_scaling(0, &none), SCALING_ONE);
    assert_int_equal(gpu_manager_scaling(0, &silent), SCALING_ONE);
    assert_int_equal(gpu_manager_scaling(0, &half), 500);
    assert_int_equal(gpu_manager_scaling(SCALING_ONE, &half), SCALING_ONE);
    assert_int_equal(gpu_manager_scaling(1500, &half), 1500);
}

static int options(int argc, const char *const *arguments, struct config *ret) {
    char *argv[8] = {(char *) (uintptr_t) "aliquot-agent"};
    struct err err;
    for (int i = 0; i < argc; i++)
        argv[i + 1] = (char *) (uintptr_t) arguments[i];
    return config_parse(argc + 1, argv, ret, &err);
}

static void test_options(void **state) {
    (void) state;
    static const char *const plain[] = {"--node-name=n"}, *const one[] = {"--node-name=n",
                                                                          "--memory-scaling=1"};
    struct config config;
    assert_int_equal(options(1, plain, &config), 0);
    assert_int_equal(config.shares.memory_scaling, 0);
    assert_int_equal(options(2, one, &config), 0);
    assert_int_equal(config.shares.memory_scaling, SCALING_ONE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_readme),    cmocka_unit_test(test_bad),
        cmocka_unit_test(test_kept_back), cmocka_unit_test(test_who_has_the_say),
        cmocka_unit_test(test_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
