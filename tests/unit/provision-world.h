/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Two pods of a node with a driver's files, and shares that the scheduler has signed. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/shares/grant.h"
#include "agent/shares/provision.h"
#include "agent/shares/shares.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/file.h"
#include "base/text.h"
#include "base/units.h"
#include "fake-monitor.h"
#include "gpu/driver/extra_nodes.h"
#include "share/ledger.h"

#define N1 "00000000000000000000000000000001"
#define N2 "00000000000000000000000000000002"
#define CAP "/dev/nvidia-caps/nvidia-cap"
#define CAPABILITIES "/proc/driver/nvidia/capabilities/gpu0/mig/"

static struct pod_entry pods_of_node[2];

const struct pod_entry *__wrap_pods_find(const struct pods *p, const char *uid);

const struct pod_entry *__wrap_pods_find(const struct pods *p, const char *uid) {
    (void) p;
    for (size_t i = 0; i < 2; i++)
        if (strcmp(pods_of_node[i].pod.uid, uid) == 0)
            return &pods_of_node[i];
    return NULL;
}

enum verdict __wrap_grant_judge(const struct grant_world *w, const char *pod_uid,
                                const char *container, struct slot_grant *ret, struct err *why);

const struct signing_verifier *__wrap_keys_verifier(const struct keys *k);

const struct signing_verifier *__wrap_keys_verifier(const struct keys *k) {
    (void) k;
    return NULL;
}

/* A quarter of the card, as if the scheduler had signed it. */
enum verdict __wrap_grant_judge(const struct grant_world *w, const char *pod_uid,
                                const char *container, struct slot_grant *ret, struct err *why) {
    struct assigned_device device = {
        .uuid = "GPU-0", .core = 25, .memory = 20 * GIB, .physical = 20 * GIB};
    struct assigned_container c = {.ndevices = 1, .devices = &device};
    const struct assignment a = {.ncontainers = 1, .containers = &c};

    (void) pod_uid;
    text_copy(c.name, sizeof(c.name), container);
    assert_int_equal(slot_grant_make(&w->pod->pod, &a, container, ret, why), 0);
    return VERDICT_GRANT;
}

static bool polled; /* in the present call of kubelet */

struct fixture {
    struct shares shares;
    char dir[64], cdi[96], library[512];
};

static void put(const struct fixture *f, const char *name, const char *text) {
    char path[256], *slash;

    (void) snprintf(path, sizeof(path), "%s%s", f->dir, name);
    slash = strrchr(path, '/');
    *slash = 0;
    assert_int_equal(dir_make(path, 0755, NULL), 0);
    *slash = '/';
    assert_int_equal(file_replace(path, text, strlen(text), 0644, NULL), 0);
}

static void put_driver(struct fixture *f) {
    static const char *const files[] = {"/dev/nvidiactl",
                                        "/dev/nvidia0",
                                        CAP "11",
                                        CAP "12",
                                        CAP "21",
                                        CAP "22",
                                        "/usr/lib64/libnvidia-ml.so.1",
                                        "/usr/lib64/libcuda.so.1"};

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        put(f, files[i], "");
    put(f, CAPABILITIES "gi1/access", "DeviceFileMinor: 11\n");
    put(f, CAPABILITIES "gi1/ci0/access", "DeviceFileMinor: 12\n");
    put(f, CAPABILITIES "gi2/access", "DeviceFileMinor: 21\n");
    put(f, CAPABILITIES "gi2/ci0/access", "DeviceFileMinor: 22\n");
    f->shares.places = (struct gpu_driver_places){
        .host_root = f->dir, .driver_root = "", .sim_dir = "/nonexistent"};
    f->shares.driver = gpu_driver_find(&f->shares.places, f->library);
    assert_non_null(f->shares.driver);
}

static void set_devices(void) {
    static const struct gpu_device devices[] = {
        {.divided = true, .uuid = "GPU-0", .memory = 80 * GIB},
        {.kind = GPU_MIG_INSTANCE, .uuid = "MIG-1", .parent = "GPU-0", .mig = {.gi = 1}},
        {.kind = GPU_MIG_INSTANCE, .uuid = "MIG-2", .parent = "GPU-0", .mig = {.gi = 2}},
    };

    snapshot.ndevices = sizeof(devices) / sizeof(devices[0]);
    memcpy(snapshot.devices, devices, sizeof(devices));
    for (uint32_t i = 0; i < snapshot.ndevices; i++)
        snapshot.devices[i].healthy = true;
}

static void set_pod(size_t i, const char *uid) {
    struct pod *p = &pods_of_node[i].pod;

    memset(p, 0, sizeof(*p));
    text_copy(p->uid, sizeof(p->uid), uid);
    text_copy(p->namespace, sizeof(p->namespace), "ns");
    (void) snprintf(p->name, sizeof(p->name), "p-%.20s", uid);
}

static void no_bad(const char *nonce, const char *why, void *userdata) {
    (void) userdata;
    fail_msg("%s: %s", nonce, why);
}

static int setup(void **state) {
    struct fixture *f = calloc(1, sizeof(*f));

    assert_non_null(f);
    (void) snprintf(f->dir, sizeof(f->dir), "/tmp/aliquot-provision-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    (void) snprintf(f->cdi, sizeof(f->cdi), "%s/cdi", f->dir);
    f->shares.options.cdi_dir = f->cdi;
    f->shares.options.mps_dir = "";
    assert_int_equal(slot_store_load(&f->shares.slots, f->dir, no_bad, NULL, NULL), 0);
    put_driver(f);
    set_devices();
    set_pod(0, "u1");
    set_pod(1, "u2");
    *state = f;
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;

    slot_store_done(&f->shares.slots);
    (void) dir_remove(f->dir, NULL);
    free(f);
    return 0;
}

static enum verdict give_whole(struct fixture *f, const char *nonce, const char *uid,
                               const char *uuid, struct err *why) {
    const struct provision p = {
        .nonce = nonce, .pod_uid = uid, .container = "main", .polled = &polled};

    why->text[0] = 0;
    return provision_whole(&f->shares, &p, &uuid, 1, false, why);
}

static void expect_cdi(const struct fixture *f, const char *nonce, struct buf *ret) {
    char path[256];

    (void) snprintf(path, sizeof(path), "%s/elasticgpu.io-share-%s.json", f->cdi, nonce);
    assert_int_equal(file_read(path, 1 << 20, ret, NULL), 0);
}
