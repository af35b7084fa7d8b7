/* SPDX-License-Identifier: Apache-2.0 */

/* Whole cards and replicas as kubelet gets them: IDs, health, the choice among them. */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "agent/backends/backend.h"
#include "agent/backends/device_id.h"
#include "agent/backends/whole_rows.h"
#include "agent/config/node_config.h"
#include "base/err.h"
#include "base/text.h"
#include "model/dialect.h"

#define V1 "version: v1\n"
#define SLICED(more, rows) V1 "sharing:\n  timeSlicing:\n    " more "resources: [" rows "]\n"

static struct gpu_snapshot node;
static struct whole_rows rows;
static const struct resource *taken[8];
static size_t ntaken;

static void add(enum gpu_kind kind, const char *uuid, const char *parent) {
    struct gpu_device *d = &node.devices[node.ndevices++];

    *d = (struct gpu_device){.kind = kind, .index = node.ndevices - 1, .healthy = true};
    d->offer = kind == GPU_CARD ? GPU_OFFER_WHOLE : GPU_OFFER_DEFAULT;
    text_copy(d->uuid, sizeof(d->uuid), uuid);
    text_copy(d->parent, sizeof(d->parent), parent);
    text_copy(d->model, sizeof(d->model), "NVIDIA A100");
    if (kind == GPU_MIG_INSTANCE)
        text_copy(d->mig.profile, sizeof(d->mig.profile), "1g.10gb");
}

static int take(const struct resource *r, void *userdata) {
    (void) userdata;
    taken[ntaken++] = r;
    return 0;
}

static struct node_config *config;

static void configure(const char *text) {
    struct err err;

    if (node_config_parse(text, strlen(text), "node", &config, &err) < 0)
        fail_msg("%s: %s", text, err.text);
    rows = (struct whole_rows){.config = config, .strategy = MIG_STRATEGY_MIXED};
    whole_rows_update(&rows, &node, take, NULL);
}

static int setup(void **state) {
    (void) state;
    node.ndevices = 0;
    ntaken = 0;
    add(GPU_CARD, "GPU-a", "");
    add(GPU_CARD, "GPU-b", "");
    return 0;
}

static int teardown(void **state) {
    (void) state;
    whole_rows_done(&rows);
    config = node_config_free(config);
    return 0;
}

/* "nvidia.com/gpu: GPU-a GPU-b; " */
static const char *offered(void) {
    static char text[512];
    char id[BACKEND_ID_SIZE];
    size_t len = 0;

    text[0] = 0;
    for (size_t i = 0; i < ntaken; i++) {
        uint32_t n = taken[i]->backend->list(taken[i], &node);

        if (n > 0)
            len += (size_t) snprintf(text + len, sizeof(text) - len, "%s:", taken[i]->name);
        for (uint32_t k = 0; k < n; k++) {
            taken[i]->backend->id(taken[i], &node, k, id);
            assert_int_equal(taken[i]->backend->number(taken[i], &node, id), k);
            len += (size_t) snprintf(text + len, sizeof(text) - len, " %s", id);
        }
        if (n > 0)
            len += (size_t) snprintf(text + len, sizeof(text) - len, "; ");
    }
    return text;
}

static void whole_cards(void **state) {
    (void) state;
    configure(V1 "aliquot: {cards: [{devices: all, mode: whole}]}\n");
    assert_string_equal(offered(), "nvidia.com/gpu: GPU-a GPU-b; ");
    /* Containers still have shares of it. */
    node.devices[0].offer = GPU_OFFER_SHARES;
    assert_string_equal(offered(), "nvidia.com/gpu: GPU-b; ");
}

static void whole_and_replicated_cards(void **state) {
    (void) state;
    configure(SLICED("renameByDefault: true\n    ",
                     "{name: gpu, replicas: 3, devices: [1]}") "aliquot: {cards: [{devices: [0], "
                                                               "mode: whole}]}\n");
    assert_string_equal(offered(), "nvidia.com/gpu: GPU-a; "
                                   "nvidia.com/gpu.shared: GPU-b::0 GPU-b::1 GPU-b::2; ");
}

static void whole_cards_and_replicas_under_one_name(void **state) {
    (void) state;
    configure(SLICED("", "{name: gpu, replicas: 2, devices: [1]}") "aliquot: {cards: [{devices: "
                                                                   "[0], mode: whole}]}\n");
    assert_string_equal(offered(), "nvidia.com/gpu: GPU-a GPU-b::0 GPU-b::1; ");
}

