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
#include "kube/objects/assignment.h"
#include "kube/objects/gpu_object.h"
#include "kube/objects/node.h"
#include "kube/objects/pod.h"
#include "model/driver_capability.h"
#include "model/quantity.h"
#include "wire/json.h"

#define GIB ((uint64_t) 1 << 30)

static struct json_parser *parser;

static int setup(void **state) {
    (void) state;
    parser = json_parser_new();
    return parser ? 0 : -1;
}

static int teardown(void **state) {
    (void) state;
    parser = json_parser_free(parser);
    return 0;
}

static struct json parse(const char *text) {
    struct json root;
    struct err err;
    if (json_parse(parser, text, strlen(text), &root, &err) < 0)
        fail_msg("%s: %s", err.text, text);
    return root;
}

/* ---- quantities ---- */

static const struct {
    const char *text;
    int result;
    uint64_t value;
} quantities[] = {
    {"0", 0, 0},
    {"1", 0, 1},
    {"+5", 0, 5},
    {"100", 0, 100},
    {"1e2", 0, 100},
    {"1E2", 0, 100},
    {"1.5e1", 0, 15},
    {"100e-2", 0, 1},
    {"1.5Gi", 0, GIB + GIB / 2},
    {"4Gi", 0, 4 * GIB},
    {"640Gi", 0, 640 * GIB},
    {"1k", 0, 1000},
    {"1M", 0, 1000000},
    {"1E", 0, UINT64_C(1000000000000000000)},
    {"2000m", 0, 2},
    {".5Ki", 0, 512},
    {"5.", 0, 5},
    {"007", 0, 7},
    {"0.000000000000000000000000000000000", 0, 0},
    {"0e99999", 0, 0},
    {"9223372036854775807", 0, INT64_MAX},
    {"7Ei", 0, UINT64_C(7) << 60},
    {"1000000000000000000000000n", 0, UINT64_C(1000000000000000)},
    {"9223372036854775808", -ERANGE, 0},
    {"16Ei", -ERANGE, 0},
    {"8Ei", -ERANGE, 0},
    {"10E", -ERANGE, 0},
    {"1e99999999999", -ERANGE, 0},
    {"123456789012345678901234567890", -ERANGE, 0},
    {"1500m", -EDOM, 0},
    {"1.5", -EDOM, 0},
    {"0.1Ki", -EDOM, 0},
    {"1e-1", -EDOM, 0},
    {"1e-99999", -EDOM, 0},
    {"1n", -EDOM, 0},
    {"", -EINVAL, 0},
    {".", -EINVAL, 0},
    {"+", -EINVAL, 0},
    {"-1", -EINVAL, 0},
    {"1 ", -EINVAL, 0},
    {" 1", -EINVAL, 0},
    {"1.5.5", -EINVAL, 0},
    {"4gi", -EINVAL, 0},
    {"4GiB", -EINVAL, 0},
    {"1e", -EINVAL, 0},
    {"1e+", -EINVAL, 0},
    {"0x10", -EINVAL, 0},
    {"Gi", -EINVAL, 0},
    {"NaN", -EINVAL, 0},
};

static void test_quantity(void **state) {
    (void) state;
    for (size_t i = 0; i < sizeof(quantities) / sizeof(quantities[0]); i++) {
        uint64_t value = 77;
        int r = quantity_parse(quantities[i].text, strlen(quantities[i].text), &value);
        if (r != quantities[i].result || value != (r == 0 ? quantities[i].value : 77))
            fail_msg("'%s': %d, %llu", quantities[i].text, r, (unsigned long long) value);
    }
}

static void test_quantity_format(void **state) {
    (void) state;
    char out[24];
    assert_string_equal(quantity_format_bytes(0, out), "0");
    assert_string_equal(quantity_format_bytes(1000, out), "1000");
    assert_string_equal(quantity_format_bytes(4 * GIB, out), "4Gi");
    assert_string_equal(quantity_format_bytes(1536 << 20, out), "1536Mi");
    assert_string_equal(quantity_format_bytes(UINT64_MAX, out), "18446744073709551615");
    for (uint64_t v = 1; v < UINT64_C(1) << 62; v = v * 7 + 1) {
        uint64_t back;
        quantity_format_bytes(v, out);
        assert_int_equal(quantity_parse(out, strlen(out), &back), 0);
        assert_true(back == v);
    }
}

/* ---- dialects ---- */

struct lines {
    const char *core, *memory, *slot;
};

static const struct dialect_pair no_pair;

static enum request_problem read_names(const char *core_name, const char *memory_name,
                                       struct lines l, struct container_request *req,
                                       bool *containers) {
    struct resource_line lines[3];
    struct dialect_pair mixed;
    size_t n = 0;
    if (l.core)
        lines[n++] = (struct resource_line){core_name, l.core, strlen(l.core)};
    if (l.memory)
        lines[n++] = (struct resource_line){memory_name, l.memory, strlen(l.memory)};
    if (l.slot)
        lines[n++] = (struct resource_line){RESOURCE_SLOT, l.slot, strlen(l.slot)};
    return dialect_read(lines, n, req, containers, &mixed);
}

