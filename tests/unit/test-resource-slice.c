/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/units.h"
#include "kube/objects/resource_slice.h"

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

static struct slice_device card(unsigned index) {
    struct slice_device d = {.shared = true,
                             .model = "NVIDIA A100-SXM4-80GB",
                             .driver_version = "550.54.15",
                             .index = index,
                             .numa = 1,
                             .core = 100,
                             .memory = 80 * GIB};

    (void) snprintf(d.name, sizeof(d.name), "gpu-%u", index);
    (void) snprintf(d.uuid, sizeof(d.uuid), "GPU-%u", index);
    return d;
}

/* What was taken is to be freed with the pool. */
static struct slice_pool pool_of(unsigned n) {
    struct slice_device *devices = calloc(n ? n : 1, sizeof(*devices));

    assert_non_null(devices);
    for (unsigned i = 0; i < n; i++)
        devices[i] = card(i);
    return (struct slice_pool){
        .node = "n1", .node_uid = "node-uid", .generation = 3, .ndevices = n, .devices = devices};
}

static void free_pool(struct slice_pool *pool) {
    free((void *) (uintptr_t) pool->devices);
}

static struct slice_device *at(struct slice_pool *pool, unsigned i) {
    return (struct slice_device *) (uintptr_t) &pool->devices[i];
}

static void encode(const struct slice_pool *pool, uint32_t slice, struct buf *out) {
    buf_reset(out);
    resource_slice_encode(pool, slice, NULL, out);
    assert_int_equal(buf_error(out), 0);
}

/* As an API server without a feature does. */
static void drop(struct buf *text, const char *member) {
    for (char *found = strstr(text->data, member); found; found = strstr(text->data, member)) {
        size_t len = strlen(member);

        memmove(found, found + len, strlen(found + len) + 1);
        text->len -= len;
    }
}

/* ---- out ---- */

static void test_a_shared_card_is_written(void **state) {
    _cleanup_buf_ struct buf text = BUF_INIT(SLICE_JSON_MAX);
    struct slice_pool pool = pool_of(1);

    (void) state;
    at(&pool, 0)->memory += 5; /* Kubernetes counts in steps of a MiB */
    resource_slice_encode(&pool, 0, "12", &text);
    assert_string_equal(
        buf_str(&text),
        "{\"apiVersion\":\"resource.k8s.io/v1\",\"kind\":\"ResourceSlice\",\"metadata\":{"
        "\"name\":\"n1-gpu.elasticgpu.io-0\",\"resourceVersion\":\"12\",\"ownerReferences\":[{"
        "\"apiVersion\":\"v1\",\"kind\":\"Node\",\"name\":\"n1\",\"uid\":\"node-uid\","
        "\"controller\":true}]},\"spec\":{\"driver\":\"gpu.elasticgpu.io\",\"nodeName\":\"n1\","
        "\"pool\":{\"name\":\"n1\",\"generation\":3,\"resourceSliceCount\":1},\"devices\":[{"
        "\"name\":\"gpu-0\",\"allowMultipleAllocations\":true,\"attributes\":{"
        "\"uuid\":{\"string\":\"GPU-0\"},\"model\":{\"string\":\"NVIDIA A100-SXM4-80GB\"},"
        "\"driverVersion\":{\"string\":\"550.54.15\"},\"allocator\":{\"string\":\"aliquot\"},"
        "\"index\":{\"int\":0},\"numa\":{\"int\":1}},\"capacity\":{"
        "\"core\":{\"value\":\"100\",\"requestPolicy\":{\"default\":\"100\",\"validRange\":{"
        "\"min\":\"0\",\"step\":\"1\",\"max\":\"100\"}}},"
        "\"memory\":{\"value\":\"85899345920\",\"requestPolicy\":{\"default\":\"85899345920\","
        "\"validRange\":{\"min\":\"1048576\",\"step\":\"1048576\",\"max\":\"85899345920\"}}}}}]}}");
    free_pool(&pool);
}