static void replicas_of_instances(void **state) {
    (void) state;
    node.devices[1].divided = true;
    add(GPU_MIG_INSTANCE, "MIG-a", "GPU-b");
    configure(SLICED("", "{name: mig-1g.10gb, replicas: 2}"));
    assert_string_equal(offered(), "nvidia.com/mig-1g.10gb: MIG-a::0 MIG-a::1; ");
    assert_ptr_equal(device_id_find(&node, "MIG-a::1"), &node.devices[2]);
}

static void foreign_ids(void **state) {
    static const char *const ids[] = {"GPU-a",    "GPU-a::2", "GPU-a::", "GPU-a::x",
                                      "GPU-c::0", "",         "::0",     "GPU-a::0::0"};

    (void) state;
    configure(SLICED("", "{name: gpu, replicas: 2}"));
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++)
        assert_int_equal(taken[0]->backend->number(taken[0], &node, ids[i]), UINT32_MAX);
}

/* All replicas of a device, and no other. */
static void health(void **state) {
    bool held[4] = {false}, sick[4] = {false};

    (void) state;
    configure(SLICED("", "{name: gpu, replicas: 2}"));
    node.devices[0].healthy = false;
    taken[0]->backend->health(taken[0], &node, &(struct backend_held){.count = 4, .ids = held},
                              sick);
    assert_true(sick[0] && sick[1]);
    assert_false(sick[2] || sick[3]);
}

static int allocate(const char *a, const char *b) {
    const char *const ids[] = {a, b};
    const struct backend_ids all = {taken[0], &node, ids, b ? 2 : 1};
    char name[BACKEND_CDI_NAME_MAX];

    return taken[0]->backend->allocate(&all, name);
}

static void one_replica_at_most(void **state) {
    (void) state;
    configure(SLICED("failRequestsGreaterThanOne: true\n    ", "{name: gpu, replicas: 2}"));
    assert_int_equal(allocate("GPU-a::0", NULL), 0);
    assert_int_equal(allocate("GPU-a::0", "GPU-b::0"), -E2BIG);
    assert_int_equal(allocate("GPU-a::7", NULL), -ENODEV);
}

static void any_number_of_replicas(void **state) {
    (void) state;
    configure(SLICED("", "{name: gpu, replicas: 2}"));
    assert_int_equal(allocate("GPU-a::0", "GPU-a::1"), 0);
}

static const char *chosen(const char *available, const char *must, size_t want) {
    static char got[256];
    char texts[2][256], *ids[2][16], *ret[32], *at;
    const char *lists[2] = {available, must};
    size_t n[2] = {0, 0}, count;

    for (size_t i = 0; i < 2; i++) {
        text_copy(texts[i], sizeof(texts[i]), lists[i]);
        for (char *id = strtok_r(texts[i], " ", &at); id; id = strtok_r(NULL, " ", &at))
            ids[i][n[i]++] = id;
    }
    count = taken[0]->backend->prefer(
        &(struct backend_choice){taken[0], &node, ids[0], n[0], ids[1], n[1], want}, ret);
    got[0] = 0;
    for (size_t i = 0; i < count; i++)
        (void) snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s ", ret[i]);
    return got;
}

#define SOME "GPU-a::1 GPU-a::2 GPU-a::3 GPU-b::0 GPU-b::1"
#define POLICY(name)                                                                               \
    SLICED("", "{name: gpu, replicas: 4}") "aliquot: {allocationPolicy: " name "}\n"

static void distributed(void **state) {
    (void) state;
    configure(SLICED("", "{name: gpu, replicas: 4}"));
    assert_string_equal(chosen(SOME, "", 1), "GPU-a::1 ");
    assert_string_equal(chosen(SOME, "", 3), "GPU-a::1 GPU-a::2 GPU-b::0 ");
    assert_string_equal(chosen(SOME, "GPU-b::1", 2), "GPU-b::1 GPU-a::1 ");
}

static void packed(void **state) {
    (void) state;
    configure(POLICY("packed"));
    assert_string_equal(chosen(SOME, "", 1), "GPU-b::0 ");
    assert_string_equal(chosen(SOME, "", 3), "GPU-b::0 GPU-b::1 GPU-a::1 ");
}

