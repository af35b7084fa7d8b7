/* SPDX-License-Identifier: Apache-2.0 */

/* What the NVML child and the monitor say to each other, the list of devices that is kept over a
 * restart, and the links of cards. */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "gpu/device.h"
#include "gpu/nvml/collect.h"
#include "gpu/nvml/links.h"
#include "gpu/nvml/nvml.h"
#include "gpu/nvml/worker_protocol.h"

/* As drivers before R470 name an instance. */
#define LONGEST_UUID "MIG-GPU-01234567-89ab-cdef-0123-456789abcdef/13/6"

static void bad_messages(void **state) {
    union gpu_message m = {
        .device = {.header = {GPU_MESSAGE_MAGIC, GPU_MESSAGE_DEVICE, 1, 0}, .uuid = "x"}};

    (void) state;
    assert_int_equal(gpu_message_check(&m, sizeof(m.device)), GPU_MESSAGE_DEVICE);
    assert_int_equal(gpu_message_check(&m, sizeof(m.device) - 1), -EBADMSG);
    assert_int_equal(gpu_message_check(&m, 3), -EBADMSG);
    m.device.header.index = GPU_CARDS_MAX;
    assert_int_equal(gpu_message_check(&m, sizeof(m.device)), -EBADMSG);
    m.device.header.index = 0;
    memset(m.device.model, 'x', sizeof(m.device.model));
    assert_int_equal(gpu_message_check(&m, sizeof(m.device)), -EBADMSG);
    m.device.model[0] = m.device.model[sizeof(m.device.model) - 1] = 0;
    assert_int_equal(gpu_message_check(&m, sizeof(m.device)), GPU_MESSAGE_DEVICE);
    m.device.kind = GPU_MIG_INSTANCE; /* of no card */
    assert_int_equal(gpu_message_check(&m, sizeof(m.device)), -EBADMSG);
    m.device.parent[0] = 'x';
    assert_int_equal(gpu_message_check(&m, sizeof(m.device)), GPU_MESSAGE_DEVICE);
    m.device.divided = 1;
    assert_int_equal(gpu_message_check(&m, sizeof(m.device)), -EBADMSG);
    m.device.divided = 0;
    m.device.mig.gi = GPU_MIG_IDS;
    assert_int_equal(gpu_message_check(&m, sizeof(m.device)), -EBADMSG);
    m.device.mig = (struct gpu_mig){.ci = GPU_MIG_IDS};
    assert_int_equal(gpu_message_check(&m, sizeof(m.device)), -EBADMSG);
    m.device.mig.ci = 0;
    memset(m.device.mig.profile, 'x', sizeof(m.device.mig.profile));
    assert_int_equal(gpu_message_check(&m, sizeof(m.device)), -EBADMSG);
    m.device.mig.profile[0] = m.device.mig.profile[sizeof(m.device.mig.profile) - 1] = 0;
    assert_int_equal(gpu_message_check(&m, sizeof(m.device)), GPU_MESSAGE_DEVICE);
    m.device.kind = GPU_KINDS;
    assert_int_equal(gpu_message_check(&m, sizeof(m.device)), -EBADMSG);
    m.device.kind = GPU_MIG_INSTANCE;
    memset(m.device.parent, 'x', sizeof(m.device.parent));
    assert_int_equal(gpu_message_check(&m, sizeof(m.device)), -EBADMSG);
    m = (union gpu_message){
        .processes = {.header = {GPU_MESSAGE_MAGIC, GPU_MESSAGE_PROCESSES, 1, 0},
                      .count = GPU_PACKET_PROCESSES + 1}};
    assert_int_equal(gpu_message_check(&m, sizeof(m.processes)), -EBADMSG);
    m = (union gpu_message){.header = {GPU_MESSAGE_MAGIC, GPU_MESSAGE_READING, 1, GPU_CARDS_MAX}};
    assert_int_equal(gpu_message_check(&m, sizeof(m.header)), -EBADMSG);
    m.header.index--;
    assert_int_equal(gpu_message_check(&m, sizeof(m.header)), GPU_MESSAGE_READING);
    m.header.type = GPU_MESSAGE_POLL;
    assert_int_equal(gpu_message_check(&m, sizeof(m.header)), -EBADMSG);
    assert_int_equal(gpu_message_check(&m, sizeof(m.poll)), GPU_MESSAGE_POLL);
    m = (union gpu_message){.context = {.header = {GPU_MESSAGE_MAGIC, GPU_MESSAGE_CONTEXT, 0, 0},
                                        .uuid = "GPU-1",
                                        .bytes = 1}};
    assert_int_equal(gpu_message_check(&m, sizeof(m.context)), GPU_MESSAGE_CONTEXT);
    assert_int_equal(gpu_message_check(&m, sizeof(m.context) - 1), -EBADMSG);
    memset(m.context.uuid, 'x', sizeof(m.context.uuid));
    assert_int_equal(gpu_message_check(&m, sizeof(m.context)), -EBADMSG);
}