static enum request_problem read_native(struct lines l, struct container_request *req) {
    bool requested;
    memset(req, 0, sizeof(*req));
    return read_names(RESOURCE_CORE, RESOURCE_MEMORY, l, req, &requested);
}

static void test_native(void **state) {
    (void) state;
    struct container_request req;
    assert_int_equal(read_native((struct lines){"30", "4Gi", NULL}, &req), REQUEST_OK);
    assert_int_equal(req.core, 30);
    assert_true(req.memory == 4 * GIB && req.cards == 1 && !req.whole && !req.slot);
    assert_int_equal(read_native((struct lines){"30", NULL, NULL}, &req), REQUEST_OK);
    assert_true(req.core == 30 && req.memory == 0);
    assert_int_equal(read_native((struct lines){NULL, "4Gi", "1"}, &req), REQUEST_OK);
    assert_true(req.core == 0 && req.slot);
    assert_int_equal(read_native((struct lines){"200", NULL, NULL}, &req), REQUEST_OK);
    assert_true(req.cards == 2 && req.whole && req.core == 0 && req.memory == 0);
    assert_int_equal(read_native((struct lines){"200", "0", NULL}, &req), REQUEST_OK);
    assert_int_equal(read_native((struct lines){"200", "90Gi", NULL}, &req), REQUEST_OK);
    assert_true(req.cards == 2 && req.memory == 0 && req.memory_floor == 90 * GIB);
}

static void test_malformed(void **state) {
    (void) state;
    static const struct {
        struct lines lines;
        enum request_problem problem;
    } cases[] = {
        {{"150", NULL, NULL}, REQUEST_CORE_STEP},     {{"101", "1Gi", NULL}, REQUEST_CORE_STEP},
        {{"0", "1Gi", NULL}, REQUEST_CORE_ZERO},      {{"0", NULL, NULL}, REQUEST_CORE_ZERO},
        {{"6500", NULL, NULL}, REQUEST_CORE_RANGE},   {{"16Ei", NULL, NULL}, REQUEST_CORE_RANGE},
        {{"30", "0", NULL}, REQUEST_MEMORY_ZERO},     {{NULL, "0", "1"}, REQUEST_MEMORY_ZERO},
        {{"30", "16Ei", NULL}, REQUEST_MEMORY_RANGE}, {{"1500m", NULL, NULL}, REQUEST_NOT_A_NUMBER},
        {{"-5", NULL, NULL}, REQUEST_NOT_A_NUMBER},   {{"30", "much", NULL}, REQUEST_NOT_A_NUMBER},
        {{NULL, "4Gi", NULL}, REQUEST_SLOT_MISSING},  {{NULL, "4Gi", "0"}, REQUEST_SLOT_MISSING},
        {{NULL, NULL, "1"}, REQUEST_SLOT_ALONE},      {{NULL, "4Gi", "2"}, REQUEST_SLOT_COUNT},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct container_request req;
        enum request_problem p = read_native(cases[i].lines, &req);
        if (p != cases[i].problem)
            fail_msg("case %zu: %s", i, request_problem_text(p, no_pair));
        assert_int_equal(
            strncmp(request_problem_text(p, no_pair), "GPU request is malformed: ", 26), 0);
    }
}

static void test_dialects(void **state) {
    (void) state;
    struct container_request req = {0};
    bool requested;
    assert_int_equal(read_names("tke.cloud.tencent.com/qgpu-core",
                                "tke.cloud.tencent.com/qgpu-memory",
                                (struct lines){"20", "4", NULL}, &req, &requested),
                     REQUEST_OK);
    assert_true(requested && req.core == 20 && req.memory == 4 * GIB);
    assert_int_equal(
        read_names("amd.com/gpu", "cpu", (struct lines){"1", "1", NULL}, &req, &requested),
        REQUEST_OK);
    assert_false(requested);
    assert_int_equal(read_names("x", "tke.cloud.tencent.com/qgpu-memory",
                                (struct lines){NULL, "9999999999999", "1"}, &req, &requested),
                     REQUEST_MEMORY_RANGE);
}

/* ---- pods and nodes ---- */

#define POD_HEAD                                                                                   \
    "{\"metadata\":{\"name\":\"p\",\"namespace\":\"d\",\"uid\":\"u-1\",\"annotations\":{"          \
    "\"elasticgpu.io/assignment\":\"A\",\"other\":\"xyz\"}},\"spec\":{"