/* b and d have NVLinks; a is on a board of its own. */
static void link_cards(void) {
    add(GPU_CARD, "GPU-c", "");
    add(GPU_CARD, "GPU-d", "");
    for (uint32_t i = 0; i < 4; i++) {
        node.devices[i].links.known = 4;
        memset(node.devices[i].links.level, 50, sizeof(node.devices[i].links.level));
    }
    node.devices[1].links.nvlinks[3] = node.devices[3].links.nvlinks[1] = 2;
    node.devices[0].links.level[2] = node.devices[2].links.level[0] = 10;
}

static void whole_cards_that_are_linked(void **state) {
    (void) state;
    link_cards();
    configure(V1 "aliquot: {cards: [{devices: all, mode: whole}]}\n");
    assert_string_equal(chosen("GPU-a GPU-b GPU-c GPU-d", "", 2), "GPU-b GPU-d ");
    assert_string_equal(chosen("GPU-a GPU-b GPU-c GPU-d", "GPU-a", 2), "GPU-a GPU-c ");
    assert_string_equal(chosen("GPU-a GPU-b gone", "", 3), "GPU-a GPU-b gone ");
}

/* One ID of each card of the best set; a second ID of a card only where the cards do not suffice.
 */
static void more_than_cards(void **state) {
    (void) state;
    link_cards();
    configure(POLICY("aligned"));
    assert_string_equal(chosen("GPU-b::0 GPU-b::1 GPU-d::0", "", 3), "GPU-b::0 GPU-d::0 GPU-b::1 ");
    assert_string_equal(chosen("GPU-b::0 GPU-b::1 GPU-b::2 GPU-d::0", "GPU-b::0 GPU-b::1", 3),
                        "GPU-b::0 GPU-b::1 GPU-d::0 ");
}

/* The pair with the most links would leave two cards without any. */
static void pairs_for_others(void **state) {
    (void) state;
    link_cards();
    node.devices[0].links.nvlinks[1] = node.devices[1].links.nvlinks[0] = 2;
    node.devices[2].links.nvlinks[3] = node.devices[3].links.nvlinks[2] = 2;
    node.devices[1].links.nvlinks[3] = node.devices[3].links.nvlinks[1] = 3;
    configure(V1 "aliquot: {cards: [{devices: all, mode: whole}]}\n");
    assert_string_equal(chosen("GPU-a GPU-b GPU-c GPU-d", "", 2), "GPU-a GPU-b ");
    assert_string_equal(chosen("GPU-b GPU-c GPU-d", "", 2), "GPU-b GPU-d ");
    assert_string_equal(chosen("GPU-a GPU-b GPU-c GPU-d", "GPU-d", 2), "GPU-d GPU-c ");
}

static void aligned(void **state) {
    (void) state;
    link_cards();
    configure(POLICY("aligned"));
    assert_string_equal(chosen("GPU-a::0 GPU-b::0 GPU-b::1 GPU-d::0 GPU-d::1", "", 2),
                        "GPU-b::0 GPU-d::0 ");
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(whole_cards, setup, teardown),
        cmocka_unit_test_setup_teardown(whole_and_replicated_cards, setup, teardown),
        cmocka_unit_test_setup_teardown(whole_cards_and_replicas_under_one_name, setup, teardown),
        cmocka_unit_test_setup_teardown(replicas_of_instances, setup, teardown),
        cmocka_unit_test_setup_teardown(foreign_ids, setup, teardown),
        cmocka_unit_test_setup_teardown(health, setup, teardown),
        cmocka_unit_test_setup_teardown(one_replica_at_most, setup, teardown),
        cmocka_unit_test_setup_teardown(any_number_of_replicas, setup, teardown),
        cmocka_unit_test_setup_teardown(distributed, setup, teardown),
        cmocka_unit_test_setup_teardown(packed, setup, teardown),
        cmocka_unit_test_setup_teardown(whole_cards_that_are_linked, setup, teardown),
        cmocka_unit_test_setup_teardown(aligned, setup, teardown),
        cmocka_unit_test_setup_teardown(more_than_cards, setup, teardown),
        cmocka_unit_test_setup_teardown(pairs_for_others, setup, teardown),
    };

    /* kubelet gives out the replicas. */
    assert_int_equal(dialect_leave("nvidia.com/gpu,nvidia.com/gpu.shared", NULL), 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