static void test_many_devices_take_several_slices(void **state) {
    _cleanup_buf_ struct buf text = BUF_INIT(SLICE_JSON_MAX);
    struct slice_pool pool = pool_of(SLICE_DEVICES_MAX + 1);
    struct resource_slice s;

    (void) state;
    assert_int_equal(resource_slice_count(&pool), 2);
    for (uint32_t slice = 0; slice < 2; slice++) {
        encode(&pool, slice, &text);
        assert_int_equal(resource_slice_parse(parse(buf_str(&text)), &s, NULL), 0);
        assert_int_equal(s.ndevices, slice == 0 ? SLICE_DEVICES_MAX : 1);
        assert_int_equal(s.nslices, 2);
        assert_int_equal(s.generation, 3);
        assert_non_null(resource_slice_find(&s, slice == 0 ? "gpu-0" : "gpu-64"));
        resource_slice_done(&s);
    }
    free_pool(&pool);
}

/* An empty pool is still there: its slice says that the driver has no device. */
static void test_no_device_is_one_slice(void **state) {
    struct slice_pool pool = pool_of(0);

    (void) state;
    assert_int_equal(resource_slice_count(&pool), 1);
    free_pool(&pool);
}

static void test_a_long_node_has_a_name_of_its_own(void **state) {
    char node[KUBE_NAME_MAX], one[KUBE_NAME_MAX], other[KUBE_NAME_MAX];

    (void) state;
    memset(node, 'n', sizeof(node) - 1);
    node[sizeof(node) - 1] = '\0';
    resource_slice_name(node, 0, one);
    node[sizeof(node) - 2] = 'm';
    resource_slice_name(node, 0, other);
    assert_string_not_equal(one, other);
    assert_true(strlen(one) < 64);
}

/* ---- in ---- */

static void test_what_was_written_is_read(void **state) {
    _cleanup_buf_ struct buf text = BUF_INIT(SLICE_JSON_MAX);
    struct slice_pool pool = pool_of(3);
    struct resource_slice s;

    (void) state;
    *at(&pool, 1) =
        (struct slice_device){.name = "gpu-1-gi-3",
                              .uuid = "MIG-3",
                              .parent = "GPU-1",
                              .profile = "1g.10gb",
                              .index = 1,
                              .numa = -1,
                              .by_scheduler = true,
                              .core = 14,
                              .memory = 10 * GIB,
                              .ntaints = 2,
                              .taints = {{"gpu.elasticgpu.io/unhealthy", "xid-79", true},
                                         {"gpu.elasticgpu.io/maintenance", "", false}}};
    encode(&pool, 0, &text);
    assert_int_equal(resource_slice_parse(parse(buf_str(&text)), &s, NULL), 0);
    assert_string_equal(s.node, "n1");
    assert_string_equal(s.pool, "n1");
    assert_int_equal(s.ndevices, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(slice_device_equal(&s.devices[i], &pool.devices[i]));
        assert_false(s.devices[i].other);
    }
    assert_null(resource_slice_find(&s, "gpu-1"));
    resource_slice_done(&s);
    free_pool(&pool);
}

/* Nine cards that can be divided: two slices of counters, and the devices after them. */
static void test_counters_come_first(void **state) {
    _cleanup_buf_ struct buf text = BUF_INIT(SLICE_JSON_MAX);
    struct slice_pool pool = pool_of(SLICE_DEVICES_MAX + 1);
    struct slice_counters sets[SLICE_SETS_MAX + 1];
    struct resource_slice s;

    (void) state;
    for (unsigned i = 0; i < SLICE_SETS_MAX + 1; i++) {
        sets[i] = (struct slice_counters){.slices = 0xff, .engines = {5, 0, 1, 1}};
        (void) snprintf(sets[i].name, sizeof(sets[i].name), "gpu-%u", i);
    }
    pool.sets = sets;
    pool.nsets = SLICE_SETS_MAX + 1;
    at(&pool, 0)->uses = (struct slice_counters){.name = "gpu-8", .slices = 0xc, .engines = {1}};
    assert_int_equal(resource_slice_count(&pool), 4);
    for (uint32_t slice = 0; slice < 4; slice++) {
        encode(&pool, slice, &text);
        assert_int_equal(resource_slice_parse(parse(buf_str(&text)), &s, NULL), 0);
        assert_true(resource_slice_is(&pool, slice, &s));
        assert_false(resource_slice_is(&pool, slice ^ 1, &s));
        assert_int_equal(s.nsets, slice == 0 ? 8 : slice == 1);
        assert_int_equal(s.ndevices, slice == 2 ? SLICE_DEVICES_MAX : slice == 3);
        assert_int_equal(resource_slice_check(&pool, slice, parse(buf_str(&text)), NULL),
                         SLICE_AS_WRITTEN);
        resource_slice_done(&s);
    }
    encode(&pool, 1, &text);
    assert_non_null(strstr(buf_str(&text), "\"sharedCounters\":[{\"name\":\"gpu-8\",\"counters\":{"
                                           "\"memory-slice-0\":{\"value\":\"1\"},"));
    assert_non_null(strstr(buf_str(&text), "\"decoders\":{\"value\":\"5\"},\"jpegs\":"));
    assert_null(strstr(buf_str(&text), "\"devices\""));
    encode(&pool, 2, &text);
    assert_non_null(strstr(buf_str(&text),
                           "\"consumesCounters\":[{\"counterSet\":\"gpu-8\",\"counters\":{"
                           "\"memory-slice-2\":{\"value\":\"1\"},\"memory-slice-3\":{"
                           "\"value\":\"1\"},\"decoders\":{\"value\":\"1\"}}}]"));
    free_pool(&pool);
}