static void test_pod(void **state) {
    (void) state;
    struct pod pod;
    struct err err;
    struct json object = parse(
        POD_HEAD "\"nodeName\":\"n\",\"initContainers\":["
                 "{\"name\":\"i\",\"resources\":{\"limits\":{\"elasticgpu.io/gpu-core\":\"50\"}}},"
                 "{\"name\":\"s\",\"restartPolicy\":\"Always\",\"resources\":{\"limits\":"
                 "{\"elasticgpu.io/gpu-core\":\"10\"}}}],\"containers\":["
                 "{\"name\":\"none\"},{\"name\":\"c\",\"resources\":{\"requests\":"
                 "{\"cpu\":\"1\",\"elasticgpu.io/gpu-core\":\"100\"}}}]},"
                 "\"status\":{\"phase\":\"Running\"}}");
    assert_int_equal(pod_parse(object, &pod, &err), 0);
    assert_string_equal(pod.uid, "u-1");
    assert_string_equal(pod.node, "n");
    assert_string_equal(pod.assignment, "A");
    assert_null(pod.signature);
    assert_int_equal(pod.annotation_bytes, strlen("elasticgpu.io/assignmentAotherxyz"));
    assert_int_equal(pod.problem, REQUEST_OK);
    assert_int_equal(pod.request.n, 3);
    assert_int_equal(pod.request.containers[0].phase, CONTAINER_INIT);
    assert_int_equal(pod.request.containers[1].phase, CONTAINER_SIDECAR);
    assert_int_equal(pod.request.containers[2].phase, CONTAINER_APP);
    assert_string_equal(pod.request.containers[2].container, "c");
    assert_int_equal(pod.request.containers[2].cards, 1);
    assert_false(pod.finished || pod.deleting);
    pod_done(&pod);
}

static uint8_t driver_of(const char *env) {
    char text[512];
    struct pod pod;
    uint8_t bits;
    (void) snprintf(text, sizeof(text),
                    "{\"metadata\":{\"uid\":\"u\",\"name\":\"p\",\"namespace\":\"d\"},\"spec\":{"
                    "\"containers\":[{\"name\":\"main\",\"env\":%s,\"resources\":{\"limits\":{"
                    "\"elasticgpu.io/gpu-core\":\"30\"}}}]}}",
                    env);
    assert_int_equal(pod_parse(parse(text), &pod, NULL), 0);
    assert_int_equal(pod.request.n, 1);
    bits = pod.request.containers[0].driver;
    pod_done(&pod);
    return bits;
}

#define ENV(value) "[{\"name\":\"NVIDIA_DRIVER_CAPABILITIES\"," value "}]"

static void test_driver_capabilities(void **state) {
    (void) state;
    assert_int_equal(driver_of("null"), DRIVER_CAPABILITIES_UNSAID);
    assert_int_equal(driver_of("[{\"name\":\"OTHER\",\"value\":\"compute\"}]"),
                     DRIVER_CAPABILITIES_UNSAID);
    assert_int_equal(driver_of(ENV("\"value\":\"utility,compute\"")),
                     DRIVER_COMPUTE | DRIVER_UTILITY);
    assert_int_equal(driver_of(ENV("\"value\":\" video , ngx,\"")), DRIVER_VIDEO | DRIVER_NGX);
    assert_int_equal(driver_of(ENV("\"value\":\"all\"")), DRIVER_CAPABILITIES_ALL);
    assert_int_equal(driver_of(ENV("\"value\":\"graphics,display,compat32\"")),
                     DRIVER_GRAPHICS | DRIVER_DISPLAY | DRIVER_COMPAT32);
    assert_int_equal(driver_of(ENV("\"value\":\"compute,telepathy\"")), DRIVER_CAPABILITIES_UNSAID);
    assert_int_equal(driver_of(ENV("\"value\":\"\"")), DRIVER_CAPABILITIES_UNSAID);
    assert_int_equal(driver_of(ENV("\"valueFrom\":{\"configMapKeyRef\":{}}")),
                     DRIVER_CAPABILITIES_UNSAID);
    assert_int_equal(driver_of("[{\"name\":\"NVIDIA_DRIVER_CAPABILITIES\",\"value\":\"video\"},"
                               "{\"name\":\"NVIDIA_DRIVER_CAPABILITIES\",\"value\":\"compute\"}]"),
                     DRIVER_COMPUTE);
    assert_int_equal(driver_of("[1, null, \"x\"]"), DRIVER_CAPABILITIES_UNSAID);
}

/* What preemption goes by. */
static void test_pod_rank(void **state) {
    (void) state;
    struct pod pod;
    struct err err;
    struct json object =
        parse("{\"metadata\":{\"name\":\"p\",\"namespace\":\"d\",\"uid\":\"u\","
              "\"creationTimestamp\":\"1970-01-02T00:00:01Z\","
              "\"labels\":{\"app\":\"a\",\"tier\":\"\"}},\"spec\":{\"priority\":-7,"
              "\"preemptionPolicy\":\"Never\",\"containers\":[{\"name\":\"c\","
              "\"resources\":{\"limits\":{\"elasticgpu.io/gpu-core\":\"1\"}}}]},"
              "\"status\":{\"nominatedNodeName\":\"n\"}}");
    assert_int_equal(pod_parse(object, &pod, &err), 0);
    assert_int_equal(pod.priority, -7);
    assert_true(pod.never_preempts);
    assert_string_equal(pod.nominated, "n");
    assert_string_equal(pod.labels, "app=a,tier=,");
    assert_int_equal(pod.created, 86401);
    pod_done(&pod);
    object = parse(POD_HEAD "\"containers\":[{\"name\":\"c\"}]}}");
    assert_int_equal(pod_parse(object, &pod, &err), 0);
    assert_true(pod.priority == 0 && !pod.never_preempts && pod.created == 0);
    assert_true(pod.nominated[0] == '\0' && pod.labels == NULL);
    pod_done(&pod);
}

