/* SPDX-License-Identifier: Apache-2.0 */

/* Orders by annotation, the times of conditions, and what objects say of MIG. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/units.h"
#include "kube/api/object_write.h"
#include "kube/objects/agent_pod.h"
#include "kube/objects/driver_upgrade.h"
#include "kube/objects/gpu_object.h"
#include "kube/objects/node.h"
#include "wire/json.h"

static struct json_parser *parser;

static struct json parse(const char *text) {
    struct json root;

    parser = json_parser_free(parser);
    assert_int_equal(json_open(text, strlen(text), &parser, &root, NULL), 0);
    return root;
}

static void test_orders(void **state) {
    struct gpu_orders orders;

    (void) state;
    gpu_object_read_orders(parse("{\"annotations\":{\"" GPU_SET_HEALTHY "\":\"now\",\"" GPU_RESET
                                 "\":\"then\",\"" GPU_MAINTENANCE "\":\"drain\"}}"),
                           &orders);
    assert_string_equal(orders.set_healthy, "now");
    assert_string_equal(orders.reset, "then");
    assert_string_equal(orders.maintenance, "drain");
    gpu_object_read_orders(parse("{\"annotations\":{\"" GPU_SET_HEALTHY "\":7}}"), &orders);
    assert_string_equal(orders.set_healthy, "");
    assert_string_equal(orders.reset, "");
    gpu_object_read_orders(parse("{}"), &orders);
    assert_string_equal(orders.maintenance, "");
}

static enum driver_upgrade upgrade_of(const char *labels) {
    char text[512], label[DRIVER_UPGRADE_LABEL_MAX];
    enum driver_upgrade means;

    (void) snprintf(text, sizeof(text), "{\"labels\":{%s}}", labels);
    means = driver_upgrade_read(parse(text), label);
    assert_int_equal(means == DRIVER_UPGRADE_NONE, label[0] == 0);
    return means;
}

#define STATE(value) "\"nvidia.com/gpu-driver-upgrade-state\":\"" value "\""

static void test_driver_upgrade(void **state) {
    char label[DRIVER_UPGRADE_LABEL_MAX];

    (void) state;
    assert_int_equal(upgrade_of(""), DRIVER_UPGRADE_NONE);
    assert_int_equal(upgrade_of(STATE("upgrade-required")), DRIVER_UPGRADE_NONE);
    assert_int_equal(upgrade_of(STATE("cordon-required")), DRIVER_UPGRADE_CORDON);
    assert_int_equal(upgrade_of(STATE("drain-required")), DRIVER_UPGRADE_DRAIN);
    assert_int_equal(upgrade_of(STATE("pod-restart-required")), DRIVER_UPGRADE_RELEASE);
    assert_int_equal(upgrade_of(STATE("validation-required")), DRIVER_UPGRADE_NONE);
    assert_int_equal(upgrade_of(STATE("upgrade-done")), DRIVER_UPGRADE_NONE);
    assert_int_equal(upgrade_of("\"nvidia.com/gpu-driver-upgrade-state\":7"), DRIVER_UPGRADE_NONE);
    assert_int_equal(upgrade_of("\"nvidia.com/gpu.deploy.client\":\"true\""), DRIVER_UPGRADE_NONE);
    assert_int_equal(upgrade_of("\"nvidia.com/gpu.deploy.client\":\"paused-for-mig-change\""),
                     DRIVER_UPGRADE_NONE);
    assert_int_equal(upgrade_of("\"nvidia.com/gpu.deploy.client\":\"paused-for-driver-upgrade\""),
                     DRIVER_UPGRADE_RELEASE);
    assert_int_equal(upgrade_of(STATE("cordon-required") ",\"nvidia.com/gpu.deploy.dcgm\":"
                                                         "\"paused-for-driver-upgrade\""),
                     DRIVER_UPGRADE_RELEASE);
    (void) driver_upgrade_read(parse("{\"labels\":{" STATE("drain-required") "}}"), label);
    assert_string_equal(label, "nvidia.com/gpu-driver-upgrade-state=drain-required");
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

/* An object of that spec and status, read back. */
static void read_back(const struct gpu_object *gpu, struct gpu_object *ret) {
    _cleanup_buf_ struct buf text = BUF_INIT(0), status = BUF_INIT(0);
    gpu_object_encode(gpu, &text);
    gpu_object_encode_status(gpu, &status);
    text.len--;
    buf_printf(&text, ",%s", buf_str(&status) + 1);
    assert_int_equal(gpu_object_parse(parse(buf_str(&text)), ret, NULL), 0);
}

