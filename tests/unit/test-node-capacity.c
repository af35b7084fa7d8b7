/* SPDX-License-Identifier: Apache-2.0 */

/* What the Node shows of its cards: never less than aliquot-scheduler gives out by a name. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "agent/report/node_capacity.h"
#include "agent/shares/shares.h"
#include "base/cleanup.h"
#include "base/units.h"
#include "model/scaling.h"
#include "wire/json.h"

#define CARD (80 * GIB)
#define TWO_CARDS                                                                                  \
    "\"elasticgpu.io/gpu-memory\":\"171798691840\",\"tke.cloud.tencent.com/qgpu-memory\":\"160\"," \
    "\"aliyun.com/gpu-mem\":\"160\",\"aliyun.com/gpu-count\":\"2\""

static struct shares shares = {.options = {.memory_scaling = SCALING_ONE}};
static struct gpu_snapshot snapshot;

/* Two cards that are given out in shares, which a test changes. */
static int setup(void **unused) {
    (void) unused;
    snapshot.ndevices = 2;
    snapshot.devices[0] = (struct gpu_device){.uuid = "GPU-0", .memory = CARD, .healthy = true};
    snapshot.devices[1] =
        (struct gpu_device){.index = 1, .uuid = "GPU-1", .memory = CARD, .healthy = true};
    return 0;
}

static void make_replicas(uint32_t count, bool as_cards) {
    for (uint32_t i = 0; i < snapshot.ndevices; i++)
        snapshot.devices[i].replicas = (struct card_replicas){.count = count, .as_cards = as_cards};
}

/* A Node with such a capacity and owned names; `patch`: what is written, NULL: nothing. */
static void check(const char *capacity, const char *owned, const char *patch) {
    _cleanup_json_ struct json_parser *parser = NULL;
    _cleanup_buf_ struct buf node = BUF_INIT(0), out = BUF_INIT(0);
    struct node_capacity have, want;
    struct json root;

    buf_printf(&node, "{\"metadata\":{\"annotations\":{\"x\":\"y\"");
    if (owned)
        buf_printf(&node, ",\"" NODE_CAPACITY_OWNED "\":\"%s\"", owned);
    buf_printf(&node, "}},\"status\":{\"capacity\":{%s}}}", capacity);
    assert_int_equal(json_open(buf_str(&node), node.len, &parser, &root, NULL), 0);
    node_capacity_read(root, &have);
    node_capacity_want(&shares, &snapshot, &want);
    assert_int_equal(node_capacity_differs(&have, &want), patch != NULL);
    if (!patch)
        return;
    node_capacity_patch(&have, &want, &out);
    assert_string_equal(buf_str(&out), patch);
}

#define OWNS(names) "\"metadata\":{\"annotations\":{\"elasticgpu.io/capacity\":" names "}}"
#define SHOWS(amounts) "{\"status\":{\"capacity\":{" amounts "}}}"
#define SHOWS_AS(amounts, names) "{\"status\":{\"capacity\":{" amounts "}}," OWNS(names) "}"

/* By nvidia.com/gpu, HAMi's pods request parts of cards: more than there are cards. */
static void test_shares(void **unused) {
    (void) unused;
    check("", NULL, SHOWS(TWO_CARDS));
    check(TWO_CARDS, NULL, NULL);
    check(TWO_CARDS ",\"nvidia.com/gpu\":\"4\"", NULL, NULL); /* another plugin's */
    /* What kubelet leaves of such a plugin would keep all pods off that request the name. */
    check(TWO_CARDS ",\"nvidia.com/gpu\":\"0\"", NULL, SHOWS("\"nvidia.com/gpu\":null"));
    snapshot.devices[0].whole_only = true;
    check(TWO_CARDS, NULL, NULL);
    snapshot.ndevices = 0;
    check("", NULL, NULL);
}

static void test_whole_cards(void **unused) {
    (void) unused;
    snapshot.devices[0].whole_only = snapshot.devices[1].whole_only = true;
    check(TWO_CARDS, NULL, SHOWS_AS("\"nvidia.com/gpu\":\"2\"", "\"nvidia.com/gpu,\""));
    check(TWO_CARDS ",\"nvidia.com/gpu\":\"2\"", "nvidia.com/gpu,", NULL);
    /* kubelet has registered anew. */
    check(TWO_CARDS ",\"nvidia.com/gpu\":\"0\"", "nvidia.com/gpu,",
          SHOWS("\"nvidia.com/gpu\":\"2\""));
    snapshot.devices[1].replicas = (struct card_replicas){.count = 4, .as_cards = true};
    snapshot.devices[1].whole_only = false;
    check(TWO_CARDS, NULL, SHOWS_AS("\"nvidia.com/gpu\":\"5\"", "\"nvidia.com/gpu,\""));
    /* Of the other card kubelet gives out all. */
    snapshot.devices[1].offer = GPU_OFFER_WHOLE;
    check("\"elasticgpu.io/gpu-memory\":\"85899345920\"", "nvidia.com/gpu,",
          SHOWS("\"tke.cloud.tencent.com/qgpu-memory\":\"80\",\"aliyun.com/gpu-mem\":\"80\","
                "\"aliyun.com/gpu-count\":\"1\",\"nvidia.com/gpu\":\"1\""));
}