/* The gate DRAPartitionableDevices is off: instances would be given out beside each other. */
static void test_dropped_counters_are_told(void **state) {
    _cleanup_buf_ struct buf text = BUF_INIT(SLICE_JSON_MAX);
    const struct slice_counters set = {.name = "gpu-0", .slices = 1};
    struct slice_pool pool = pool_of(1);

    (void) state;
    pool.sets = &set;
    pool.nsets = 1;
    at(&pool, 0)->uses = set;
    encode(&pool, 0, &text);
    drop(&text, ",\"sharedCounters\":[{\"name\":\"gpu-0\",\"counters\":{\"memory-slice-0\":{"
                "\"value\":\"1\"}}}]");
    assert_int_equal(resource_slice_check(&pool, 0, parse(buf_str(&text)), NULL),
                     SLICE_NO_COUNTERS);
    encode(&pool, 1, &text);
    drop(&text, ",\"consumesCounters\":[{\"counterSet\":\"gpu-0\",\"counters\":{"
                "\"memory-slice-0\":{\"value\":\"1\"}}}]");
    assert_int_equal(resource_slice_check(&pool, 1, parse(buf_str(&text)), NULL),
                     SLICE_NO_COUNTERS);
    free_pool(&pool);
}

static void test_each_difference_counts(void **state) {
    struct slice_device a = card(0);
    struct slice_device b[] = {a, a, a, a, a, a, a, a, a, a, a};

    (void) state;
    slice_text(b[0].uuid, "GPU-9");
    slice_text(b[1].driver_version, "560");
    b[2].shared = false;
    b[3].memory -= MIB;
    b[4].by_scheduler = true;
    b[5].core = 50;
    b[6].numa = 0;
    b[7].ntaints = 1;
    memcpy(b[8].name, "x", 2);
    b[9].uses.slices = 1;
    b[10].uses.engines[3] = 1;
    for (size_t i = 0; i < sizeof(b) / sizeof(b[0]); i++)
        assert_false(slice_device_equal(&a, &b[i]));
    assert_true(slice_device_equal(&a, &a));
}

#define SLICE(spec)                                                                                \
    "{\"metadata\":{\"name\":\"s\"},\"spec\":{\"driver\":\"gpu.elasticgpu.io\"," spec "}}"
#define POOL                                                                                       \
    "\"nodeName\":\"n\",\"pool\":{\"name\":\"n\",\"generation\":1,\"resourceSliceCount\":1}"

static void test_other_slices_are_refused(void **state) {
    static const char *const texts[] = {
        "{}",
        "[]",
        "{\"metadata\":{\"name\":\"s\"},\"spec\":{\"driver\":\"other\"," POOL "}}",
        SLICE("\"allNodes\":true"),
        SLICE(POOL ",\"devices\":[{}]"),
        SLICE(POOL ",\"devices\":{\"a\":{}}"),
        SLICE(POOL ",\"devices\":[{\"name\":\"d\",\"capacity\":{\"core\":{\"value\":\"101\"}}}]"),
        SLICE(POOL ",\"devices\":[{\"name\":\"d\",\"taints\":[{}]}]"),
        SLICE(POOL ",\"devices\":[{\"name\":\"d\",\"consumesCounters\":[{}]}]"),
        SLICE(POOL ",\"sharedCounters\":[{\"counters\":{}}]"),
        SLICE(POOL ",\"devices\":[{\"name\":\"d\",\"attributes\":{\"uuid\":{\"string\":5}}}]"),
    };
    struct resource_slice s;

    (void) state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (resource_slice_parse(parse(texts[i]), &s, NULL) != -EINVAL)
            fail_msg("accepted: %s", texts[i]);
    assert_int_equal(
        resource_slice_parse(parse(SLICE(POOL ",\"devices\":[{\"name\":\"d\"}]")), &s, NULL), 0);
    assert_int_equal(s.devices[0].memory, 0);
    assert_int_equal(s.devices[0].numa, -1);
    resource_slice_done(&s);
}