static void test_gpu_object_of_mig(void **state) {
    (void) state;
    char name[KUBE_NAME_MAX];
    struct gpu_object back;
    struct gpu_object gpu = {.name = "n-00",
                             .node = "n",
                             .uuid = "GPU-1",
                             .memory = 80 * GIB,
                             .state = "Healthy",
                             .no_shares = true,
                             .mig = {.enabled = true}};
    read_back(&gpu, &back);
    assert_true(back.mig.enabled && !back.mig.disabled && back.no_shares && back.has_capacity);
    assert_string_equal(back.parent, "");
    gpu.mig = (struct gpu_object_mig){.disabled = true};
    gpu.no_shares = false;
    assert_false(back.whole_only || back.under_mps || back.mps_on_demand);
    gpu.whole_only = gpu.under_mps = gpu.mps_on_demand = true;
    read_back(&gpu, &back);
    assert_true(back.whole_only && back.under_mps && back.mps_on_demand);
    assert_int_equal(back.replicas.count, 0);
    gpu.replicas = (struct card_replicas){.count = 1024, .with_core = true};
    read_back(&gpu, &back);
    assert_int_equal(card_replicas_code(&back.replicas), card_replicas_code(&gpu.replicas));
    gpu.replicas = (struct card_replicas){.count = 2, .as_cards = true, .one_at_most = true};
    read_back(&gpu, &back);
    assert_int_equal(card_replicas_code(&back.replicas), card_replicas_code(&gpu.replicas));
    gpu.replicas = (struct card_replicas){.count = 1025}; /* the agent writes no such number */
    read_back(&gpu, &back);
    assert_int_equal(back.replicas.count, 0);
    gpu.replicas.count = 0;
    assert_true(back.mig.disabled && !back.mig.enabled && !back.no_shares && back.has_capacity);
    assert_true(back.capacity == 80 * GIB);
    gpu = (struct gpu_object){
        .name = "n-00-gi7-ci1",
        .node = "n",
        .uuid = "MIG-1",
        .parent = "GPU-1",
        .memory = 10 * GIB,
        .state = "Healthy",
        .no_shares = true,
        .mig = {.profile = "1g.10gb", .gi = 7, .ci = 1, .start = 4, .size = 2, .slices = 1}};
    read_back(&gpu, &back);
    assert_int_equal(gpu_object_instance_name("10.77.0.2-03", 13, 0, name), 0);
    assert_string_equal(name, "10.77.0.2-03-gi13-ci0");
    assert_string_equal(back.parent, "GPU-1");
    assert_memory_equal(&back.mig, &gpu.mig, sizeof(gpu.mig));
    assert_true(back.no_shares && back.has_capacity && back.memory == 10 * GIB);
    gpu.no_shares = false;
    gpu.core = 14;
    read_back(&gpu, &back);
    assert_true(!back.no_shares && back.has_capacity && back.core == 14);
    assert_true(back.capacity == 10 * GIB);
    gpu.parent[0] = 0; /* a card has all of itself */
    read_back(&gpu, &back);
    assert_false(back.has_capacity);
}

/* Resources of whole devices show that the agent of a node without shares runs. */
static void test_node_of_whole_devices(void **state) {
    (void) state;
    struct node_object node;
#define WHOLE(allocatable)                                                                         \
    "{\"metadata\":{\"name\":\"n\",\"uid\":\"u\"},\"status\":{\"capacity\":{"                      \
    "\"nvidia.com/mig-1g.10gb\":\"0\"},\"allocatable\":{\"nvidia.com/mig-1g.10gb\":\"" allocatable \
    "\"}}}"
    assert_int_equal(node_object_parse(parse(WHOLE("7")), &node, NULL), 0);
    assert_true(node_serves_whole(&node, 1000) && !node_serves(&node, 1000));
    node.unready = true;
    assert_false(node_serves_whole(&node, 1000));
    assert_int_equal(node_object_parse(parse(WHOLE("0")), &node, NULL), 0);
    assert_false(node_serves_whole(&node, 1000));
    assert_int_equal(
        node_object_parse(parse("{\"metadata\":{\"name\":\"n\",\"uid\":\"u\"}}"), &node, NULL), 0);
    assert_true(node_serves_whole(&node, 1000));
    node.agent = NODE_AGENT_STOPPING;
    assert_false(node_serves_whole(&node, 1000));
}

#define AGENT(name_space, name, state)                                                             \
    "{\"metadata\":{\"namespace\":\"" name_space                                                   \
    "\",\"labels\":{\"app.kubernetes.io/name\":\"" name                                            \
    "\"}},\"status\":{\"containerStatuses\":[{\"state\":{\"" state "\":{}}}]}}"

static void test_pod_of_an_agent(void **state) {
    bool runs = true;
    (void) state;
    assert_false(agent_pod_read(parse(AGENT("team", "aliquot-agent", "running")), "system", &runs));
    assert_false(runs);
    assert_false(agent_pod_read(parse(AGENT("system", "aliquot", "running")), "system", &runs));
    assert_true(
        agent_pod_read(parse(AGENT("system", "aliquot-agent", "running")), "system", &runs));
    assert_true(runs);
    assert_true(
        agent_pod_read(parse(AGENT("system", "aliquot-agent", "waiting")), "system", &runs));
    assert_false(runs);
    assert_true(agent_pod_read(parse("{\"metadata\":{\"namespace\":\"system\",\"labels\":{"
                                     "\"app.kubernetes.io/name\":\"aliquot-agent\"}}}"),
                               "system", &runs));
    assert_false(runs);
}

static int end(void **state) {
    (void) state;
    parser = json_parser_free(parser);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_driver_upgrade),
        cmocka_unit_test(test_condition_since),
        cmocka_unit_test(test_gpu_object_of_mig),
        cmocka_unit_test(test_node_of_whole_devices),
        cmocka_unit_test(test_pod_of_an_agent),
    };

    return cmocka_run_group_tests(tests, NULL, end);
}