static void test_pod_states(void **state) {
    (void) state;
    struct pod pod;
    struct err err;
    assert_int_equal(pod_parse(parse("{\"metadata\":{\"name\":\"p\",\"namespace\":\"d\",\"uid\":"
                                     "\"u\",\"deletionTimestamp\":\"2026-01-01T00:00:00Z\"},"
                                     "\"status\":{\"phase\":\"Failed\"}}"),
                               &pod, &err),
                     0);
    assert_true(pod.deleting && pod.finished && pod.request.n == 0 && pod.node[0] == '\0');
    pod_done(&pod);
    assert_int_equal(pod_parse(parse(POD_HEAD "\"containers\":[{\"name\":\"c\",\"resources\":"
                                              "{\"limits\":{\"elasticgpu.io/gpu-core\":"
                                              "\"150\"}}}]}}"),
                               &pod, &err),
                     0);
    assert_int_equal(pod.problem, REQUEST_CORE_STEP);
    assert_string_equal(pod.problem_container, "c");
    pod_done(&pod);
}

static void test_not_a_pod(void **state) {
    (void) state;
    static const char *const texts[] = {
        "[]",
        "{}",
        "null",
        "{\"metadata\":[]}",
        "{\"metadata\":{\"name\":\"p\"}}",
        "{\"metadata\":{\"name\":1,\"namespace\":\"d\",\"uid\":\"u\"}}",
        "{\"metadata\":{\"name\":\"p\",\"namespace\":\"d\",\"uid\":\"\"}}",
        POD_HEAD "\"nodeName\":{}}}",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct pod pod;
        struct err err;
        assert_int_equal(pod_parse(parse(texts[i]), &pod, &err), -EINVAL);
    }
    struct pod pod;
    struct err err; /* wrong types where nothing depends on them are no reason to lose the pod */
    assert_int_equal(
        pod_parse(parse(POD_HEAD "\"containers\":{\"a\":[1,2]}},\"status\":7}"), &pod, &err), 0);
    assert_int_equal(pod.request.n, 0);
    pod_done(&pod);
}

static void test_node(void **state) {
    (void) state;
    struct node_object node;
    struct err err;
    assert_int_equal(
        node_object_parse(parse("{\"metadata\":{\"name\":\"n\",\"uid\":\"u\"},\"status\":"
                                "{\"addresses\":[{\"type\":\"Hostname\",\"address\":\"h\"},"
                                "{\"type\":\"InternalIP\",\"address\":\"10.0.0.1\"}]}}"),
                          &node, &err),
        0);
    assert_string_equal(node.internal_ip, "10.0.0.1");
    assert_int_equal(node_object_parse(parse("{\"metadata\":{}}"), &node, &err), -EINVAL);
}

static struct node_object node_with(const char *core, const char *slot, const char *ready,
                                    const char *condition) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    struct node_object node;
    struct err err;
    buf_printf(&text,
               "{\"metadata\":{\"name\":\"n\",\"uid\":\"u\"},\"status\":{\"allocatable\":{"
               "\"elasticgpu.io/gpu-core\":\"%s\",\"elasticgpu.io/slot\":\"%s\"},\"conditions\":["
               "{\"type\":\"Ready\",\"status\":\"%s\"},"
               "{\"type\":\"AliquotAgentReady\",\"status\":\"%s\"}]}}",
               core, slot, ready, condition);
    assert_int_equal(node_object_parse(parse(buf_str(&text)), &node, &err), 0);
    return node;
}

/* kubelet keeps the resources of a plugin that is gone, with 0 allocatable. */
static void test_agent_of_node(void **state) {
    (void) state;
    assert_true(node_with("200", "328", "True", "True").offered);
    assert_false(node_with("0", "328", "True", "True").offered);
    assert_false(node_with("200", "0", "True", "True").offered);
    assert_false(node_with("200", "none", "True", "True").offered);
    assert_int_equal(node_with("200", "328", "True", "True").agent, NODE_AGENT_READY);
    assert_int_equal(node_with("200", "328", "True", "False").agent, NODE_AGENT_STOPPING);
    assert_int_equal(node_with("200", "328", "True", "Unknown").agent, NODE_AGENT_UNKNOWN);
}

/* kubelet goes on offering the resources of an agent that does not write the condition. */
static void test_condition_that_was_left_behind(void **state) {
    (void) state;
    struct node_object node;
    struct err err;
    assert_int_equal(
        node_object_parse(parse("{\"metadata\":{\"name\":\"n\",\"uid\":\"u\"},\"status\":{"
                                "\"conditions\":[{\"type\":\"AliquotAgentReady\","
                                "\"status\":\"False\","
                                "\"lastTransitionTime\":\"2026-01-01T00:00:00Z\"}]}}"),
                          &node, &err),
        0);
    const int64_t since = 1767225600;
    assert_int_equal(node_agent_at(&node, since - 60), NODE_AGENT_STOPPING); /* another clock */
    assert_int_equal(node_agent_at(&node, since + 300), NODE_AGENT_STOPPING);
    assert_int_equal(node_agent_at(&node, since + 301), NODE_AGENT_UNKNOWN);
    node.agent = NODE_AGENT_READY;
    assert_int_equal(node_agent_at(&node, since + 301), NODE_AGENT_READY);
    node = node_with("200", "328", "True", "False"); /* without a time */
    assert_int_equal(node_agent_at(&node, since + 301), NODE_AGENT_STOPPING);
}

