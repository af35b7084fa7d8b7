/* SPDX-License-Identifier: Apache-2.0 */

/* What each device is given out as, by option and by the configuration of the node. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "agent/config/card_config.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "gpu/device.h"
#include "model/dialect.h"

#define V1 "version: v1\n"
#define CARDS V1 "aliquot:\n  cards:\n"
#define SLICED(rows)                                                                               \
    V1 "sharing:\n  timeSlicing:\n    renameByDefault: true\n    resources: [" rows "]\n"
#define UNDER_MPS(rows) V1 "sharing:\n  mps:\n    resources: [" rows "]\n"

/* Two cards, and one in MIG mode with two instances. */
static struct gpu_snapshot node;

static struct gpu_device *add(enum gpu_kind kind, uint32_t index, const char *uuid,
                              const char *parent) {
    struct gpu_device *d = &node.devices[node.ndevices++];

    *d = (struct gpu_device){.kind = kind, .index = index};
    (void) snprintf(d->uuid, sizeof(d->uuid), "%s", uuid);
    (void) snprintf(d->parent, sizeof(d->parent), "%s", parent);
    (void) snprintf(d->model, sizeof(d->model), "%s", index == 1 ? "NVIDIA T4" : "NVIDIA A100");
    if (kind == GPU_MIG_INSTANCE)
        (void) snprintf(d->mig.profile, sizeof(d->mig.profile), "1g.10gb");
    return d;
}

static int setup(void **state) {
    (void) state;
    add(GPU_CARD, 0, "GPU-a", "");
    add(GPU_CARD, 1, "GPU-b", "");
    add(GPU_CARD, 2, "GPU-c", "")->divided = true;
    add(GPU_MIG_INSTANCE, 0, "MIG-0", "GPU-c");
    add(GPU_MIG_INSTANCE, 1, "MIG-1", "GPU-c");
    return 0;
}

static struct node_config *parse(const char *text, const char *mps_cards) {
    struct node_config *c = NULL;
    struct err err = {0};

    if (node_config_parse(text, strlen(text), "node", &c, &err) < 0)
        fail_msg("%s: %s", text, err.text);
    c->mps_cards = mps_cards;
    return c;
}

/* A letter for each device. */
static const char *modes(const char *text, const char *mps_cards) {
    static char ret[8];
    struct node_config *c = parse(text, mps_cards);

    for (uint32_t i = 0; i < node.ndevices; i++)
        ret[i] = "swmi"[config_card_mode(c, &node, &node.devices[i])];
    ret[node.ndevices] = 0;
    (void) node_config_free(c);
    return ret;
}

static void by_option(void **state) {
    (void) state;
    assert_string_equal(modes(V1, ""), "ssiii");
    assert_string_equal(modes(V1, "all"), "mmmii");
    assert_string_equal(modes(V1, "1"), "smiii");
    assert_string_equal(modes(V1, "GPU-a"), "msiii");
    assert_string_equal(modes(V1, "7,GPU-a,1"), "mmiii");
    assert_string_equal(modes(V1, "GPU"), "ssiii");
    assert_string_equal(modes(V1, "10"), "ssiii");
    /* It takes precedence. */
    assert_string_equal(modes(CARDS "  - {devices: [0, 1], mode: mps}\n", "1"), "smiii");
    assert_string_equal(modes(CARDS "  - {devices: [0], mode: whole}\n", "1"), "wmiii");
}

static void by_entries(void **state) {
    static const struct {
        const char *text, *modes;
    } cases[] = {
        {V1, "ssiii"},
        {CARDS "  - {devices: all, mode: mps}\n", "mmmmm"},
        {CARDS "  - {devices: 1, mode: mps}\n", "msimi"},
        {CARDS "  - {devices: [1], mode: whole}\n", "swiii"},
        {CARDS "  - {devices: [0, \"GPU-b\"], mode: mig}\n", "iiiii"},
        /* An instance that is not named is as its card. */
        {CARDS "  - {devices: [2], mode: share}\n", "sssss"},
        {CARDS "  - {devices: [\"2:1\"], mode: share}\n", "ssiis"},
        {CARDS "  - {devices: [MIG-0], mode: whole}\n  - {devices: [2], mode: share}\n", "sssws"},
        /* The first one with a mode decides. */
        {CARDS "  - {devices: [0], memoryScaling: 1.5}\n  - {devices: [0], mode: share}\n"
               "  - {devices: [0, 1], mode: mps}\n",
         "smiii"},
        {"nodeconfig: [{name: node, operatingmode: mps}]\n", "mmiii"},
    };

    (void) state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        if (strcmp(modes(cases[i].text, NULL), cases[i].modes) != 0)
            fail_msg("%s: %s", cases[i].text, modes(cases[i].text, NULL));
}

