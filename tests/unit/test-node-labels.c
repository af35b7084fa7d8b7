/* SPDX-License-Identifier: Apache-2.0 */

/* The labels of a node: those of GPU feature discovery, and what a Node is patched with. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/config/node_config.h"
#include "agent/labels/labels.h"
#include "agent/labels/node_labels.h"
#include "agent/os/pci.h"
#include "agent/report/labeler.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/units.h"
#include "gpu/device.h"

#define A100 "NVIDIA A100-SXM4-40GB"

/* ---- nodes ---- */

static struct gpu_snapshot snapshot;
static struct pci_facts pci;
static struct label_facts facts;

static struct gpu_device *add(struct gpu_device d) {
    snapshot.devices[snapshot.ndevices] = d;
    return &snapshot.devices[snapshot.ndevices++];
}

static struct gpu_device *add_card(const char *uuid, const char *model, uint64_t memory,
                                   uint32_t major, uint32_t minor) {
    struct gpu_device *d = add((struct gpu_device){
        .memory = memory,
        .traits = {.cuda_version = 12020, .compute_major = major, .compute_minor = minor}});

    (void) snprintf(d->uuid, sizeof(d->uuid), "%s", uuid);
    (void) snprintf(d->model, sizeof(d->model), "%s", model);
    return d;
}

static struct gpu_device *add_divided(const char *uuid) {
    struct gpu_device *d = add_card(uuid, A100, 40 * GIB, 8, 0);

    d->divided = true;
    d->traits.mig_capable = 1;
    return d;
}

static void add_instance(const char *uuid, const char *parent, const char *profile) {
    struct gpu_device *d = add((struct gpu_device){
        .kind = GPU_MIG_INSTANCE,
        .memory = 4864 * MIB,
        .mig = {.gi_slices = 1, .ci_slices = 1, .multiprocessors = 14, .copy_engines = 1}});

    (void) snprintf(d->uuid, sizeof(d->uuid), "%s", uuid);
    (void) snprintf(d->parent, sizeof(d->parent), "%s", parent);
    (void) snprintf(d->mig.profile, sizeof(d->mig.profile), "%s", profile);
}

static int set_up(void **unused) {
    (void) unused;
    memset(&snapshot, 0, sizeof(snapshot));
    (void) snprintf(snapshot.driver_version, sizeof(snapshot.driver_version), "535.261.03");
    pci = (struct pci_facts){.mode = "compute"};
    facts = (struct label_facts){
        .devices = &snapshot, .machine = "  HPE ProLiant XL675d (Gen10) Plus ", .pci = &pci};
    return 0;
}

/* ---- what they get ---- */

/* All labels as a text, one a line. */
static char *labels_text(void) {
    struct label_set set;
    struct buf text = BUF_INIT(64 << 10);

    assert_int_equal(labels_of_node(&facts, &set), 0);
    node_labels_file(&set, &text);
    label_set_done(&set);
    assert_int_equal(buf_error(&text), 0);
    return text.data;
}

static void assert_labels(const char *expected) {
    char *text = labels_text();

    assert_string_equal(text, expected);
    free(text);
}

static void assert_label(const char *key, const char *value) {
    struct label_set set;
    const char *have;

    assert_int_equal(labels_of_node(&facts, &set), 0);
    have = label_find(&set, key);
    if (!have != !value || (value && strcmp(have, value) != 0))
        fail_msg("%s is %s, not %s", key, have ? have : "not there", value ? value : "missing");
    label_set_done(&set);
}