/* A node whose kubelet has never reported has no condition, or none that is known. */
static void test_node_that_is_not_ready(void **state) {
    (void) state;
    struct node_object node;
    struct err err;
    assert_false(node_with("200", "328", "True", "True").unready);
    assert_true(node_with("200", "328", "False", "True").unready);
    assert_true(node_with("200", "328", "Unknown", "True").unready);
    assert_int_equal(
        node_object_parse(parse("{\"metadata\":{\"name\":\"n\",\"uid\":\"u\"}}"), &node, &err), 0);
    assert_false(node.unready);
}

/* ---- GPU objects ---- */

/* The state with its reason, its time and the last XID. */
static void check_health(void) {
    static const struct gpu_object gpu = {
        .state = "Unknown", .reason = "XID 48", .since = "2026-01-31T12:34:56Z", .last_xid = 48};
    _cleanup_buf_ struct buf text = BUF_INIT(0), object = BUF_INIT(0);
    struct gpu_object back;
    gpu_object_encode_status(&gpu, &text);
    assert_non_null(strstr(buf_str(&text),
                           "{\"status\":{\"state\":\"Unknown\",\"reason\":\"XID 48\","
                           "\"since\":\"2026-01-31T12:34:56Z\",\"lastXid\":48,\"capacity\""));
    buf_printf(&object,
               "{\"metadata\":{\"name\":\"g\"},\"spec\":{\"index\":0,\"memory\":1,"
               "\"nodeName\":\"n\",\"uuid\":\"u\"},%s",
               buf_str(&text) + 1);
    assert_int_equal(gpu_object_parse(parse(buf_str(&object)), &back, NULL), 0);
    assert_true(back.unknown && back.last_xid == 48 && strcmp(back.reason, gpu.reason) == 0);
    assert_string_equal(back.since, gpu.since);
}

static void test_gpu_object(void **state) {
    (void) state;
    struct gpu_object gpu = {.name = "10.0.0.1-00",
                             .node = "n",
                             .index = 0,
                             .memory = 80 * GIB,
                             .uuid = "GPU-1",
                             .model = "A100 \"big\"",
                             .path = "/dev/nvidia0",
                             .owner = "uid-of-n",
                             .state = "Healthy"};
    struct gpu_object back;
    struct err err;
    _cleanup_buf_ struct buf text = BUF_INIT(0), status = BUF_INIT(0);
    gpu.index = 1;
    gpu.numa = 1;
    gpu.nlinks = 3;
    gpu.links[0] = LINK_NVLINK + 11;
    gpu.links[2] = LINK_SYSTEM;
    gpu_object_encode(&gpu, &text);
    assert_non_null(strstr(buf_str(&text), "\"numaNode\":1,\"links\":[\"NV12\",\"X\",\"SYS\"]"));
    assert_non_null(strstr(buf_str(&text),
                           "\"ownerReferences\":[{\"apiVersion\":\"v1\",\"kind\":\"Node\","
                           "\"name\":\"n\",\"uid\":\"uid-of-n\"}]"));
    assert_int_equal(gpu_object_parse(parse(buf_str(&text)), &back, &err), 0);
    assert_string_equal(back.owner, "uid-of-n");
    assert_true(back.numa == 1 && back.nlinks == 3);
    assert_memory_equal(back.links, gpu.links, 3);
    assert_string_equal(back.model, gpu.model);
    assert_false(back.healthy || back.has_capacity);
    gpu.capacity = 2 * gpu.memory; /* oversubscribed */
    gpu_object_add_overuse(&gpu, "ns", "pod", "main");
    gpu_object_add_overuse(&gpu, "ns", "pod", "side");
    gpu_object_add_overuse(&gpu, "no", "name with", "blanks");
    (void) gpu_object_add_evict(&gpu, "ns", "pod", "uid-of-pod");
    gpu.unattributed = 64 << 20;
    gpu_object_encode_status(&gpu, &status);
    assert_string_equal(buf_str(&status),
                        "{\"status\":{\"state\":\"Healthy\",\"reason\":null,\"capacity\":{"
                        "\"elasticgpu.io/gpu-core\":\"100\",\"elasticgpu.io/gpu-memory\":"
                        "\"160Gi\"},\"overuse\":[\"ns/pod/main\",\"ns/pod/side\"],"
                        "\"evict\":[\"ns/pod/uid-of-pod\"],\"maintenance\":null,"
                        "\"resourceClaims\":null,\"unattributed\":\"64Mi\"}}");
    text.len--; /* put the status into the object */
    buf_printf(&text, ",%s", buf_str(&status) + 1);
    assert_int_equal(gpu_object_parse(parse(buf_str(&text)), &back, &err), 0);
    assert_true(back.healthy && back.has_capacity && back.memory == gpu.memory);
    assert_true(back.capacity == 2 * gpu.memory && back.unattributed == gpu.unattributed);
    assert_string_equal(back.overuse, gpu.overuse);
    assert_string_equal(back.evict, gpu.evict);
    check_health();
    for (int i = 0; i < 200; i++) /* more than is kept */
        gpu_object_add_overuse(&gpu, "a-namespace", "a-pod", "a-container");
    assert_true(strlen(gpu.overuse) < sizeof(gpu.overuse));
    assert_true(gpu_object_parse(parse("{\"metadata\":{\"name\":\"g\"},\"spec\":{\"index\":-1}}"),
                                 &back, NULL) == -EINVAL);
}