/* ---- the answer to a write ---- */

static void test_a_whole_answer_is_good(void **state) {
    _cleanup_buf_ struct buf text = BUF_INIT(SLICE_JSON_MAX);
    struct slice_pool pool = pool_of(2);

    (void) state;
    encode(&pool, 0, &text);
    assert_int_equal(resource_slice_check(&pool, 0, parse(buf_str(&text)), NULL), 0);
    free_pool(&pool);
}

/* Kubernetes 1.34 and 1.35: a share would become a whole card. */
static void test_dropped_shares_are_seen(void **state) {
    static const char *const members[] = {
        "\"allowMultipleAllocations\":true,",
        ",\"requestPolicy\":{\"default\":\"100\",\"validRange\":{\"min\":\"0\",\"step\":\"1\","
        "\"max\":\"100\"}}",
    };
    _cleanup_buf_ struct buf text = BUF_INIT(SLICE_JSON_MAX);
    struct slice_pool pool = pool_of(2);
    struct err err;

    (void) state;
    for (size_t i = 0; i < 2; i++) {
        encode(&pool, 0, &text);
        drop(&text, members[i]);
        assert_int_equal(resource_slice_check(&pool, 0, parse(buf_str(&text)), &err), -EOPNOTSUPP);
        assert_non_null(strstr(err.text, "DRAConsumableCapacity"));
    }
    /* A device that is given out whole lacks nothing. */
    at(&pool, 0)->shared = at(&pool, 1)->shared = false;
    encode(&pool, 0, &text);
    assert_int_equal(resource_slice_check(&pool, 0, parse(buf_str(&text)), &err), 0);
    free_pool(&pool);
}

static void test_dropped_taints_are_told(void **state) {
    _cleanup_buf_ struct buf text = BUF_INIT(SLICE_JSON_MAX);
    struct slice_pool pool = pool_of(2);

    (void) state;
    at(&pool, 1)->ntaints = 1;
    at(&pool, 1)->taints[0] = (struct slice_taint){"gpu.elasticgpu.io/unhealthy", "", false};
    encode(&pool, 0, &text);
    drop(&text, ",\"taints\":[{\"key\":\"gpu.elasticgpu.io/unhealthy\",\"value\":\"\","
                "\"effect\":\"NoSchedule\"}]");
    assert_int_equal(resource_slice_check(&pool, 0, parse(buf_str(&text)), NULL), 1);
    free_pool(&pool);
}

static void test_another_answer_is_refused(void **state) {
    _cleanup_buf_ struct buf text = BUF_INIT(SLICE_JSON_MAX);
    struct slice_pool pool = pool_of(2), fewer = pool_of(1);

    (void) state;
    encode(&fewer, 0, &text);
    assert_int_equal(resource_slice_check(&pool, 0, parse(buf_str(&text)), NULL), -EINVAL);
    memcpy(fewer.node, "n2", 3);
    encode(&fewer, 0, &text);
    assert_int_equal(resource_slice_check(&pool, 0, parse(buf_str(&text)), NULL), -EINVAL);
    assert_int_equal(resource_slice_check(&pool, 0, parse("{}"), NULL), -EINVAL);
    free_pool(&pool);
    free_pool(&fewer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_shared_card_is_written),
        cmocka_unit_test(test_many_devices_take_several_slices),
        cmocka_unit_test(test_no_device_is_one_slice),
        cmocka_unit_test(test_a_long_node_has_a_name_of_its_own),
        cmocka_unit_test(test_what_was_written_is_read),
        cmocka_unit_test(test_counters_come_first),
        cmocka_unit_test(test_dropped_counters_are_told),
        cmocka_unit_test(test_each_difference_counts),
        cmocka_unit_test(test_other_slices_are_refused),
        cmocka_unit_test(test_a_whole_answer_is_good),
        cmocka_unit_test(test_dropped_shares_are_seen),
        cmocka_unit_test(test_dropped_taints_are_told),
        cmocka_unit_test(test_another_answer_is_refused),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