static void inventory_file(void **state) {
    static struct gpu_snapshot s, back;
    _cleanup_buf_ struct buf text = BUF_INIT(65536);

    (void) state;
    s.ndevices = 1;
    s.devices[0] = (struct gpu_device){
        .index = 3, .minor = 4, .memory = 5, .uuid = "GPU-1", .model = "M\"x", .context_bytes = 6};
    s.devices[0].traits = (struct gpu_traits){.cuda_version = 12040,
                                              .compute_major = 9,
                                              .compute_minor = 1,
                                              .mig_capable = 1,
                                              .vgpu = 1,
                                              .unlicensed = 1,
                                              .fabric_attached = 1,
                                              .fabric_clique = 2,
                                              .fabric_cluster = {3, 4, 5, 6}};
    gpu_snapshot_encode(&s, &text);
    assert_int_equal(gpu_snapshot_decode(text.data, text.len, &back, NULL), 0);
    assert_int_equal(back.ndevices, 1);
    assert_int_equal(back.devices[0].minor, 4);
    assert_int_equal(back.devices[0].context_bytes, 6);
    assert_string_equal(back.devices[0].model, "M\"x");
    assert_memory_equal(&back.devices[0].traits, &s.devices[0].traits, sizeof(struct gpu_traits));
    assert_false(back.devices[0].healthy);
    assert_true(back.devices[0].saved);
    assert_true(gpu_snapshot_decode("{\"devices\":[{}]}", 16, &back, NULL) < 0);
}

/* The kinds in a file that a former version has written. */
static void kinds_of_the_inventory(void **state) {
    static const char *const names[GPU_KINDS] = {"GPU", "MIG instance", "vGPU", "remote GPU"};
    static struct gpu_snapshot s;
    char text[256];

    (void) state;
    for (unsigned kind = 0; kind < GPU_KINDS; kind++) {
        (void) snprintf(text, sizeof(text),
                        "{\"devices\":[{\"index\":0,\"minor\":0,\"uuid\":\"X\",\"memory\":1,"
                        "\"kind\":\"%s\",\"parent\":\"%s\"}]}",
                        names[kind], kind == GPU_MIG_INSTANCE ? "GPU-1" : "");
        assert_int_equal(gpu_snapshot_decode(text, strlen(text), &s, NULL), 0);
        assert_int_equal(s.devices[0].kind, kind);
    }
}

static void inventory_of_parts(void **state) {
    static struct gpu_snapshot s, back;
    static const char former[] = "{\"devices\":[{\"index\":0,\"minor\":0,\"uuid\":\"GPU-1\","
                                 "\"memory\":1}]}";
    static const char orphan[] = "{\"devices\":[{\"index\":0,\"minor\":0,\"uuid\":\"MIG-1\","
                                 "\"memory\":1,\"kind\":\"MIG instance\"}]}";
    static const char unknown[] = "{\"devices\":[{\"index\":0,\"minor\":0,\"uuid\":\"X\","
                                  "\"memory\":1,\"kind\":\"abacus\"}]}";
    _cleanup_buf_ struct buf text = BUF_INIT(65536);

    (void) state;
    s.ndevices = GPU_KINDS + 1;
    s.devices[GPU_KINDS] = (struct gpu_device){.divided = true, .uuid = "GPU-parent"};
    for (unsigned kind = 0; kind < GPU_KINDS; kind++) {
        struct gpu_device *d = &s.devices[kind];

        *d = (struct gpu_device){.kind = (enum gpu_kind) kind};
        (void) snprintf(d->uuid, sizeof(d->uuid), "X-%u", kind);
        if (kind == GPU_MIG_INSTANCE)
            (void) snprintf(d->parent, sizeof(d->parent), "GPU-parent");
    }
    gpu_snapshot_encode(&s, &text);
    assert_int_equal(gpu_snapshot_decode(text.data, text.len, &back, NULL), 0);
    assert_int_equal(back.ndevices, s.ndevices);
    for (uint32_t i = 0; i < s.ndevices; i++) {
        assert_int_equal(back.devices[i].kind, s.devices[i].kind);
        assert_int_equal(back.devices[i].divided, s.devices[i].divided);
        assert_string_equal(back.devices[i].parent, s.devices[i].parent);
    }
    assert_int_equal(gpu_snapshot_decode(former, strlen(former), &back, NULL), 0);
    assert_int_equal(back.devices[0].kind, GPU_CARD);
    assert_true(gpu_snapshot_decode(orphan, strlen(orphan), &back, NULL) < 0);
    assert_true(gpu_snapshot_decode(unknown, strlen(unknown), &back, NULL) < 0);
}