static void test_gpu_name(void **state) {
    (void) state;
    char name[KUBE_NAME_MAX];
    assert_int_equal(gpu_object_name("node-a", "10.77.0.2", 3, name), 0);
    assert_string_equal(name, "10.77.0.2-03");
    assert_int_equal(gpu_object_name("node-a", "fd00::1", 12, name), 0);
    assert_string_equal(name, "node-a-12");
    assert_int_equal(gpu_object_name("node-a", NULL, 0, name), 0);
    assert_string_equal(name, "node-a-00");
}

/* Admission knows no other blanks: a word that it has not seen is none here. */
static void test_only_blanks_are_trimmed(void **state) {
    static const struct {
        const char *value, *policy;
    } cases[] = {
        {" online ", "online"},
        {"main = online ,fixed", "online"},
        {"\\tonline", "\tonline"},
        {"main=online\\t", "online\t"},
    };
    char policy[64];
    (void) state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        _cleanup_buf_ struct buf text = BUF_INIT(0);
        struct pod pod;
        struct err err;
        buf_printf(&text,
                   "{\"metadata\":{\"name\":\"p\",\"namespace\":\"d\",\"uid\":\"u\","
                   "\"annotations\":{\"tke.cloud.tencent.com/app-class\":\"%s\"}},\"spec\":{}}",
                   cases[i].value);
        assert_int_equal(pod_parse(parse(buf_str(&text)), &pod, &err), 0);
        assert_true(pod_setting(&pod, SETTING_POLICY, "main", policy));
        assert_string_equal(policy, cases[i].policy);
        pod_done(&pod);
    }
}

/* An annotation sets the oversubscription of memory, for all containers or for one. */
static void test_scaling_annotation(void **state) {
    static const struct {
        const char *value;
        enum request_problem problem;
        uint32_t scaling;
    } cases[] = {
        {"1.5", REQUEST_OK, 1500},   {"main=2,1", REQUEST_OK, 2000},   {"other=2", REQUEST_OK, 0},
        {"0.5", REQUEST_SCALING, 0}, {"nonsense", REQUEST_SCALING, 0},
    };
    (void) state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        _cleanup_buf_ struct buf text = BUF_INIT(0);
        struct pod pod;
        struct err err;
        buf_printf(&text,
                   "{\"metadata\":{\"name\":\"p\",\"namespace\":\"d\",\"uid\":\"u\","
                   "\"annotations\":{\"elasticgpu.io/memory-scaling\":\"%s\"}},\"spec\":{"
                   "\"containers\":[{\"name\":\"main\",\"resources\":{\"limits\":{"
                   "\"elasticgpu.io/gpu-core\":\"30\"}}}]}}",
                   cases[i].value);
        assert_int_equal(pod_parse(parse(buf_str(&text)), &pod, &err), 0);
        assert_int_equal(pod.problem, cases[i].problem);
        assert_int_equal(pod.request.containers[0].scaling, cases[i].scaling);
        pod_done(&pod);
    }
    assert_non_null(strstr(request_problem_text(REQUEST_SCALING, no_pair), "memory-scaling"));
}

/* ---- assignments ---- */

static const char *const sample =
    "{\"v\":1,\"node\":\"n\",\"containers\":{\"main\":[{\"index\":0,\"uuid\":\"GPU-a\",\"core\":30,"
    "\"memory\":4294967296}],\"b\":[{\"index\":0,\"uuid\":\"GPU-a\",\"core\":0,\"memory\":1},"
    "{\"index\":1,\"uuid\":\"GPU-b\",\"core\":100,\"memory\":2}]}}";

static void test_assignment(void **state) {
    (void) state;
    struct assignment a;
    struct err err;
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    assert_int_equal(assignment_parse(sample, &a, &err), 0);
    assert_string_equal(a.node, "n");
    assert_int_equal(a.ncontainers, 2);
    assert_int_equal(assignment_find(&a, "main")->devices[0].core, 30);
    assert_int_equal(assignment_find(&a, "b")->ndevices, 2);
    assert_null(assignment_find(&a, "mai"));
    assert_true(assignment_find(&a, "main")->devices[0].physical == (uint64_t) 4 << 30);
    assignment_encode(&a, &text);
    assert_string_equal(buf_str(&text), sample);
    assignment_done(&a);
}

