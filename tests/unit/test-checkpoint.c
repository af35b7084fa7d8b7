/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/kubelet/checkpoint.h"
#include "base/err.h"

/* ContainerAllocateResponse{cdi_devices: [{name:
 * "elasticgpu.io/share=0123456789abcdef0123456789abcdef"}]} */
#define ANSWER "KjYKNGVsYXN0aWNncHUuaW8vc2hhcmU9MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
#define NONCE "0123456789abcdef0123456789abcdef"

struct seen {
    size_t n;
    char text[4][256];
};

static bool only_ours(const char *resource, void *userdata) {
    (void) userdata;
    return strncmp(resource, "elasticgpu.io/", 14) == 0;
}

static void note(const struct checkpoint_entry *e, void *userdata) {
    struct seen *s = userdata;
    int n;

    assert_in_range(s->n, 0, 3);
    n = snprintf(s->text[s->n], 256, "%s %s %s [%s]", e->pod_uid, e->container, e->resource,
                 e->nonce);
    for (size_t i = 0; i < e->nids; i++)
        n += snprintf(s->text[s->n] + n, 256 - (size_t) n, " %s", e->ids[i]);
    s->n++;
}

static int parse(const char *text, struct seen *s) {
    struct err err;

    memset(s, 0, sizeof(*s));
    return checkpoint_parse(text, strlen(text), only_ours, note, s, &err);
}

static void by_numa_node(void **state) {
    struct seen s;

    (void) state;
    assert_int_equal(
        parse("{\"Data\":{\"PodDeviceEntries\":["
              "{\"PodUID\":\"u1\",\"ContainerName\":\"main\",\"ResourceName\":\"elasticgpu.io/"
              "gpu-core\","
              "\"DeviceIDs\":{\"-1\":[\"c-0003\",\"c-0001\"],\"0\":[\"c-0002\"]},\"AllocResp\":"
              "\"" ANSWER "\"},"
              "{\"PodUID\":\"u2\",\"ContainerName\":\"x\",\"ResourceName\":\"nvidia.com/gpu\","
              "\"DeviceIDs\":{\"-1\":[\"GPU-1\"]},\"AllocResp\":\"\"}],"
              "\"RegisteredDevices\":{\"elasticgpu.io/gpu-core\":[\"c-0001\"]}},\"Checksum\":1}",
              &s),
        0);
    assert_int_equal(s.n, 1);
    assert_string_equal(s.text[0],
                        "u1 main elasticgpu.io/gpu-core [" NONCE "] c-0001 c-0002 c-0003");
}

static void as_list(void **state) {
    struct seen s;

    (void) state;
    assert_int_equal(
        parse("{\"Data\":{\"PodDeviceEntries\":[{\"PodUID\":\"u\",\"ContainerName\":\"c\","
              "\"ResourceName\":"
              "\"elasticgpu.io/"
              "slot\",\"DeviceIDs\":[\"s-2\",\"s-1\"],\"AllocResp\":\"!!\"}]},\"Checksum\":1}",
              &s),
        0);
    assert_string_equal(s.text[0], "u c elasticgpu.io/slot [] s-1 s-2");
}

static void malformed(void **state) {
    struct seen s;

    (void) state;
    assert_int_equal(parse("", &s), -EBADMSG);
    assert_int_equal(parse("{\"Data\":", &s), -EBADMSG);
    assert_int_equal(parse("[]", &s), -EBADMSG);
    assert_int_equal(parse("{\"Data\":{\"PodDeviceEntries\":null},\"Checksum\":1}", &s), 0);
    /* One bad entry does not hide the next. */
    assert_int_equal(
        parse("{\"Data\":{\"PodDeviceEntries\":[7,{\"ResourceName\":\"elasticgpu.io/slot\"},"
              "{\"PodUID\":\"u\",\"ContainerName\":\"c\",\"ResourceName\":\"elasticgpu.io/slot\","
              "\"DeviceIDs\":{\"-1\":[5]}},"
              "{\"PodUID\":\"u\",\"ContainerName\":\"d\",\"ResourceName\":\"elasticgpu.io/slot\","
              "\"DeviceIDs\":{}}]}}",
              &s),
        0);
    assert_int_equal(s.n, 1);
    assert_string_equal(s.text[0], "u d elasticgpu.io/slot []");
}

static void nonces(void **state) {
    char nonce[NONCE_LEN + 1];

    (void) state;
    assert_true(nonce_of_cdi_name(CDI_PREFIX NONCE, nonce));
    assert_string_equal(nonce, NONCE);
    assert_false(nonce_of_cdi_name(CDI_PREFIX NONCE "0", nonce));
    assert_false(nonce_of_cdi_name(CDI_PREFIX "../../../../../../etc/passwd____", nonce));
    assert_false(nonce_of_cdi_name("nvidia.com/gpu=" NONCE, nonce));
    assert_string_equal(nonce, "");
}

static void missing_file(void **state) {
    struct seen s = {0};
    struct err err;

    (void) state;
    assert_int_equal(checkpoint_read("/nonexistent/x", only_ours, note, &s, &err), -ENOENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_numa_node), cmocka_unit_test(as_list),      cmocka_unit_test(malformed),
        cmocka_unit_test(nonces),       cmocka_unit_test(missing_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