static void by_sharing_and_patterns(void **state) {
    static const struct {
        const char *text, *modes;
    } cases[] = {
        {SLICED("{name: gpu, replicas: 4, rename: slice}"), "wwiii"},
        {SLICED("{name: gpu, replicas: 4, rename: slice, devices: 1}"), "wsiii"},
        {SLICED("{name: gpu, replicas: 4, rename: slice, devices: [\"GPU-b\"]}"), "swiii"},
        /* aliquot-scheduler gives out the replicas. */
        {SLICED("{name: gpu, replicas: 4}"), "ssiii"},
        {SLICED("{name: other, replicas: 4}"), "ssiii"},
        {UNDER_MPS("{name: gpu, replicas: 4, devices: [1]}"), "smiii"},
        /* An entry of ours takes precedence. */
        {SLICED("{name: gpu, replicas: 4, rename: slice}") "aliquot: {cards: [{devices: [0], mode: "
                                                           "share}]}\n",
         "swiii"},
        {V1 "resources: {gpus: [{pattern: T4, name: t4}]}\n", "swiii"},
        {V1 "resources: {gpus: [{pattern: '*', name: gpu}]}\n", "wwiii"},
    };

    (void) state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        if (strcmp(modes(cases[i].text, NULL), cases[i].modes) != 0)
            fail_msg("%s: %s", cases[i].text, modes(cases[i].text, NULL));
}

/* "count" of each card, with c: under the name of cards, !: one at most, m: with compute. */
static const char *scheduled(const char *text) {
    static char ret[128];
    struct node_config *c = parse(text, NULL);
    struct card_replicas r;
    struct config_offer offer;
    size_t len = 0;

    for (uint32_t i = 0; i < node.ndevices; i++) {
        if (!config_card_replicas(c, &node, &node.devices[i], &r)) {
            assert_int_equal(card_replicas_code(&r), 0);
            continue;
        }
        assert_false(config_card_offer(c, &node, &node.devices[i], &offer));
        len += (size_t) snprintf(ret + len, sizeof(ret) - len, "%u:%u%s%s%s ", i, r.count,
                                 r.as_cards ? "c" : "", r.one_at_most ? "!" : "",
                                 r.with_core ? "m" : "");
    }
    ret[len] = 0;
    (void) node_config_free(c);
    return ret;
}

static void replicas_of_the_scheduler(void **state) {
    static const struct {
        const char *text, *replicas;
    } cases[] = {
        {V1, ""},
        {V1 "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}\n",
         "0:4c 1:4c "},
        {SLICED("{name: gpu, replicas: 4}"), "0:4 1:4 "},
        {SLICED("{name: gpu, replicas: 4, devices: [1]}"), "1:4 "},
        {SLICED("{name: gpu, replicas: 4, rename: slice}"), ""},
        {UNDER_MPS("{name: gpu, replicas: 8}"), "0:8c!m 1:8c!m "},
        {SLICED("{name: t4, replicas: 8, rename: gpu.shared}") "resources: {gpus: [{pattern: T4, "
                                                               "name: t4}]}\n",
         "1:8 "},
        /* An entry of ours takes precedence. */
        {SLICED("{name: gpu, replicas: 4}") "aliquot: {cards: [{devices: [0], mode: share}]}\n",
         "1:4 "},
        {UNDER_MPS("{name: gpu, replicas: 8}") "aliquot: {cards: [{devices: [0], mode: mps},"
                                               " {devices: [1], mode: whole}]}\n",
         "0:8c!m "},
    };

    (void) state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        if (strcmp(scheduled(cases[i].text), cases[i].replicas) != 0)
            fail_msg("%s: %s", cases[i].text, scheduled(cases[i].text));
}