/* Memory of which a part may be on the card. */
static void test_oversubscribed_assignment(void **state) {
    static const char *const oversubscribed =
        "{\"v\":1,\"node\":\"n\",\"containers\":{\"c\":[{\"index\":0,\"uuid\":\"GPU-a\",\"core\":0,"
        "\"memory\":4294967296,\"physical\":2147483648}]}}";
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    struct assignment a;
    struct err err;
    (void) state;
    assert_int_equal(assignment_parse(oversubscribed, &a, &err), 0);
    assert_true(assignment_find(&a, "c")->devices[0].physical == (uint64_t) 2 << 30);
    assignment_encode(&a, &text);
    assert_string_equal(buf_str(&text), oversubscribed);
    assignment_done(&a);
}

static void test_bad_assignments(void **state) {
    (void) state;
#define ONE(device) "{\"v\":1,\"node\":\"n\",\"containers\":{\"c\":[" device "]}}"
    static const char *const texts[] = {
        "",
        "{",
        "[]",
        "{}",
        "{\"v\":0,\"node\":\"n\",\"containers\":{\"c\":[{\"index\":0,\"uuid\":\"u\",\"core\":1,"
        "\"memory\":1}]}}",
        "{\"v\":1,\"node\":\"n\",\"containers\":{}}",
        "{\"v\":1,\"containers\":{\"c\":[{\"index\":0,\"uuid\":\"u\",\"core\":1,\"memory\":1}]}}",
        "{\"v\":1,\"node\":\"n\",\"containers\":{\"c\":[]}}",
        "{\"v\":1,\"node\":\"n\",\"containers\":{\"c\":{}}}",
        ONE("{}"),
        ONE("{\"index\":0,\"uuid\":\"\",\"core\":1,\"memory\":1}"),
        ONE("{\"index\":0,\"uuid\":\"u\",\"core\":101,\"memory\":1}"),
        ONE("{\"index\":0,\"uuid\":\"u\",\"core\":-1,\"memory\":1}"),
        ONE("{\"index\":0,\"uuid\":\"u\",\"core\":1,\"memory\":0}"),
        ONE("{\"index\":0,\"uuid\":\"u\",\"core\":1,\"memory\":18446744073709551615}"),
        ONE("{\"index\":0,\"uuid\":\"u\",\"core\":1,\"memory\":1.5}"),
        ONE("{\"index\":0,\"uuid\":\"u\",\"core\":1,\"memory\":1,\"physical\":0}"),
        ONE("{\"index\":0,\"uuid\":\"u\",\"core\":1,\"memory\":1,\"physical\":2}"),
        ONE("{\"index\":0,\"uuid\":\"u\",\"core\":1,\"memory\":1,\"physical\":\"1\"}"),
        ONE("{\"index\":9999,\"uuid\":\"u\",\"core\":1,\"memory\":1}"),
        ONE("{\"index\":0,\"uuid\":\"u\",\"core\":1,\"memory\":1},"
            "{\"index\":1,\"uuid\":\"u\",\"core\":1,\"memory\":1}"),
        "{\"v\":1,\"node\":\"n\",\"containers\":{"
        "\"c\":[{\"index\":0,\"uuid\":\"u\",\"core\":1,\"memory\":1}],"
        "\"c\":[{\"index\":0,\"uuid\":\"v\",\"core\":1,\"memory\":1}]}}",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct assignment a;
        struct err err;
        if (assignment_parse(texts[i], &a, &err) != -EINVAL)
            fail_msg("taken: %s", texts[i]);
    }
}

static struct signing_verifier *verifier_of(const struct signing_key *key,
                                            const struct signing_key *older) {
    struct signing_verifier *v;
    struct err err;
    _cleanup_buf_ struct buf pem = BUF_INIT(0);
    assert_int_equal(signing_key_public(key, &pem, &err), 0);
    if (older)
        assert_int_equal(signing_key_public(older, &pem, &err), 0);
    assert_int_equal(signing_verifier_load(buf_str(&pem), pem.len, &v, &err), 0);
    return v;
}