static void test_replicas(void **unused) {
    (void) unused;
    make_replicas(4, true);
    check(TWO_CARDS, NULL, SHOWS_AS("\"nvidia.com/gpu\":\"8\"", "\"nvidia.com/gpu,\""));
    make_replicas(4, false);
    check(TWO_CARDS ",\"nvidia.com/gpu\":\"8\"", "nvidia.com/gpu,",
          SHOWS_AS("\"nvidia.com/gpu\":null,\"nvidia.com/gpu.shared\":\"8\"",
                   "\"nvidia.com/gpu.shared,\""));
    /* The name requests a tenth of cards for which the configuration has no replicas. */
    snapshot.devices[1].replicas.count = 0;
    check(TWO_CARDS, "nvidia.com/gpu.shared,", SHOWS("\"nvidia.com/gpu.shared\":\"14\""));
    snapshot.devices[1].whole_only = true;
    check(TWO_CARDS, "nvidia.com/gpu.shared,", SHOWS("\"nvidia.com/gpu.shared\":\"4\""));
}

/* The configuration has no such cards any more: what an agent wrote goes, and nothing else. */
static void test_taken_away(void **unused) {
    (void) unused;
    check(TWO_CARDS ",\"nvidia.com/gpu\":\"8\",\"nvidia.com/gpu.shared\":\"7\"", "nvidia.com/gpu,",
          SHOWS_AS("\"nvidia.com/gpu\":null", "null"));
    check(TWO_CARDS ",\"nvidia.com/gpu.shared\":\"7\"", "nvidia.com/gpu,", SHOWS_AS("", "null"));
}

/* Containers from before the configuration changed, which kubelet would count as more. */
static void test_smaller_parts(void **unused) {
    struct slot_device device = {.uuid = "GPU-1", .memory = GIB};
    struct slot slot = {.nonce = "n",
                        .grant = {.ndevices = 1, .devices = &device, .exported = EXPORT_HAMI}};

    (void) unused;
    HASH_ADD_STR(shares.slots.slots, nonce, &slot);
    make_replicas(4, true);
    check(TWO_CARDS, NULL, NULL);
    check(TWO_CARDS ",\"nvidia.com/gpu\":\"20\"", "nvidia.com/gpu,",
          SHOWS_AS("\"nvidia.com/gpu\":null", "null"));
    device.memory = CARD / 4;
    check(TWO_CARDS ",\"nvidia.com/gpu\":\"8\"", "nvidia.com/gpu,", NULL);
    snapshot.devices[1].whole_only = true;
    check(TWO_CARDS, NULL, NULL);
    slot.grant.exported = EXPORT_ELASTIC; /* kubelet does not count it there */
    check(TWO_CARDS ",\"nvidia.com/gpu\":\"5\"", "nvidia.com/gpu,", NULL);
    slot.grant.exported = EXPORT_NONE;
    device.memory = CARD / 10;
    make_replicas(4, false);
    snapshot.devices[1].whole_only = false;
    check(TWO_CARDS, NULL, NULL);
    snapshot.devices[1].replicas.count = 0;
    check(TWO_CARDS ",\"nvidia.com/gpu.shared\":\"14\"", "nvidia.com/gpu.shared,", NULL);
    HASH_CLEAR(hh, shares.slots.slots);
}

/* Names that are left to another plugin are its own. The last test, as that is for ever. */
static void test_served_elsewhere(void **unused) {
    (void) unused;
    assert_int_equal(dialect_leave("nvidia.com/gpu,nvidia.com/gpu.shared", NULL), 0);
    make_replicas(4, true);
    check(TWO_CARDS ",\"nvidia.com/gpu\":\"0\"", NULL, NULL);
    check(TWO_CARDS ",\"nvidia.com/gpu\":\"8\"", "nvidia.com/gpu,",
          SHOWS_AS("\"nvidia.com/gpu\":null", "null"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_shares, setup),
        cmocka_unit_test_setup(test_whole_cards, setup),
        cmocka_unit_test_setup(test_replicas, setup),
        cmocka_unit_test_setup(test_taken_away, setup),
        cmocka_unit_test_setup(test_smaller_parts, setup),
        cmocka_unit_test_setup(test_served_elsewhere, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
