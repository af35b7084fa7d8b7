/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A monitor with a child on fake-nvml.c, for the tests of both. */

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/file.h"
#include "base/units.h"
#include "gpu/nvml/monitor.h"
#include "gpu/nvml/worker.h"
#include "gpu/nvml/worker_protocol.h"

#define TIMEOUT_MS 60000

struct fixture {
    enum gpu_limit_result result;
    uint64_t limit_before;
    unsigned limit_answers;
    uv_loop_t loop;
    uv_timer_t timeout;
    bool timed_out, closed;
    char dir[64];
    char library[512];
    bool no_driver;
    struct gpu_monitor *monitor;
    unsigned updates;
    bool judging;       /* card 1 is taken out */
    struct gpu_xid xid; /* the last one; uuid is in `xid_uuid` */
    char xid_uuid[GPU_UUID_MAX];
    unsigned probes;
    char probe_error[160]; /* of the last one */
};

static char own_dir[480];

/* To be called first. */
static bool find_own_dir(void) {
    ssize_t n = readlink("/proc/self/exe", own_dir, sizeof(own_dir) - 1);

    own_dir[n > 0 ? n : 0] = 0;
    if (!strchr(own_dir, '/'))
        return false;
    *strrchr(own_dir, '/') = 0;
    return true;
}

static void on_timeout(uv_timer_t *timer) {
    ((struct fixture *) timer->data)->timed_out = true;
}

#define RUN_UNTIL(f, condition)                                                                    \
    do {                                                                                           \
        (f)->timed_out = false;                                                                    \
        (void) uv_timer_start(&(f)->timeout, on_timeout, TIMEOUT_MS, 0);                           \
        while (!(condition) && !(f)->timed_out)                                                    \
            (void) uv_run(&(f)->loop, UV_RUN_ONCE);                                                \
        (void) uv_timer_stop(&(f)->timeout);                                                       \
        if (!(condition))                                                                          \
            fail_msg("never happened: %s", #condition);                                            \
    } while (0)

static const char *library(void *userdata) {
    struct fixture *f = userdata;

    return f->no_driver ? NULL : f->library;
}

static void on_update(void *userdata) {
    ((struct fixture *) userdata)->updates++;
}

static void judge(struct gpu_device *d, void *userdata) {
    const struct fixture *f = userdata;

    d->service = GPU_SERVES;
    if (!f->judging || d->index != 1)
        return;
    d->service = GPU_SERVES_NONE;
    (void) snprintf(d->reason, sizeof(d->reason), "judged");
}

static void on_xid(const struct gpu_xid *xid, void *userdata) {
    struct fixture *f = userdata;

    f->xid = *xid;
    (void) snprintf(f->xid_uuid, sizeof(f->xid_uuid), "%s", xid->uuid);
}

static void on_probe(const char *uuid, const char *error, void *userdata) {
    struct fixture *f = userdata;

    assert_string_equal(uuid, "GPU-fake-1");
    f->probes++;
    (void) snprintf(f->probe_error, sizeof(f->probe_error), "%s", error ? error : "");
}

static void on_limit(const struct gpu_limit_answer *answer, void *userdata) {
    struct fixture *f = userdata;

    assert_true(answer->bytes > 0 && answer->cgroup[0] && answer->uuid[0] && answer->text[0]);
    f->result = answer->result;
    f->limit_before = answer->before;
    f->limit_answers++;
}

static int setup(void **state) {
    struct fixture *f = calloc(1, sizeof(*f));
    const struct gpu_monitor_options options = {.program = "/proc/self/exe",
                                                .library = library,
                                                .on_update = on_update,
                                                .on_limit = on_limit,
                                                .judge = judge,
                                                .on_xid = on_xid,
                                                .on_probe = on_probe,
                                                .userdata = f,
                                                .interval_ms = 20,
                                                .deadline_ms = 500};

    assert_non_null(f);
    (void) snprintf(f->dir, sizeof(f->dir), "/tmp/aliquot-gpu-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    assert_int_equal(setenv("FAKE_NVML", f->dir, 1), 0);
    (void) snprintf(f->library, sizeof(f->library), "%s/libfake-nvml.so", own_dir);
    assert_int_equal(uv_loop_init(&f->loop), 0);
    (void) uv_timer_init(&f->loop, &f->timeout);
    f->timeout.data = f;
    assert_int_equal(gpu_monitor_start(&f->loop, &options, NULL, &f->monitor, NULL), 0);
    *state = f;
    return 0;
}

static void on_closed(void *userdata) {
    ((struct fixture *) userdata)->closed = true;
}

static int teardown(void **state) {
    struct fixture *f = *state;

    gpu_monitor_close(f->monitor, on_closed, f);
    RUN_UNTIL(f, f->closed);
    uv_close((uv_handle_t *) &f->timeout, NULL);
    (void) uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    (void) dir_remove(f->dir, NULL);
    free(f);
    return 0;
}

static void switch_fault(struct fixture *f, const char *name, bool on) {
    char path[128];

    (void) snprintf(path, sizeof(path), "%s/%s", f->dir, name);
    if (on)
        (void) close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    else
        (void) unlink(path);
}

/* In the child. */
static bool is_switched(const char *name) {
    char path[128];

    (void) snprintf(path, sizeof(path), "%s/%s", getenv("FAKE_NVML"), name);
    return access(path, F_OK) == 0;
}

static const struct gpu_snapshot *snap(struct fixture *f) {
    return gpu_monitor_snapshot(f->monitor);
}

static struct gpu_monitor_status status(struct fixture *f) {
    struct gpu_monitor_status s;

    gpu_monitor_status(f->monitor, &s);
    return s;
}