static void test_whole_cards(void **unused) {
    (void) unused;
    add_card("GPU-0", A100, 40 * GIB, 8, 0)->traits.mig_capable = 1;
    add_card("GPU-1", A100, 40 * GIB, 8, 0)->traits.mig_capable = 1;
    assert_labels("nvidia.com/cuda.driver-version.full=535.261.03\n"
                  "nvidia.com/cuda.driver-version.major=535\n"
                  "nvidia.com/cuda.driver-version.minor=261\n"
                  "nvidia.com/cuda.driver-version.revision=03\n"
                  "nvidia.com/cuda.driver.major=535\n"
                  "nvidia.com/cuda.driver.minor=261\n"
                  "nvidia.com/cuda.driver.rev=03\n"
                  "nvidia.com/cuda.runtime-version.full=12.2\n"
                  "nvidia.com/cuda.runtime-version.major=12\n"
                  "nvidia.com/cuda.runtime-version.minor=2\n"
                  "nvidia.com/cuda.runtime.major=12\n"
                  "nvidia.com/cuda.runtime.minor=2\n"
                  "nvidia.com/gpu.compute.major=8\n"
                  "nvidia.com/gpu.compute.minor=0\n"
                  "nvidia.com/gpu.count=2\n"
                  "nvidia.com/gpu.family=ampere\n"
                  "nvidia.com/gpu.machine=HPE-ProLiant-XL675d-Gen10-Plus\n"
                  "nvidia.com/gpu.memory=40960\n"
                  "nvidia.com/gpu.mode=compute\n"
                  "nvidia.com/gpu.product=NVIDIA-A100-SXM4-40GB\n"
                  "nvidia.com/gpu.replicas=1\n"
                  "nvidia.com/gpu.sharing-strategy=none\n"
                  "nvidia.com/mig.capable=true\n"
                  "nvidia.com/mps.capable=false\n"
                  "nvidia.com/vgpu.present=false\n");
}

static void test_without_a_card_vgpu_alone(void **unused) {
    (void) unused;
    assert_labels("nvidia.com/vgpu.present=false\n");
}

static void test_a_driver_with_two_numbers_has_an_empty_revision(void **unused) {
    (void) unused;
    add_card("GPU-0", A100, 40 * GIB, 8, 0);
    (void) snprintf(snapshot.driver_version, sizeof(snapshot.driver_version), "470.57");
    assert_label("nvidia.com/cuda.driver.rev", "");
    assert_label("nvidia.com/cuda.driver-version.full", "470.57");
    (void) snprintf(snapshot.driver_version, sizeof(snapshot.driver_version), "unknown");
    assert_label("nvidia.com/cuda.driver.major", NULL);
    assert_label("nvidia.com/gpu.count", "1");
}

static void test_families(void **unused) {
    static const struct {
        uint32_t major, minor;
        const char *family;
    } cases[] = {
        {3, 5, "kepler"},     {4, 0, "undefined"},    {6, 1, "pascal"}, {7, 0, "volta"},
        {7, 4, "volta"},      {7, 5, "turing"},       {8, 0, "ampere"}, {8, 6, "ampere"},
        {8, 8, "ampere"},     {8, 9, "ada-lovelace"}, {9, 0, "hopper"}, {10, 3, "blackwell"},
        {11, 0, "undefined"}, {12, 0, "blackwell"},   {13, 0, "rubin"}, {14, 0, "undefined"}};

    (void) unused;
    add_card("GPU-0", A100, 40 * GIB, 0, 0);
    assert_label("nvidia.com/gpu.family", NULL);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        snapshot.devices[0].traits.compute_major = cases[i].major;
        snapshot.devices[0].traits.compute_minor = cases[i].minor;
        assert_label("nvidia.com/gpu.family", cases[i].family);
    }
}

static void test_replicas_are_told(void **unused) {
    const struct label_sharing sharing[] = {{"nvidia.com/gpu", 4, false, "time-slicing"}};
    const struct label_sharing renamed[] = {{"nvidia.com/gpu", 4, true, "mps"}};

    (void) unused;
    add_card("GPU-0", "Tesla T4", 15 * GIB, 7, 5);
    facts.sharing = sharing;
    facts.nsharing = 1;
    assert_label("nvidia.com/gpu.product", "Tesla-T4-SHARED");
    assert_label("nvidia.com/gpu.replicas", "4");
    assert_label("nvidia.com/gpu.sharing-strategy", "time-slicing");
    assert_label("nvidia.com/mps.capable", "false");
    facts.sharing = renamed;
    assert_label("nvidia.com/gpu.product", "Tesla-T4");
    assert_label("nvidia.com/gpu.sharing-strategy", "mps");
    assert_label("nvidia.com/mps.capable", "true");
    add_divided("GPU-1");
    assert_label("nvidia.com/mps.capable", "false");
}

