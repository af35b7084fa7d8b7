/* SPDX-License-Identifier: Apache-2.0 */

/* What the driver is told about control groups, and when it is told again. The driver's process and
 * /proc are played by this file. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "agent/agent.h"
#include "agent/cgroup.h"
#include "base/buf.h"

#define GIB ((uint64_t) 1 << 30)

static struct gpu_snapshot snapshot;
static uint64_t restarts;
static const char *group;
static unsigned told;
static uint64_t told_bytes;

const struct gpu_snapshot *gpu_monitor_snapshot(const struct gpu_monitor *m) {
    (void) m;
    return &snapshot;
}

void gpu_monitor_status(const struct gpu_monitor *m, struct gpu_monitor_status *ret) {
    (void) m;
    *ret = (struct gpu_monitor_status){.restarts = restarts};
}

int gpu_monitor_wall(struct gpu_monitor *m, const char *uuid, const char *cgroup, uint64_t bytes) {
    (void) m;
    assert_string_equal(uuid, "GPU-a");
    assert_string_equal(cgroup, "/group");
    told++;
    told_bytes = bytes;
    return 0;
}

int cgroup_of_pid(int pid, struct cgroup_id *ret) {
    memset(ret, 0, sizeof(*ret));
    text_copy(ret->pod_uid, sizeof(ret->pod_uid), "u1");
    text_copy(ret->container_id, sizeof(ret->container_id), group);
    return pid == 10 ? 1 : 0;
}

int cgroup_directory(int pid, const struct cgroup_id *id, const char *host_root, char *ret,
                     size_t size) {
    (void) pid, (void) id, (void) host_root;
    text_copy(ret, size, "/group");
    return 0;
}

uint64_t slot_memory_now(const struct slot_grant *g, uint32_t device) {
    return g->devices[device].memory;
}

static void a_new_driver_is_told_anew(void **state) {
    static struct agent a;
    struct slot_device device = {.uuid = "GPU-a", .memory = 4 * GIB, .physical = 4 * GIB};
    struct slot slot = {.nonce = "n", .grant = {.pod_uid = "u1", .ndevices = 1}};

    (void) state;
    slot.grant.devices = &device;
    HASH_ADD_STR(a.slots.slots, nonce, &slot);
    snapshot.ndevices = 1;
    snapshot.devices[0].memory = 80 * GIB;
    text_copy(snapshot.devices[0].uuid, sizeof(snapshot.devices[0].uuid), "GPU-a");
    group = "c1";

    wall_update(&a); /* nobody on the card */
    assert_int_equal(told, 0);
    device.worst_pid = 10;
    wall_update(&a);
    wall_update(&a);
    assert_int_equal(told, 1);
    assert_true(told_bytes == 4 * GIB + OVERUSE_SLACK);
    wall_answer(&a, "/group", told_bytes, GPU_WALL_BUILT, "");
    restarts++;
    wall_update(&a);
    wall_update(&a);
    assert_int_equal(told, 2);
    /* One that has no such limits is not asked again, its successor is. */
    wall_answer(&a, "/group", told_bytes, GPU_WALL_UNKNOWN_TO_IT, "");
    group = "c2";
    wall_update(&a);
    assert_int_equal(told, 2);
    restarts++;
    wall_update(&a);
    assert_int_equal(told, 3);
    HASH_CLEAR(hh, a.slots.slots);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_new_driver_is_told_anew)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