/* aliquot-scheduler gives out whole cards under the name that it reads as a request of them. */
static void whole_cards_of_the_scheduler(void **state) {
    struct node_config *c = parse(CARDS "  - {devices: all, mode: whole}\n", NULL);
    struct config_offer offer;

    (void) state;
    assert_false(config_card_offer(c, &node, &node.devices[0], &offer));
    assert_int_equal(dialect_leave("nvidia.com/gpu", NULL), 0); /* for all that follows */
    assert_true(config_card_offer(c, &node, &node.devices[0], &offer));
    assert_string_equal(offer.resource, "nvidia.com/gpu");
    (void) node_config_free(c);
    assert_string_equal(scheduled(UNDER_MPS("{name: gpu, replicas: 8}")), "");
    assert_string_equal(scheduled(SLICED("{name: gpu, replicas: 8}")), "0:8 1:8 ");
    assert_int_equal(dialect_leave("nvidia.com/gpu.shared", NULL), 0);
    assert_string_equal(scheduled(SLICED("{name: gpu, replicas: 8}")), "");
}

/* "resource*replicas", with ! where a container gets one at most; "" where kubelet has none. */
static const char *offers(const char *text) {
    static char ret[256];
    struct node_config *c = parse(text, NULL);
    struct config_offer offer;

    ret[0] = 0;
    for (uint32_t i = 0; i < node.ndevices; i++) {
        size_t len = strlen(ret);

        if (config_card_offer(c, &node, &node.devices[i], &offer))
            (void) snprintf(ret + len, sizeof(ret) - len, "%u:%s*%u%s ", i,
                            offer.resource + strlen("nvidia.com/"), offer.replicas,
                            offer.one_at_most ? "!" : "");
    }
    (void) node_config_free(c);
    return ret;
}

static void resources(void **state) {
    static const struct {
        const char *text, *offers;
    } cases[] = {
        {V1, ""},
        {CARDS "  - {devices: all, mode: whole}\n", "0:gpu*1 1:gpu*1 "},
        {CARDS "  - {devices: all, mode: mps}\n", ""},
        {SLICED("{name: gpu, replicas: 4}"), "0:gpu.shared*4 1:gpu.shared*4 "},
        {SLICED("{name: gpu, replicas: 4, devices: 1}"), "0:gpu.shared*4 "},
        {SLICED("{name: gpu, replicas: 4, rename: slice}"), "0:slice*4 1:slice*4 "},
        {UNDER_MPS("{name: gpu, replicas: 2}"), "0:gpu*2! 1:gpu*2! "},
        /* Whole and replicated cards on one node. */
        {SLICED("{name: gpu, replicas: 4}") "aliquot: {cards: [{devices: [0], mode: whole}]}\n",
         "0:gpu*1 1:gpu.shared*4 "},
        /* The replicas are of the resource that the pattern names. */
        {SLICED("{name: t4, replicas: 8}") "resources: {gpus: [{pattern: T4, name: t4},"
                                           " {pattern: A100, name: a100}]}\n",
         "0:a100*1 1:t4.shared*8 "},
        {UNDER_MPS("{name: gpu, replicas: 2}") "aliquot: {cards: [{devices: [1], mode: mps}]}\n",
         "0:gpu*2! 1:gpu*2! "},
    };

    (void) state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        if (strcmp(offers(cases[i].text), cases[i].offers) != 0)
            fail_msg("%s: %s", cases[i].text, offers(cases[i].text));
}

static void replicas_of_instances(void **state) {
    struct node_config *c =
        parse(SLICED("{name: mig-1g.10gb, replicas: 3, devices: [\"2:1\"]}"), NULL);
    struct config_offer offer;

    (void) state;
    config_replicas_of(c, &node, &node.devices[3], "nvidia.com/mig-1g.10gb", &offer);
    assert_string_equal(offer.resource, "nvidia.com/mig-1g.10gb");
    assert_int_equal(offer.replicas, 1);
    config_replicas_of(c, &node, &node.devices[4], "nvidia.com/mig-1g.10gb", &offer);
    assert_string_equal(offer.resource, "nvidia.com/mig-1g.10gb.shared");
    assert_int_equal(offer.replicas, 3);
    (void) node_config_free(c);
}