/* The card of the lowest index, whatever the order of anything else, and each model beside it. */
static void test_several_models(void **unused) {
    (void) unused;
    add_card("GPU-0", "Tesla T4", 15 * GIB, 7, 5);
    add_card("GPU-1", A100, 40 * GIB, 8, 0);
    add_card("GPU-2", A100, 40 * GIB, 8, 0);
    assert_label("nvidia.com/gpu.product", "Tesla-T4");
    assert_label("nvidia.com/gpu.count", "1");
    assert_label("nvidia.com/gpu.memory", "15360");
    assert_label("elasticgpu.io/Tesla-T4.count", "1");
    assert_label("elasticgpu.io/NVIDIA-A100-SXM4-40GB.count", "2");
    assert_label("elasticgpu.io/NVIDIA-A100-SXM4-40GB.memory", "40960");
    assert_label("elasticgpu.io/NVIDIA-A100-SXM4-40GB.family", "ampere");
    /* The first that is offered as a whole. */
    snapshot.devices[0].divided = true;
    assert_label("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-40GB");
    assert_label("nvidia.com/gpu.count", "2");
}

static void test_one_model_has_no_labels_of_its_own(void **unused) {
    (void) unused;
    add_card("GPU-0", A100, 40 * GIB, 8, 0);
    add_card("GPU-1", A100, 40 * GIB, 8, 0);
    assert_label("elasticgpu.io/NVIDIA-A100-SXM4-40GB.count", NULL);
}

