/* SPDX-License-Identifier: Apache-2.0 */

/* Memory of processes that are gone, as the agent sees it poll by poll. The driver is played by
 * this file, processes and time are real. */

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/agent.h"

#define GIB ((uint64_t) 1 << 30)
#define GONE 0x3ffffffe /* above every PID that the kernel gives */

static struct gpu_snapshot snapshot;
static struct gpu_process process;
static uint64_t polls;
static struct agent a;
static uv_loop_t loop;

const struct gpu_snapshot *gpu_monitor_snapshot(const struct gpu_monitor *m) {
    (void) m;
    return &snapshot;
}

void gpu_monitor_status(const struct gpu_monitor *m, struct gpu_monitor_status *ret) {
    (void) m;
    *ret = (struct gpu_monitor_status){.polls = polls};
}

uint64_t gpu_monitor_poll(struct gpu_monitor *m) {
    (void) m;
    return 0;
}

void gpu_monitor_set_interval(struct gpu_monitor *m, unsigned interval_ms) {
    (void) m, (void) interval_ms;
}

int gpu_monitor_wall(struct gpu_monitor *m, const char *uuid, const char *cgroup, uint64_t bytes) {
    (void) m, (void) uuid, (void) cgroup, (void) bytes;
    return -EAGAIN;
}

static int setup(void **state) {
    (void) state;
    memset(&a, 0, sizeof(a));
    assert_int_equal(uv_loop_init(&loop), 0);
    a.loop = &loop;
    a.initial_pids = true;
    (void) uv_timer_init(&loop, &a.look_timer);
    snapshot.ndevices = 1;
    snapshot.devices[0] = (struct gpu_device){.uuid = "GPU-a",
                                              .memory = 80 * GIB,
                                              .healthy = true,
                                              .processes = &process,
                                              .nprocesses = 1};
    snapshot.devices[0].sample.attributable = true;
    snapshot.devices[0].sample.memory_allocated = GIB;
    process.memory = GIB;
    return 0;
}

static int teardown(void **state) {
    (void) state;
    uv_close((uv_handle_t *) &a.look_timer, NULL);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    return uv_loop_close(&loop);
}

static uint64_t poll_after(unsigned ms) {
    (void) usleep(ms * 1000);
    uv_update_time(&loop);
    polls++;
    usage_update(&a);
    return a.audits[0].memory.bytes;
}

/* At first it is being given back; after a second it belongs to something else. */
static void a_process_that_is_gone(void **state) {
    (void) state;
    process.pid = GONE;
    assert_int_equal(poll_after(0), 0);
    assert_int_equal(poll_after(300), 0);
    assert_int_equal(a.outside[0], GIB);
    assert_int_equal(poll_after(ENDED_MS), 0);
    assert_int_equal(poll_after(UNATTRIBUTED_CONFIRM_MS), GIB);
    assert_int_equal(a.outside[0], 0);
    assert_int_equal(a.audits[0].held_back, GIB);
    /* Where the PIDs may be others, nothing is known of a process. */
    a.initial_pids = false;
    memset(&a.audits[0], 0, sizeof(a.audits[0]));
    for (int i = 0; i < 4; i++)
        assert_int_equal(poll_after(ENDED_MS / 2), 0);
    assert_int_equal(a.outside[0], GIB);
}

/* What lives is attributed to it, whatever it is. */
static void a_process_that_lives(void **state) {
    (void) state;
    process.pid = (uint32_t) getpid();
    for (int i = 0; i < 4; i++)
        assert_int_equal(poll_after(ENDED_MS / 2), 0);
    assert_int_equal(a.outside[0], GIB);
}

/* A process that ends is looked at for a second, and another one of the same number anew. */
static void a_process_that_ends(void **state) {
    pid_t child = fork();
    siginfo_t info;

    (void) state;
    if (child == 0)
        _exit(0);
    assert_int_equal(waitid(P_PID, (id_t) child, &info, WEXITED | WNOWAIT), 0);
    uv_update_time(&loop);
    assert_false(card_audit_has_ended(&a, 0, (uint32_t) child));
    (void) usleep(ENDED_MS * 1000);
    uv_update_time(&loop);
    assert_true(card_audit_has_ended(&a, 0, (uint32_t) child));
    assert_false(card_audit_has_ended(&a, 0, (uint32_t) getpid()));
    (void) usleep(3100 * 1000);
    uv_update_time(&loop);
    assert_false(card_audit_has_ended(&a, 0, (uint32_t) child));
    assert_int_equal(waitpid(child, NULL, 0), child);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_process_that_is_gone, setup, teardown),
        cmocka_unit_test_setup_teardown(a_process_that_lives, setup, teardown),
        cmocka_unit_test_setup_teardown(a_process_that_ends, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