static void inventory_of_instances(void **state) {
    static struct gpu_snapshot s, back;
    static const char ids[] = "{\"devices\":[{\"index\":0,\"minor\":0,\"uuid\":\"MIG-1\","
                              "\"memory\":1,\"kind\":\"MIG instance\",\"parent\":\"GPU-1\","
                              "\"mig\":{\"gi\":64}}]}";
    static const char number[] = "{\"devices\":[{\"index\":0,\"minor\":0,\"uuid\":\"MIG-1\","
                                 "\"memory\":1,\"kind\":\"MIG instance\",\"parent\":\"GPU-1\","
                                 "\"mig\":{\"size\":4294967296}}]}";
    _cleanup_buf_ struct buf text = BUF_INIT(65536);

    (void) state;
    s.ndevices = 1;
    s.devices[0] = (struct gpu_device){.kind = GPU_MIG_INSTANCE,
                                       .uuid = LONGEST_UUID,
                                       .parent = "GPU-01234567-89ab-cdef-0123-456789abcdef",
                                       .mig = {.gi = 13,
                                               .ci = 6,
                                               .profile = "1c.3g.40gb+me.all",
                                               .profile_id = 9,
                                               .start = 4,
                                               .size = 3,
                                               .gi_slices = 2,
                                               .ci_slices = 1,
                                               .multiprocessors = 60,
                                               .copy_engines = 5,
                                               .decoders = 7,
                                               .encoders = 8,
                                               .jpegs = 10,
                                               .ofas = 11}};
    gpu_snapshot_encode(&s, &text);
    assert_int_equal(gpu_snapshot_decode(text.data, text.len, &back, NULL), 0);
    assert_memory_equal(&back.devices[0].mig, &s.devices[0].mig, sizeof(struct gpu_mig));
    assert_string_equal(back.devices[0].uuid, s.devices[0].uuid);
    assert_int_equal(gpu_snapshot_decode(ids, strlen(ids), &back, NULL), -EINVAL);
    assert_int_equal(gpu_snapshot_decode(number, strlen(number), &back, NULL), -EINVAL);
}

/* ---- links ---- */