static void test_texts_that_the_api_server_would_refuse(void **unused) {
    char model[96];

    (void) unused;
    add_card("GPU-0", "_Odd/ GPU\t(TM) -", 40 * GIB, 8, 0);
    facts.machine = "...";
    assert_label("nvidia.com/gpu.product", "Odd-GPUTM");
    assert_label("nvidia.com/gpu.machine", "");
    memset(model, 'x', sizeof(model) - 1);
    model[sizeof(model) - 1] = 0;
    model[61] = model[62] = '.';
    memcpy(snapshot.devices[0].model, model, sizeof(model));
    add_card("GPU-1", A100, 40 * GIB, 8, 0);
    model[61] = 0;
    assert_label("nvidia.com/gpu.product", model);
    (void) snprintf(model, sizeof(model), "elasticgpu.io/%.49s.compute.major",
                    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
    assert_int_equal(strlen(model), strlen("elasticgpu.io/") + 63);
    assert_label(model, "8");
}

/* ---- MIG ---- */

static void test_strategy_none_tells_of_cards_alone(void **unused) {
    (void) unused;
    add_divided("GPU-0");
    add_instance("MIG-0", "GPU-0", "1g.5gb");
    assert_label("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-40GB");
    assert_label("nvidia.com/gpu.count", "1");
    assert_label("nvidia.com/gpu.replicas", "0");
    assert_label("nvidia.com/mig.strategy", NULL);
    assert_label("nvidia.com/mig-1g.5gb.count", NULL);
}

static void test_strategy_mixed(void **unused) {
    (void) unused;
    facts.strategy = MIG_STRATEGY_MIXED;
    add_divided("GPU-0");
    add_instance("MIG-0", "GPU-0", "1g.5gb");
    add_instance("MIG-1", "GPU-0", "1g.5gb");
    add_instance("MIG-2", "GPU-0", "1g.5gb+me");
    add_card("GPU-1", A100, 40 * GIB, 8, 0);
    assert_label("nvidia.com/mig.strategy", "mixed");
    assert_label("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-40GB");
    assert_label("nvidia.com/gpu.count", "2");
    assert_label("nvidia.com/gpu.replicas", "1");
    assert_label("nvidia.com/mig-1g.5gb.product", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb");
    assert_label("nvidia.com/mig-1g.5gb.count", "2");
    assert_label("nvidia.com/mig-1g.5gb.replicas", "1");
    assert_label("nvidia.com/mig-1g.5gb.sharing-strategy", "none");
    assert_label("nvidia.com/mig-1g.5gb.memory", "4864");
    assert_label("nvidia.com/mig-1g.5gb.multiprocessors", "14");
    assert_label("nvidia.com/mig-1g.5gb.slices.gi", "1");
    assert_label("nvidia.com/mig-1g.5gb.slices.ci", "1");
    assert_label("nvidia.com/mig-1g.5gb.engines.copy", "1");
    assert_label("nvidia.com/mig-1g.5gb.engines.decoder", "0");
    assert_label("nvidia.com/mig-1g.5gb.engines.ofa", "0");
    assert_label("nvidia.com/mig-1g.5gb.me.count", "1");
    assert_label("nvidia.com/mig-1g.5gb.me.product", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb.me");
}

static void assert_invalid(void) {
    assert_label("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-40GB-MIG-INVALID");
    assert_label("nvidia.com/gpu.count", "0");
    assert_label("nvidia.com/gpu.replicas", "0");
    assert_label("nvidia.com/gpu.sharing-strategy", "");
    assert_label("nvidia.com/gpu.memory", "0");
}

static void test_strategy_single(void **unused) {
    (void) unused;
    facts.strategy = MIG_STRATEGY_SINGLE;
    add_divided("GPU-0");
    assert_invalid(); /* it is empty */
    add_instance("MIG-0", "GPU-0", "1g.5gb");
    add_instance("MIG-1", "GPU-0", "1g.5gb");
    assert_label("nvidia.com/mig.strategy", "single");
    assert_label("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb");
    assert_label("nvidia.com/gpu.count", "2");
    assert_label("nvidia.com/gpu.replicas", "1");
    assert_label("nvidia.com/gpu.memory", "4864");
    assert_label("nvidia.com/gpu.slices.gi", "1");
    assert_label("nvidia.com/gpu.family", "ampere");
    add_instance("MIG-2", "GPU-0", "2g.10gb");
    assert_invalid();
    snapshot.ndevices--;
    add_card("GPU-1", A100, 40 * GIB, 8, 0);
    assert_invalid();
}

static void test_strategy_single_without_mig(void **unused) {
    (void) unused;
    facts.strategy = MIG_STRATEGY_SINGLE;
    add_card("GPU-0", A100, 40 * GIB, 8, 0);
    assert_label("nvidia.com/mig.strategy", "single");
    assert_label("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-40GB");
}

/* ---- the Node ---- */

static void read_node(const char *text, struct node_labels *ret) {
    struct json_parser *parser = NULL;
    struct json root;

    assert_int_equal(json_open(text, strlen(text), &parser, &root, NULL), 0);
    assert_int_equal(node_labels_read(root, ret), 0);
    (void) json_parser_free(parser);
}

static void assert_patch(const char *node, const char *expected) {
    _cleanup_buf_ struct buf patch = BUF_INIT(64 << 10);
    struct label_set want = {0};
    struct node_labels have;

    label_put(&want, "nvidia.com/gpu.count", "2");
    label_put(&want, "nvidia.com/gpu.family", "ampere");
    read_node(node, &have);
    assert_int_equal(node_labels_differ(&have, &want), expected != NULL);
    if (expected) {
        node_labels_patch(&have, &want, 1700000000, &patch);
        assert_int_equal(buf_error(&patch), 0);
        assert_string_equal(buf_str(&patch), expected);
    }
    node_labels_done(&have);
    label_set_done(&want);
}

#define OWNED "nvidia.com/gpu.count,nvidia.com/gpu.family,"
#define ANNOTATED "\"annotations\":{\"elasticgpu.io/feature-labels\":\"" OWNED "\"}"

static void test_what_changes_is_written(void **unused) {
    (void) unused;
    assert_patch("{}", "{\"metadata\":{\"labels\":{\"nvidia.com/gpu.count\":\"2\","
                       "\"nvidia.com/gpu.family\":\"ampere\","
                       "\"nvidia.com/gfd.timestamp\":\"1700000000\"}," ANNOTATED "}}");
    assert_patch("{\"metadata\":{\"labels\":{\"nvidia.com/gpu.count\":\"1\","
                 "\"nvidia.com/gpu.family\":\"ampere\"}," ANNOTATED "}}",
                 "{\"metadata\":{\"labels\":{\"nvidia.com/gpu.count\":\"2\","
                 "\"nvidia.com/gfd.timestamp\":\"1700000000\"}," ANNOTATED "}}");
    assert_patch("{\"metadata\":{\"labels\":{\"nvidia.com/gpu.count\":\"2\","
                 "\"nvidia.com/gpu.family\":\"ampere\",\"nvidia.com/gfd.timestamp\":\"5\","
                 "\"a\":\"b\"}," ANNOTATED "}}",
                 NULL);
}

/* Labels of the operator and of other programs stay, also those of NVIDIA's names. */
static void test_only_own_labels_are_removed(void **unused) {
    (void) unused;
    assert_patch(
        "{\"metadata\":{\"labels\":{\"nvidia.com/gpu.count\":\"2\",\"nvidia.com/old\":\"x\","
        "\"nvidia.com/gpu.family\":\"ampere\",\"nvidia.com/gpu.present\":\"true\","
        "\"kubernetes.io/hostname\":\"n\"},\"annotations\":{\"elasticgpu.io/feature-labels\":"
        "\"kubernetes.io/hostname,nvidia.com/old,nvidia.com/gone,\"}}}",
        "{\"metadata\":{\"labels\":{\"nvidia.com/old\":null,"
        "\"nvidia.com/gfd.timestamp\":\"1700000000\"}," ANNOTATED "}}");
}

static void test_nothing_is_left(void **unused) {
    _cleanup_buf_ struct buf patch = BUF_INIT(64 << 10);
    struct label_set none = {0};
    struct node_labels have;

    (void) unused;
    read_node("{\"metadata\":{\"labels\":{\"nvidia.com/gpu.count\":\"2\"}," ANNOTATED "}}", &have);
    assert_true(node_labels_differ(&have, &none));
    node_labels_patch(&have, &none, 1700000000, &patch);
    assert_string_equal(buf_str(&patch),
                        "{\"metadata\":{\"labels\":{\"nvidia.com/gpu.count\":null,"
                        "\"nvidia.com/gfd.timestamp\":null},"
                        "\"annotations\":{\"elasticgpu.io/feature-labels\":null}}}");
    node_labels_done(&have);
    read_node("{\"metadata\":{}}", &have);
    assert_false(node_labels_differ(&have, &none));
    node_labels_done(&have);
}

/* ---- the kernel's list of PCI devices ---- */

static char pci_dir[64];

static void write_entry(const char *device, const char *name, const void *data, size_t len) {
    char path[512];

    (void) snprintf(path, sizeof(path), "%s/%s", pci_dir, device);
    assert_int_equal(dir_make(path, 0755, NULL), 0);
    (void) snprintf(path, sizeof(path), "%s/%s/%s", pci_dir, device, name);
    assert_int_equal(file_replace(path, data, len, 0644, NULL), 0);
}

static void add_pci(const char *device, const char *vendor, const char *class,
                    const uint8_t *config, size_t len) {
    write_entry(device, "vendor", vendor, strlen(vendor));
    write_entry(device, "class", class, strlen(class));
    write_entry(device, "config", config, len);
}

/* A chain of two capabilities, the second of which is the hypervisor's. */
static void make_vgpu(uint8_t config[static 256]) {
    static const uint8_t capability[] = {9,   0,   34,  'V', 'F',         /* id, next, length */
                                         3,   7,   1,   2,   3,   4,   5, /* another record */
                                         0,   22,  '5', '3', '5', '.', '1', '2', '9', '.', '0',
                                         '3', 'r', '5', '3', '5', '_', '0', '0', 0,   0,   0};

    memset(config, 0, 256);
    config[0x06] = 0x10;
    config[0x34] = 0x60;
    config[0x60] = 1;
    config[0x61] = 0xd0;
    memcpy(config + 0xd0, capability, sizeof(capability));
}

static int make_pci_dir(void **unused) {
    (void) unused;
    (void) snprintf(pci_dir, sizeof(pci_dir), "/tmp/aliquot-pci-XXXXXX");
    return mkdtemp(pci_dir) ? 0 : -1;
}

static int remove_pci_dir(void **unused) {
    (void) unused;
    return dir_remove(pci_dir, NULL);
}

static void test_mode_of_the_cards(void **unused) {
    static const uint8_t config[256];

    (void) unused;
    pci_read("/nonexistent", &pci);
    assert_string_equal(pci.mode, "unknown");
    pci_read(pci_dir, &pci);
    assert_string_equal(pci.mode, "unknown");
    add_pci("0000:00:02.0", "0x8086\n", "0x030000\n", config, 256);
    add_pci("0000:3b:00.0", "0x10de\n", "0x030200\n", config, 256);
    add_pci("0000:3b:00.1", "0x10de\n", "0x040300\n", config, 256); /* its audio */
    pci_read(pci_dir, &pci);
    assert_string_equal(pci.mode, "compute");
    assert_false(pci.vgpu);
    add_pci("0000:af:00.0", "0x10de\n", "0x030000\n", config, 256);
    add_pci("0000:b0:00.0", "0x10de\n", "0x030200\n", config, 256);
    pci_read(pci_dir, &pci);
    assert_string_equal(pci.mode, "unknown");
}

static void test_graphics(void **unused) {
    (void) unused;
    add_pci("0000:01:00.0", "0x10de\n", "0x030000\n", NULL, 0);
    pci_read(pci_dir, &pci);
    assert_string_equal(pci.mode, "graphics");
}

#define CLUSTER                                                                                    \
    { 0x03020100, 0x07060504, 0x0b0a0908, 0x0f0e0d0c }
#define CLIQUE "nvidia.com/gpu.clique"

static void join_fabric(struct gpu_device *d, uint32_t clique) {
    d->traits.fabric_attached = 1;
    d->traits.fabric_clique = clique;
    memcpy(d->traits.fabric_cluster, (uint32_t[]) CLUSTER, sizeof(d->traits.fabric_cluster));
}

/* GPU feature discovery leaves out cards that are in no domain, and the label where there are
 * several. */
static void test_clique(void **unused) {
    struct gpu_device *other;

    (void) unused;
    add_card("GPU-0", A100, 40 * GIB, 8, 0);
    assert_label(CLIQUE, NULL);
    join_fabric(add_card("GPU-1", A100, 40 * GIB, 8, 0), 7);
    assert_label(CLIQUE, "00010203-0405-0607-0809-0a0b0c0d0e0f.7");
    other = add_card("GPU-2", A100, 40 * GIB, 8, 0);
    join_fabric(other, 7);
    assert_label(CLIQUE, "00010203-0405-0607-0809-0a0b0c0d0e0f.7");
    other->traits.fabric_clique = 8;
    assert_label(CLIQUE, NULL);
    other->traits.fabric_clique = 7;
    other->traits.fabric_cluster[3]++;
    assert_label(CLIQUE, NULL);
}

static void test_licence(void **unused) {
    struct gpu_device *other;

    (void) unused;
    add_card("GPU-0", A100, 40 * GIB, 8, 0);
    assert_label("elasticgpu.io/vgpu.licensed", NULL);
    snapshot.devices[0].traits.vgpu = 1;
    assert_label("elasticgpu.io/vgpu.licensed", "true");
    other = add_card("GPU-1", A100, 40 * GIB, 8, 0);
    other->traits.vgpu = other->traits.unlicensed = 1;
    assert_label("elasticgpu.io/vgpu.licensed", "false");
}

static void test_vgpu(void **unused) {
    uint8_t config[256];

    (void) unused;
    make_vgpu(config);
    add_pci("0000:01:00.0", "0x10de\n", "0x030200\n", config, 256);
    pci_read(pci_dir, &pci);
    assert_true(pci.vgpu);
    assert_string_equal(pci.vgpu_version, "535.129.03");
    assert_string_equal(pci.vgpu_branch, "r535_00");
    add_card("GPU-0", "GRID T4-8Q", 8 * GIB, 7, 5);
    assert_label("nvidia.com/vgpu.present", "true");
    assert_label("nvidia.com/vgpu.host-driver-version", "535.129.03");
    assert_label("nvidia.com/vgpu.host-driver-branch", "r535_00");
}

/* What a hypervisor writes there is not trusted. */
static void test_malformed_capabilities(void **unused) {
    static const struct {
        unsigned at;
        uint8_t value;
        bool vgpu;
    } cases[] = {
        {0x06, 0, false},    /* no list */
        {0x61, 0x60, false}, /* a loop */
        {0x61, 0xff, false}, /* beyond the end */
        {0xd2, 255, false},  /* longer than the space */
        {0xd2, 2, false},    /* shorter than its head */
        {0xd4, 'G', false},  /* of another maker */
        {0xd6, 0, true},     /* a record of no length */
        {0xd6, 200, true},   /* a record beyond the end */
        {0xd2, 33, true},    /* cuts the host's record */
    };
    uint8_t config[256];

    (void) unused;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        make_vgpu(config);
        config[cases[i].at] = cases[i].value;
        add_pci("0000:01:00.0", "0x10de\n", "0x030200\n", config, 256);
        pci_read(pci_dir, &pci);
        assert_int_equal(pci.vgpu, cases[i].vgpu);
        assert_string_equal(pci.vgpu_version, "");
    }
    make_vgpu(config);
    add_pci("0000:01:00.0", "0x10de\n", "0x030200\n", config, 64); /* without CAP_SYS_ADMIN */
    pci_read(pci_dir, &pci);
    assert_false(pci.vgpu);
}

/* The line of a key in the file that the labeler writes for this configuration. */
static const char *written(const struct gpu_snapshot *s, const char *config, const char *key) {
    static char line[256];
    _cleanup_buf_ struct buf text = BUF_INIT(1 << 20), patch = BUF_INIT(1 << 20);
    char path[] = "/tmp/aliquot-labels-XXXXXX";
    struct labeler_options options = {.place = path, .sys_dir = "/nonexistent"};
    struct labeler l = {.options = &options};
    struct node_config *c = NULL;
    const char *at;
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    (void) close(fd);
    assert_int_equal(node_config_parse(config, strlen(config), "node", &c, NULL), 0);
    options.config = c;
    (void) labeler_update(&l, s, &patch);
    assert_int_equal(file_read(path, 1 << 20, &text, NULL), 0);
    (void) unlink(path);
    at = strstr(buf_str(&text), key);
    (void) snprintf(line, sizeof(line), "%.*s", at ? (int) strcspn(at, "\n") : 0, at ? at : "");
    labeler_done(&l);
    (void) node_config_free(c);
    return line;
}

#define SLICED(more)                                                                               \
    "version: v1\nsharing: {timeSlicing: {" more "resources: [{name: gpu, replicas: 4}]}}\n"

static void test_replicas_of_the_configuration(void **state) {
    static struct gpu_snapshot s;
    struct gpu_device *d = &s.devices[0];

    (void) state;
    s = (struct gpu_snapshot){.ndevices = 1};
    (void) snprintf(d->uuid, sizeof(d->uuid), "GPU-a");
    (void) snprintf(d->model, sizeof(d->model), "Tesla T4");
    assert_string_equal(written(&s, "version: v1\n", "nvidia.com/gpu.replicas"),
                        "nvidia.com/gpu.replicas=1");
    assert_string_equal(written(&s, SLICED(""), "nvidia.com/gpu.replicas"),
                        "nvidia.com/gpu.replicas=4");
    assert_string_equal(written(&s, SLICED(""), "nvidia.com/gpu.product"),
                        "nvidia.com/gpu.product=Tesla-T4-SHARED");
    assert_string_equal(written(&s, SLICED("renameByDefault: true, "), "nvidia.com/gpu.product"),
                        "nvidia.com/gpu.product=Tesla-T4");
    assert_string_equal(written(&s, SLICED(""), "nvidia.com/gpu.sharing-strategy"),
                        "nvidia.com/gpu.sharing-strategy=time-slicing");
    assert_string_equal(
        written(&s, "version: v1\nsharing: {mps: {resources: [{name: gpu, replicas: 2}]}}\n",
                "nvidia.com/mps.capable"),
        "nvidia.com/mps.capable=true");
    /* The card is in no replicas. */
    assert_string_equal(written(&s, SLICED("") "aliquot: {cards: [{devices: [0], mode: whole}]}\n",
                                "nvidia.com/gpu.replicas"),
                        "nvidia.com/gpu.replicas=1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_whole_cards, set_up),
        cmocka_unit_test_setup(test_clique, set_up),
        cmocka_unit_test_setup(test_licence, set_up),
        cmocka_unit_test_setup(test_without_a_card_vgpu_alone, set_up),
        cmocka_unit_test_setup(test_a_driver_with_two_numbers_has_an_empty_revision, set_up),
        cmocka_unit_test_setup(test_families, set_up),
        cmocka_unit_test_setup(test_replicas_are_told, set_up),
        cmocka_unit_test(test_replicas_of_the_configuration),
        cmocka_unit_test_setup(test_several_models, set_up),
        cmocka_unit_test_setup(test_one_model_has_no_labels_of_its_own, set_up),
        cmocka_unit_test_setup(test_texts_that_the_api_server_would_refuse, set_up),
        cmocka_unit_test_setup(test_strategy_none_tells_of_cards_alone, set_up),
        cmocka_unit_test_setup(test_strategy_mixed, set_up),
        cmocka_unit_test_setup(test_strategy_single, set_up),
        cmocka_unit_test_setup(test_strategy_single_without_mig, set_up),
        cmocka_unit_test(test_what_changes_is_written),
        cmocka_unit_test(test_only_own_labels_are_removed),
        cmocka_unit_test(test_nothing_is_left),
        cmocka_unit_test_setup_teardown(test_mode_of_the_cards, make_pci_dir, remove_pci_dir),
        cmocka_unit_test_setup_teardown(test_graphics, make_pci_dir, remove_pci_dir),
        cmocka_unit_test_setup_teardown(test_vgpu, make_pci_dir, remove_pci_dir),
        cmocka_unit_test_setup_teardown(test_malformed_capabilities, make_pci_dir, remove_pci_dir),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
