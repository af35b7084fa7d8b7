/* SPDX-License-Identifier: Apache-2.0 */

/* The exclusive CPUs of nodes and pods. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "kube/objects/node.h"
#include "kube/objects/node_cpus.h"
#include "kube/objects/pod.h"
#include "wire/json.h"

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

/* ---- of nodes ---- */

static void test_cpus_of_a_node(void **state) {
    (void) state;
    static const struct {
        const char *text, *written; /* NULL: the same; "": not known */
        uint32_t taken;
    } rows[] = {
        {"0=12/16,1=32/32", NULL, 4},
        {"0=0/4096,63=4096/4096", NULL, 4096},
        {"1=0/1", NULL, 1},
        {"1=3/4,0=2/4", "0=2/4,1=3/4", 3},
        {"0=1/2,", "0=1/2", 1},
        {"", NULL, 0},
        {"0=0/0", "", 0},
        {"64=1/1", "", 0},
        {"0=2/1", "", 0},
        {"0=1/4097", "", 0},
        {"0=1/2,1", "", 0},
        {"0=1/2,1=", "", 0},
        {"0=1/2,1=2", "", 0},
        {"0=1/2,,1=2/2", "", 0},
        {"0=-1/2", "", 0},
        {"00000000000000000=1/2", "", 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *want = rows[i].written ? rows[i].written : rows[i].text;
        struct node_cpus cpus;
        char text[NODE_CPUS_TEXT_MAX];
        node_cpus_read(rows[i].text, &cpus);
        node_cpus_write(&cpus, text);
        assert_string_equal(text, want);
        assert_int_equal(node_cpus_taken(&cpus), rows[i].taken);
        assert_int_equal(node_cpus_known(&cpus), want[0] != 0);
    }
}

static void test_longest_cpus_of_a_node(void **state) {
    (void) state;
    struct node_cpus cpus, read;
    char text[NODE_CPUS_TEXT_MAX];
    for (size_t i = 0; i < NODE_CPUS_NUMA_NODES; i++)
        cpus.all[i] = cpus.free[i] = NODE_CPUS_MAX;
    node_cpus_write(&cpus, text);
    node_cpus_read(text, &read);
    assert_memory_equal(&read, &cpus, sizeof(cpus));
}

static void test_cpus_in_the_annotation(void **state) {
    (void) state;
    struct node_object node;
    struct err err;
    assert_int_equal(
        node_object_parse(parse("{\"metadata\":{\"name\":\"n\",\"uid\":\"u\",\"annotations\":{"
                                "\"elasticgpu.io/exclusive-cpus\":\"1=3/4\"}}}"),
                          &node, &err),
        0);
    assert_int_equal(node.cpus.free[1], 3);
    assert_int_equal(
        node_object_parse(parse("{\"metadata\":{\"name\":\"n\",\"uid\":\"u\","
                                "\"annotations\":{\"elasticgpu.io/exclusive-cpus\":7}}}"),
                          &node, &err),
        0);
    assert_false(node_cpus_known(&node.cpus));
}

/* ---- of pods ---- */

/* A container that requests a share and so many CPUs, or no share without a name. */
static void put(struct buf *out, const char *name, const char *cpu, const char *more) {
    buf_printf(out, "{\"resources\":{\"requests\":{\"cpu\":\"%s\"}", cpu);
    if (name)
        buf_printf(out, ",\"limits\":{\"elasticgpu.io/gpu-core\":\"10\"}},\"name\":\"%s\"", name);
    else
        buf_puts(out, "}");
    buf_printf(out, "%s}", more);
}

static void put_pod(struct buf *out, const char *class) {
    buf_puts(out, "{\"metadata\":{\"name\":\"p\",\"namespace\":\"d\",\"uid\":\"u\"},\"spec\":{"
                  "\"initContainers\":[");
    put(out, "i", "16", "");
    buf_puts(out, ",");
    put(out, NULL, "2", ",\"restartPolicy\":\"Always\"");
    buf_puts(out, "],\"containers\":[");
    put(out, "a", "4000m", "");
    buf_puts(out, ",");
    put(out, "b", "1500m", "");
    buf_puts(out, ",");
    put(out, NULL, "2", "");
    buf_puts(out, ",");
    put(out, NULL, "9007199254740992", "");
    buf_printf(out, "]},\"status\":{\"qosClass\":\"%s\"}}", class);
}

/* Whole CPUs of a pod of class Guaranteed, without those of init containers in the sum. */
static void test_exclusive_cpus_of_a_pod(void **state) {
    (void) state;
    static const uint32_t cpus[] = {16, 4, 0};
    struct err err;
    for (int guaranteed = 0; guaranteed < 2; guaranteed++) {
        _cleanup_buf_ struct buf text = BUF_INIT(0);
        struct pod pod;
        put_pod(&text, guaranteed ? "Guaranteed" : "Burstable");
        assert_int_equal(pod_parse(parse(buf_str(&text)), &pod, &err), 0);
        assert_int_equal(pod.room.exclusive, guaranteed ? 8 : 0);
        assert_int_equal(pod.request.n, 3);
        for (uint32_t i = 0; i < 3; i++)
            assert_int_equal(pod.request.containers[i].cpus, guaranteed ? cpus[i] : 0);
        pod_done(&pod);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpus_of_a_node),
        cmocka_unit_test(test_longest_cpus_of_a_node),
        cmocka_unit_test(test_cpus_in_the_annotation),
        cmocka_unit_test(test_exclusive_cpus_of_a_pod),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