/* Four cards: 0 and 1 share two NVLinks, 2 and 3 have a switch, on which one link of 3 is down. */
static nvmlReturn_t links_handle(unsigned int index, nvmlDevice_t *ret) {
    static char cards[4];
    *ret = (nvmlDevice_t) (void *) &cards[index];
    return index < 4 ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

static unsigned links_index(nvmlDevice_t device) {
    nvmlDevice_t first;
    (void) links_handle(0, &first);
    return (unsigned) ((char *) device - (char *) first);
}

static nvmlReturn_t links_pci(nvmlDevice_t device, nvmlPciInfo_t *ret) {
    *ret = (nvmlPciInfo_t){.bus = 0x10 + links_index(device)};
    return NVML_SUCCESS;
}

static nvmlReturn_t links_state(nvmlDevice_t device, unsigned int link, nvmlEnableState_t *ret) {
    unsigned i = links_index(device);
    *ret = i == 3 && link == 5 ? NVML_FEATURE_DISABLED : NVML_FEATURE_ENABLED;
    return link < (i < 2 ? 2u : 6u) ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

static nvmlReturn_t links_type(nvmlDevice_t device, unsigned int link,
                               nvmlIntNvLinkDeviceType_t *ret) {
    (void) link;
    *ret = links_index(device) < 2 ? NVML_NVLINK_DEVICE_TYPE_GPU : NVML_NVLINK_DEVICE_TYPE_SWITCH;
    return NVML_SUCCESS;
}

static nvmlReturn_t links_remote(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *ret) {
    (void) link;
    *ret = (nvmlPciInfo_t){.bus = 0x10 + (links_index(device) ^ 1)};
    return NVML_SUCCESS;
}

static nvmlReturn_t links_level(nvmlDevice_t a, nvmlDevice_t b, nvmlGpuTopologyLevel_t *ret) {
    *ret = links_index(a) / 2 == links_index(b) / 2 ? NVML_TOPOLOGY_SINGLE : NVML_TOPOLOGY_SYSTEM;
    return NVML_SUCCESS;
}

static nvmlReturn_t links_numa(nvmlDevice_t device, unsigned int size, unsigned long *set,
                               nvmlAffinityScope_t scope) {
    assert_true(size > 0 && scope == 0);
    set[0] = 1ul << (links_index(device) / 2);
    return NVML_SUCCESS;
}

static void reading(uint32_t index, void *userdata) {
    *(uint32_t *) userdata |= 1u << index;
}

static void links(void **state) {
    const struct nvml nvml = {.nvmlDeviceGetHandleByIndex_v2 = links_handle,
                              .nvmlDeviceGetPciInfo_v3 = links_pci,
                              .nvmlDeviceGetMemoryAffinity = links_numa,
                              .nvmlDeviceGetTopologyCommonAncestor = links_level,
                              .nvmlDeviceGetNvLinkState = links_state,
                              .nvmlDeviceGetNvLinkRemoteDeviceType = links_type,
                              .nvmlDeviceGetNvLinkRemotePciInfo_v2 = links_remote};
    const struct nvml old = {.nvmlDeviceGetHandleByIndex_v2 = links_handle};
    static struct gpu_links l;
    uint32_t read = 0;

    (void) state;
    gpu_links_read(&nvml, 4, reading, &read, &l);
    assert_int_equal(read, 0xf);
    assert_int_equal(l.count, 4);
    assert_int_equal(l.of[0].nvlinks[1], 2);
    assert_int_equal(l.of[0].nvlinks[2], 0);
    assert_int_equal(l.of[2].nvlinks[3], 5);
    assert_int_equal(l.of[3].nvlinks[2], 5);
    assert_int_equal(l.of[2].level[3], NVML_TOPOLOGY_SINGLE);
    assert_int_equal(l.of[2].level[0], NVML_TOPOLOGY_SYSTEM);
    assert_int_equal(l.of[1].numa, 0);
    assert_int_equal(l.of[3].numa, 1);
    gpu_links_read(&old, 4, reading, &read, &l); /* a driver that tells nothing of it */
    assert_int_equal(l.of[0].numa, -1);
    assert_int_equal(l.of[0].level[1], GPU_LEVEL_UNKNOWN);
    assert_int_equal(l.of[0].nvlinks[1], 0);
}

static void library_of_another_kind(void **state) {
    struct nvml nvml;
    struct err err;

    (void) state;
    assert_int_equal(nvml_load("libm.so.6", &nvml, &err), -ENOSYS);
    assert_string_equal(err.text, "libm.so.6 has no nvmlInit_v2: the driver is too old");
    assert_int_equal(nvml_load("/nowhere/libnvidia-ml.so.1", &nvml, &err), -ENOENT);
}

/* Another card has the index now, and its memory cannot be read: it is not taken for the card that
 * had the index before. */
static void card_at_the_index_of_another(void **state) {
    static struct gpu_snapshot now, room;
    static struct gpu_collect collect;
    union gpu_message m = {.header = {GPU_MESSAGE_MAGIC, GPU_MESSAGE_DRIVER, 1, 0}};

    (void) state;
    now.ndevices = 2;
    now.devices[0] =
        (struct gpu_device){.uuid = "GPU-a", .pci = "a", .memory = 80, .healthy = true};
    now.devices[1] =
        (struct gpu_device){.uuid = "GPU-b", .pci = "b", .memory = 40, .index = 1, .minor = 1};
    gpu_collect_add(&collect, &now, &m);
    m = (union gpu_message){.device = {.header = {GPU_MESSAGE_MAGIC, GPU_MESSAGE_DEVICE, 1, 0},
                                       .status = 15,
                                       .minor = 3,
                                       .uuid = "GPU-b"}};
    gpu_collect_add(&collect, &now, &m);
    m.device.header.index = 1;
    m.device.minor = -1;
    m.device.uuid[0] = 0;
    gpu_collect_add(&collect, &now, &m); /* by its index GPU-b, which was reported already */
    gpu_collect_end(&collect, &now, 0, &room);
    assert_int_equal(now.ndevices, 1);
    assert_string_equal(now.devices[0].uuid, "GPU-b");
    assert_string_equal(now.devices[0].pci, "b");
    assert_int_equal(now.devices[0].index, 0);
    assert_int_equal(now.devices[0].minor, 3);
    assert_int_equal(now.devices[0].memory, 40);
    assert_false(now.devices[0].healthy);
    gpu_snapshot_done(&now);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_messages),
        cmocka_unit_test(inventory_file),
        cmocka_unit_test(kinds_of_the_inventory),
        cmocka_unit_test(inventory_of_parts),
        cmocka_unit_test(inventory_of_instances),
        cmocka_unit_test(links),
        cmocka_unit_test(card_at_the_index_of_another),
        cmocka_unit_test(library_of_another_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