static void scaling_of_single_cards(void **state) {
    struct node_config *c = parse(CARDS "  - {devices: all, memoryScaling: 3}\n"
                                        "  - {devices: [1], memoryScaling: 1.5}\n",
                                  NULL);

    (void) state;
    assert_int_equal(config_card_scaling(c, &node, &node.devices[0]), 0);
    assert_int_equal(config_card_scaling(c, &node, &node.devices[1]), 1500);
    (void) node_config_free(c);
}

/* A letter for each device that is put under MPS for claims. */
static void dynamic_cards(void **state) {
    static const struct {
        const char *text, *dynamic;
    } cases[] = {
        {V1, "....."},
        {CARDS "  - {devices: all, dynamic: true}\n", "dd..."},
        {CARDS "  - {devices: [1], dynamic: true}\n", ".d..."},
        {CARDS "  - {devices: [0], mode: share}\n  - {devices: all, dynamic: true}\n", "dd..."},
        {CARDS "  - {devices: all, dynamic: false}\n", "....."},
        /* Only those in shares. */
        {CARDS "  - {devices: [0], mode: mps}\n  - {devices: all, dynamic: true}\n", ".d..."},
        {CARDS "  - {devices: [0], mode: whole, dynamic: true}\n", "....."},
        {V1
         "sharing:\n  timeSlicing:\n    resources: [{name: nvidia.com/gpu, replicas: 4, devices: "
         "[0]}]\naliquot:\n  cards:\n  - {devices: all, dynamic: true}\n",
         ".d..."},
    };

    (void) state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct node_config *c = parse(cases[i].text, NULL);
        char got[8] = "";

        for (uint32_t k = 0; k < node.ndevices; k++)
            got[k] = config_card_dynamic(c, &node, &node.devices[k]) ? 'd' : '.';
        if (strcmp(got, cases[i].dynamic) != 0)
            fail_msg("%s: %s", cases[i].text, got);
        (void) node_config_free(c);
    }
}

/* A letter for each device: in no claims, or who allocates it. */
static void allocators(void **state) {
    static const struct {
        const char *text;
        enum dra_allocator otherwise;
        const char *allocators;
    } cases[] = {
        {V1, DRA_ALIQUOT, "aaaaa"},
        {V1, DRA_KUBE_SCHEDULER, "kkkkk"},
        {CARDS "  - {devices: [1], allocator: kube-scheduler}\n", DRA_ALIQUOT, "akaaa"},
        {CARDS "  - {devices: [1], allocator: none}\n", DRA_KUBE_SCHEDULER, "knkkk"},
        /* The first one with an allocator decides. */
        {CARDS "  - {devices: [0], mode: share}\n  - {devices: [0], allocator: aliquot}\n"
               "  - {devices: all, allocator: none}\n",
         DRA_KUBE_SCHEDULER, "annnn"},
        /* An instance that is not named is as its card. */
        {CARDS "  - {devices: [MIG-0], allocator: none}\n  - {devices: [2], allocator: aliquot}\n",
         DRA_KUBE_SCHEDULER, "kkana"},
    };

    (void) state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct node_config *c = parse(cases[i].text, NULL);
        char got[8] = "";

        for (uint32_t k = 0; k < node.ndevices; k++)
            got[k] = "nak"[config_card_allocator(c, &node, &node.devices[k], cases[i].otherwise)];
        if (strcmp(got, cases[i].allocators) != 0)
            fail_msg("%s: %s", cases[i].text, got);
        (void) node_config_free(c);
    }
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocators),
        cmocka_unit_test(dynamic_cards),
        cmocka_unit_test(by_option),
        cmocka_unit_test(by_entries),
        cmocka_unit_test(by_sharing_and_patterns),
        cmocka_unit_test(replicas_of_the_scheduler),
        cmocka_unit_test(whole_cards_of_the_scheduler),
        cmocka_unit_test(resources),
        cmocka_unit_test(replicas_of_instances),
        cmocka_unit_test(scaling_of_single_cards),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