static void test_signature(void **state) {
    (void) state;
    struct signing_key *key, *again, *other;
    struct err err;
    char sig[SIGNATURE_TEXT_MAX], sig2[SIGNATURE_TEXT_MAX];
    _cleanup_buf_ struct buf pem = BUF_INIT(0);
    assert_int_equal(signing_key_generate(&key, &err), 0);
    assert_int_equal(signing_key_generate(&other, &err), 0);
    assert_int_equal(signing_key_save(key, &pem, &err), 0);
    assert_int_equal(signing_key_load(buf_str(&pem), pem.len, &again, &err), 0);
    assert_int_equal(assignment_sign(key, "uid", "n", sample, sig, &err), 0);
    assert_int_equal(assignment_sign(again, "uid", "n", sample, sig2, &err), 0);
    assert_string_equal(sig, sig2);
    struct signing_verifier *v = verifier_of(key, NULL), *foreign = verifier_of(other, NULL);
    struct signing_verifier *both = verifier_of(other, key);
    assert_int_equal(assignment_verify(v, "uid", "n", sample, sig, &err), 0);
    assert_int_equal(assignment_verify(both, "uid", "n", sample, sig, &err), 0);
    assert_int_equal(assignment_verify(foreign, "uid", "n", sample, sig, &err), -EKEYREJECTED);
    assert_int_equal(assignment_verify(v, "uiD", "n", sample, sig, &err), -EKEYREJECTED);
    assert_int_equal(assignment_verify(v, "uid", "m", sample, sig, &err), -EKEYREJECTED);
    assert_int_equal(assignment_verify(v, "uid", "n", "{}", sig, &err), -EKEYREJECTED);
    assert_int_equal(assignment_verify(v, "uid\nn", "", sample, sig, &err), -EINVAL);
    assert_int_equal(assignment_verify(v, "uid", "n", sample, "", &err), -EINVAL);
    assert_true(assignment_verify(v, "uid", "n", sample, "AAAA", &err) < 0);
    assert_true(assignment_verify(v, "uid", "n", sample, "!!!!", &err) < 0);
    uint64_t signer = 0;
    assert_int_equal(signing_verifier_count(both), 2);
    assert_true(signing_key_id(key) != signing_key_id(other) && signing_key_id(key) != 0);
    assert_true(signing_key_id(key) == signing_key_id(again));
    assert_true(signing_verifier_id(both, 0) == signing_key_id(other));
    assert_true(signing_verifier_id(both, 1) == signing_key_id(key));
    assert_int_equal(assignment_signer(both, "uid", "n", sample, sig, &signer, &err), 0);
    assert_true(signer == signing_key_id(key));
    signing_verifier_free(v);
    signing_verifier_free(foreign);
    signing_verifier_free(both);
    signing_key_free(key);
    signing_key_free(again);
    signing_key_free(other);
}

static void test_bad_keys(void **state) {
    (void) state;
    struct signing_key *key;
    struct signing_verifier *v;
    struct err err;
    static const char rsa_like[] =
        "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE\n-----END PUBLIC "
        "KEY-----\n";
    assert_true(signing_key_load("nonsense", 8, &key, &err) < 0);
    assert_true(signing_verifier_load("nonsense", 8, &v, &err) < 0);
    assert_true(signing_verifier_load("", 0, &v, &err) < 0);
    assert_true(signing_verifier_load(rsa_like, sizeof(rsa_like) - 1, &v, &err) < 0);
}

static bool drop_all(uint64_t id, void *userdata) {
    (void) id;
    ++*(unsigned *) userdata;
    return true;
}

static void check_without(const char *pem, const char *want, unsigned want_asked) {
    _cleanup_buf_ struct buf out = BUF_INIT(0);
    unsigned asked = 0;
    assert_int_equal(signing_keys_without(pem, strlen(pem), drop_all, &asked, &out), 0);
    assert_string_equal(buf_str(&out), want);
    assert_int_equal(asked, want_asked);
}

static void test_keys_that_stay(void **state) {
    static const char bad[] = "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYI\n";
    _cleanup_buf_ struct buf pem = BUF_INIT(0), text = BUF_INIT(0), want = BUF_INIT(0);
    struct signing_key *key;
    struct err err;
    (void) state;
    assert_int_equal(signing_key_generate(&key, &err), 0);
    assert_int_equal(signing_key_public(key, &pem, &err), 0);
    signing_key_free(key);
    check_without("", "", 0);
    check_without("no key\n", "no key\n", 0);
    check_without(bad, bad, 0);
    buf_printf(&text, "# ours\n%s%s%s", buf_str(&pem), bad, buf_str(&pem));
    buf_printf(&want, "# ours\n%s%s", buf_str(&pem), bad);
    check_without(buf_str(&text), buf_str(&want), 1);
    buf_reset(&text);
    buf_reset(&want);
    for (unsigned i = 0; i < SIGNING_KEYS_MAX + 2; i++) {
        buf_puts(&text, buf_str(&pem));
        if (i == 0 || i >= SIGNING_KEYS_MAX)
            buf_puts(&want, buf_str(&pem));
    }
    check_without(buf_str(&text), buf_str(&want), SIGNING_KEYS_MAX - 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantity),
        cmocka_unit_test(test_quantity_format),
        cmocka_unit_test(test_native),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_dialects),
        cmocka_unit_test(test_pod),
        cmocka_unit_test(test_driver_capabilities),
        cmocka_unit_test(test_pod_rank),
        cmocka_unit_test(test_pod_states),
        cmocka_unit_test(test_not_a_pod),
        cmocka_unit_test(test_node),
        cmocka_unit_test(test_agent_of_node),
        cmocka_unit_test(test_node_that_is_not_ready),
        cmocka_unit_test(test_condition_that_was_left_behind),
        cmocka_unit_test(test_gpu_object),
        cmocka_unit_test(test_gpu_name),
        cmocka_unit_test(test_only_blanks_are_trimmed),
        cmocka_unit_test(test_scaling_annotation),
        cmocka_unit_test(test_assignment),
        cmocka_unit_test(test_oversubscribed_assignment),
        cmocka_unit_test(test_bad_assignments),
        cmocka_unit_test(test_signature),
        cmocka_unit_test(test_bad_keys),
        cmocka_unit_test(test_keys_that_stay),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
