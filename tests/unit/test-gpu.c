/* SPDX-License-Identifier: Apache-2.0 */

/* The monitor and its child, on an NVML that hangs, crashes and loses cards; and what they say to
 * each other. */

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
#include "gpu/nvml/links.h"
#include "gpu/nvml/monitor.h"
#include "gpu/nvml/worker.h"
#include "gpu/nvml/worker_protocol.h"

#define TIMEOUT_MS 15000

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
    struct gpu_xid xid; /* the last one; uuid is in `xid_uuid` */
    char xid_uuid[GPU_UUID_MAX];
};

static const char *own_dir;

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

static void on_xid(const struct gpu_xid *xid, void *userdata) {
    struct fixture *f = userdata;

    f->xid = *xid;
    (void) snprintf(f->xid_uuid, sizeof(f->xid_uuid), "%s", xid->uuid);
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
                                                .on_xid = on_xid,
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

static void inventory(void **state) {
    struct fixture *f = *state;

    RUN_UNTIL(f, snap(f)->ndevices == 2);
    assert_string_equal(snap(f)->devices[1].uuid, "GPU-fake-1");
    assert_true(snap(f)->devices[1].healthy);
    assert_true(snap(f)->devices[0].memory == (uint64_t) 80 << 30);
    assert_int_equal(snap(f)->devices[0].nprocesses, 100);
    assert_int_equal(snap(f)->devices[0].processes[99].pid, 1099);
    assert_int_equal(snap(f)->devices[1].nprocesses, 0);
}

static bool is_moving(struct fixture *f) {
    const struct gpu_sample *sample = &snap(f)->devices[1].sample;

    return sample->memory_most - sample->memory_allocated == (uint64_t) 4 << 30;
}

/* Memory that was taken or given back while the processes were listed is in use as far as it could
 * be held, and not in use as far as it could belong to one of them. */
static void memory_that_moves_during_a_look(void **state) {
    struct fixture *f = *state;

    RUN_UNTIL(f, snap(f)->ndevices == 2);
    assert_true(snap(f)->devices[1].sample.memory_most == (uint64_t) 1 << 29);
    assert_true(snap(f)->devices[1].sample.memory_allocated == (uint64_t) 1 << 29);
    switch_fault(f, "taken", true);
    RUN_UNTIL(f, is_moving(f));
    switch_fault(f, "taken", false);
    RUN_UNTIL(f, !is_moving(f));
    switch_fault(f, "returned", true);
    RUN_UNTIL(f, is_moving(f));
    switch_fault(f, "returned", false);
}

/* A driver that does not separate its reserve: all memory in use may be held by processes. */
static void driver_without_reserve(void **state) {
    struct fixture *f = *state;
    const struct gpu_sample *sample = &snap(f)->devices[0].sample;
    uint64_t polls;

    RUN_UNTIL(f, snap(f)->ndevices == 2);
    assert_true(sample->memory_most == (uint64_t) 1 << 29);
    assert_true(sample->memory_reserved == (uint64_t) 1 << 29);
    switch_fault(f, "no-reserve", true);
    polls = status(f).polls;
    RUN_UNTIL(f, status(f).polls > polls + 2); /* one that began after the fault */
    assert_false(sample->attributable);
    assert_true(sample->memory_used == (uint64_t) 1 << 30);
    assert_true(sample->memory_most == sample->memory_used);
    assert_true(sample->memory_allocated == sample->memory_used);
    assert_true(sample->memory_reserved == 0);
}

/* One lost card does not take the other with it, keeps its name, and comes back. */
static void lost_card(void **state) {
    struct fixture *f = *state;

    RUN_UNTIL(f, snap(f)->ndevices == 2);
    switch_fault(f, "lost", true);
    RUN_UNTIL(f, !snap(f)->devices[1].healthy);
    assert_string_equal(snap(f)->devices[1].uuid, "GPU-fake-1");
    assert_non_null(strstr(snap(f)->devices[1].reason, "GPU is lost"));
    assert_true(snap(f)->devices[0].healthy);
    switch_fault(f, "lost", false);
    RUN_UNTIL(f, snap(f)->devices[1].healthy);
    assert_int_equal(status(f).restarts, 0);
}

static void expect_instance(const struct gpu_device *d, const char *uuid, uint32_t number) {
    const struct gpu_mig mig = {
        7 + number, number / 2, "1c.2g.20gb+me", 19, 4, 2, 2, 1, 14, 1, 2, 3, 4, 5};

    assert_int_equal(d->kind, GPU_MIG_INSTANCE);
    assert_string_equal(d->uuid, uuid);
    assert_string_equal(d->parent, "GPU-fake-1");
    assert_string_equal(d->model, "Fake MIG 1c.2g.20gb+me");
    assert_int_equal(d->index, number);
    assert_int_equal(d->minor, 1);
    assert_int_equal(d->memory, 80 * GIB);
    assert_memory_equal(&d->mig, &mig, sizeof(mig));
}

/* A card in MIG mode comes with its instances; numbers without an instance are left out. */
static void mig_mode(void **state) {
    struct fixture *f = *state;
    uint64_t polls;

    RUN_UNTIL(f, snap(f)->ndevices == 2);
    switch_fault(f, "mig-pending", true); /* from its next reset on */
    polls = status(f).polls;
    RUN_UNTIL(f, status(f).polls > polls + 2);
    assert_int_equal(snap(f)->ndevices, 2);
    switch_fault(f, "mig", true);
    RUN_UNTIL(f, snap(f)->ndevices == 4);
    assert_string_equal(snap(f)->devices[0].uuid, "GPU-fake-0");
    assert_false(snap(f)->devices[0].divided);
    assert_true(snap(f)->devices[1].divided);
    expect_instance(&snap(f)->devices[2], "MIG-fake-0", 0);
    expect_instance(&snap(f)->devices[3], "MIG-fake-2", 2);
    for (uint32_t i = 0; i < 4; i++)
        assert_true(snap(f)->devices[i].healthy);
    switch_fault(f, "mig-broken", true);
    RUN_UNTIL(f, !snap(f)->devices[3].healthy);
    expect_instance(&snap(f)->devices[3], "MIG-fake-2", 2);
    assert_non_null(strstr(snap(f)->devices[3].reason, "GPU is lost"));
    assert_true(snap(f)->devices[1].healthy && snap(f)->devices[2].healthy);
    switch_fault(f, "mig-one", true);
    RUN_UNTIL(f, snap(f)->ndevices == 3);
    expect_instance(&snap(f)->devices[2], "MIG-fake-2", 2);
    switch_fault(f, "mig", false);
    RUN_UNTIL(f, snap(f)->ndevices == 2);
    assert_true(snap(f)->devices[1].healthy);
    assert_false(snap(f)->devices[1].divided);
    assert_int_equal(status(f).restarts, 0);
}

/* ---- parts of cards ---- */

/* As drivers before R470 name an instance. */
#define LONGEST_UUID "MIG-GPU-01234567-89ab-cdef-0123-456789abcdef/13/6"

/* A child that reports two cards in MIG mode and instances of them. The worker's own reports of
 * instances need a driver that has them. */
static const struct gpu_message_device parts[] = {
    {.header.index = 0, .divided = 1, .memory = 80, .uuid = "GPU-a"},
    {.header.index = 0,
     .kind = GPU_MIG_INSTANCE,
     .memory = 10,
     .uuid = "MIG-a0",
     .parent = "GPU-a",
     .mig = {.gi = 2, .ci = 1, .profile = "1c.2g.20gb", .start = 4, .size = 2}},
    {.header.index = 1,
     .kind = GPU_MIG_INSTANCE,
     .memory = 20,
     .uuid = "MIG-a1",
     .parent = "GPU-a"},
    {.header.index = 1, .divided = 1, .memory = 80, .uuid = "GPU-b"},
    {.header.index = 0, .kind = GPU_VGPU, .memory = 8, .uuid = "GPU-virtual"},
    {.header.index = 1,
     .kind = GPU_MIG_INSTANCE,
     .memory = 40,
     .uuid = LONGEST_UUID,
     .parent = "GPU-b"},
};
#define PARTS (sizeof(parts) / sizeof(parts[0]))

static void put_part(union gpu_message *m, uint32_t type, uint32_t sequence, size_t size) {
    m->header.magic = GPU_MESSAGE_MAGIC;
    m->header.type = type;
    m->header.sequence = sequence;
    (void) send(GPU_WORKER_FD, m, size, MSG_NOSIGNAL);
}

/* Each device has a process of its own. The last two are lost after some polls. */
static int child_with_parts(void) {
    union gpu_message m;

    while (recv(GPU_WORKER_FD, &m, sizeof(m), 0) > 0) {
        uint32_t sequence = m.header.sequence;

        m = (union gpu_message){.text.text = "1.0"};
        put_part(&m, GPU_MESSAGE_DRIVER, sequence, sizeof(m.text));
        for (uint32_t i = 0; i < PARTS; i++) {
            bool lost = i >= PARTS - 2 && sequence > 3;

            m = (union gpu_message){.device = parts[i]};
            m.device.status = lost;
            if (lost)
                m.device.uuid[0] = 0;
            put_part(&m, GPU_MESSAGE_DEVICE, sequence, sizeof(m.device));
            m = (union gpu_message){
                .processes = {.header.index = parts[i].header.index, .count = 1}};
            m.processes.processes[0].pid = 100 + i;
            put_part(&m, GPU_MESSAGE_PROCESSES, sequence, sizeof(m.processes));
        }
        m = (union gpu_message){0};
        put_part(&m, GPU_MESSAGE_END, sequence, sizeof(m.header));
    }
    return EXIT_SUCCESS;
}

/* Kind and parent reach the agent; parts of different cards and devices of different kinds with one
 * index are kept apart. */
static void parts_of_cards(void **state) {
    struct fixture *f = *state;

    switch_fault(f, "parts", true);
    RUN_UNTIL(f, snap(f)->ndevices == PARTS);
    for (uint32_t i = 0; i < PARTS; i++) {
        const struct gpu_device *d = &snap(f)->devices[i];

        assert_string_equal(d->uuid, parts[i].uuid);
        assert_string_equal(d->parent, parts[i].parent);
        assert_int_equal(d->kind, parts[i].kind);
        assert_int_equal(d->divided, parts[i].divided);
        assert_memory_equal(&d->mig, &parts[i].mig, sizeof(d->mig));
        assert_int_equal(gpu_is_part(d), d->kind == GPU_MIG_INSTANCE);
        assert_false(gpu_gives_shares(d));
        assert_int_equal(d->nprocesses, 1);
        assert_int_equal(d->processes[0].pid, 100 + i);
    }
    RUN_UNTIL(f, !snap(f)->devices[PARTS - 1].healthy);
    assert_int_equal(snap(f)->ndevices, PARTS);
    assert_string_equal(snap(f)->devices[PARTS - 1].uuid, LONGEST_UUID);
    assert_string_equal(snap(f)->devices[PARTS - 2].uuid, "GPU-virtual");
    assert_false(snap(f)->devices[PARTS - 2].healthy);
    assert_true(snap(f)->devices[2].healthy && snap(f)->devices[3].healthy);
    assert_int_equal(status(f).restarts, 0);
}

/* Long before the next poll is due; a program's own fault takes no card away. */
static void xid(void **state) {
    struct fixture *f = *state;
    uint64_t polls;

    gpu_monitor_set_interval(f->monitor, 60000);
    RUN_UNTIL(f, snap(f)->ndevices == 2);
    polls = status(f).polls;
    switch_fault(f, "xid-31", true);
    RUN_UNTIL(f, status(f).polls > polls);
    assert_true(snap(f)->devices[1].healthy);
    assert_int_equal(snap(f)->devices[1].recovery_action, 0);
    assert_int_equal(f->xid.xid, 31);
    assert_int_equal(f->xid.index, 1);
    assert_int_equal(f->xid.gi, 5);
    assert_int_equal(f->xid.ci, GPU_NOT_TOLD);
    assert_string_equal(f->xid_uuid, "GPU-fake-1");
    switch_fault(f, "recovery", true);
    switch_fault(f, "xid-48", true);
    RUN_UNTIL(f, !snap(f)->devices[1].healthy);
    assert_string_equal(snap(f)->devices[1].reason, "XID 48: the card needs a reset");
    assert_string_equal(snap(f)->devices[1].uuid, "GPU-fake-1");
    assert_int_equal(snap(f)->devices[1].recovery_action, 1);
    assert_int_equal(f->xid.xid, 48);
    assert_int_equal(f->xid.gi, GPU_NOT_TOLD);
    assert_true(snap(f)->devices[0].healthy);
    gpu_monitor_set_interval(f->monitor, 20);
    (void) gpu_monitor_poll(f->monitor);
    polls = status(f).polls;
    RUN_UNTIL(f, status(f).polls > polls + 3);
    assert_false(snap(f)->devices[1].healthy); /* the driver still wants it reset */
    switch_fault(f, "recovery", false);
    RUN_UNTIL(f, snap(f)->devices[1].healthy);
    assert_int_equal(status(f).restarts, 0);
}

/* A driver that does not say what it wants is believed when it has been loaded anew. */
static void xid_of_an_old_driver(void **state) {
    struct fixture *f = *state;
    uint64_t polls;

    RUN_UNTIL(f, snap(f)->ndevices == 2);
    switch_fault(f, "silent", true);
    switch_fault(f, "xid-48", true);
    RUN_UNTIL(f, !snap(f)->devices[1].healthy);
    polls = status(f).polls;
    RUN_UNTIL(f, status(f).polls > polls + 80); /* longer than the driver may take to settle */
    assert_false(snap(f)->devices[1].healthy);
    assert_int_equal(snap(f)->devices[1].recovery_action, GPU_NOT_TOLD);
    switch_fault(f, "unloaded", true);
    RUN_UNTIL(f, status(f).restarts > 0);
    switch_fault(f, "unloaded", false);
    RUN_UNTIL(f, snap(f)->devices[1].healthy);
}

static void hanging_call(void **state) {
    struct fixture *f = *state;
    int pid;

    RUN_UNTIL(f, snap(f)->ndevices == 2);
    pid = status(f).pid;
    switch_fault(f, "hang", true);
    RUN_UNTIL(f, status(f).hangs > 0);
    assert_int_equal(snap(f)->ndevices, 2);
    RUN_UNTIL(f, kill(pid, 0) < 0);
    switch_fault(f, "hang", false);
    RUN_UNTIL(f, status(f).text[0] == 0 && status(f).answering);
    assert_int_not_equal(status(f).pid, pid);
}

static void crash_and_driver_reload(void **state) {
    struct fixture *f = *state;
    uint64_t polls;

    RUN_UNTIL(f, snap(f)->ndevices == 2);
    switch_fault(f, "crash", true);
    RUN_UNTIL(f, status(f).restarts > 0);
    switch_fault(f, "crash", false);
    polls = status(f).polls;
    RUN_UNTIL(f, status(f).polls > polls);
    switch_fault(f, "unloaded", true);
    RUN_UNTIL(f, strstr(status(f).text, "Driver Not Loaded"));
    assert_int_equal(snap(f)->ndevices, 2);
    switch_fault(f, "unloaded", false);
    polls = status(f).polls;
    RUN_UNTIL(f, status(f).polls > polls);
}

static void driver_comes_later(void **state) {
    struct fixture *f = *state;

    f->no_driver = true;
    RUN_UNTIL(f, strstr(status(f).text, "no GPU driver"));
    assert_int_equal(snap(f)->ndevices, 0);
    f->no_driver = false;
    RUN_UNTIL(f, snap(f)->ndevices == 2);
}

static void killed_child(void **state) {
    struct fixture *f = *state;

    RUN_UNTIL(f, snap(f)->ndevices == 2 && status(f).pid > 0);
    assert_int_equal(kill(status(f).pid, SIGKILL), 0);
    RUN_UNTIL(f, status(f).restarts == 1 && status(f).text[0] == 0);
    assert_true(snap(f)->devices[0].healthy);
}

/* ---- messages ---- */

/* A driver that limits control groups, one that cannot, and requests that it refuses. The driver is
 * a fake: none of version 615 can be had without its GPU. */
static void memory_limits(void **state) {
    struct fixture *f = *state;
    _cleanup_buf_ struct buf said = BUF_INIT(65536);
    char path[128], want[256];

    assert_int_equal(gpu_monitor_limit(f->monitor, "GPU-fake-1", f->dir, 1), -EAGAIN);
    RUN_UNTIL(f, snap(f)->ndevices == 2);
    assert_int_equal(gpu_monitor_limit(f->monitor, "GPU-fake-1", f->dir, (uint64_t) 4 << 30), 0);
    RUN_UNTIL(f, f->limit_answers == 1);
    assert_int_equal(f->result, GPU_LIMIT_SET);
    (void) snprintf(path, sizeof(path), "%s/limits", f->dir);
    (void) snprintf(want, sizeof(want), "1 %s 0 4294967296\n", f->dir);
    assert_int_equal(file_read(path, 4096, &said, NULL), 0);
    assert_string_equal(buf_str(&said), want);
    assert_int_equal(gpu_monitor_limit(f->monitor, "GPU-fake-1", "/nowhere", 1), 0);
    RUN_UNTIL(f, f->limit_answers == 2);
    assert_int_equal(f->result, GPU_LIMIT_REFUSED);
    assert_int_equal(gpu_monitor_limit(f->monitor, "GPU-other", f->dir, 1), 0);
    RUN_UNTIL(f, f->limit_answers == 3);
    assert_int_equal(f->result, GPU_LIMIT_REFUSED);
    switch_fault(f, "no-limits", true);
    assert_int_equal(gpu_monitor_limit(f->monitor, "GPU-fake-0", f->dir, 1), 0);
    RUN_UNTIL(f, f->limit_answers == 4);
    assert_int_equal(f->result, GPU_LIMIT_UNSUPPORTED);
    /* Polls went on all the time. */
    assert_true(snap(f)->devices[0].healthy && status(f).restarts == 0);
}

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
    gpu_snapshot_encode(&s, &text);
    assert_int_equal(gpu_snapshot_decode(text.data, text.len, &back, NULL), 0);
    assert_int_equal(back.ndevices, 1);
    assert_int_equal(back.devices[0].minor, 4);
    assert_int_equal(back.devices[0].context_bytes, 6);
    assert_string_equal(back.devices[0].model, "M\"x");
    assert_false(back.devices[0].healthy);
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

    (void) state;
    gpu_links_read(&nvml, 4, &l);
    assert_int_equal(l.count, 4);
    assert_int_equal(l.of[0].nvlinks[1], 2);
    assert_int_equal(l.of[0].nvlinks[2], 0);
    assert_int_equal(l.of[2].nvlinks[3], 5);
    assert_int_equal(l.of[3].nvlinks[2], 5);
    assert_int_equal(l.of[2].level[3], NVML_TOPOLOGY_SINGLE);
    assert_int_equal(l.of[2].level[0], NVML_TOPOLOGY_SYSTEM);
    assert_int_equal(l.of[1].numa, 0);
    assert_int_equal(l.of[3].numa, 1);
    gpu_links_read(&old, 4, &l); /* a driver that tells nothing of it */
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

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(inventory, setup, teardown),
        cmocka_unit_test_setup_teardown(memory_that_moves_during_a_look, setup, teardown),
        cmocka_unit_test_setup_teardown(driver_without_reserve, setup, teardown),
        cmocka_unit_test_setup_teardown(lost_card, setup, teardown),
        cmocka_unit_test_setup_teardown(mig_mode, setup, teardown),
        cmocka_unit_test_setup_teardown(parts_of_cards, setup, teardown),
        cmocka_unit_test_setup_teardown(xid, setup, teardown),
        cmocka_unit_test_setup_teardown(xid_of_an_old_driver, setup, teardown),
        cmocka_unit_test_setup_teardown(hanging_call, setup, teardown),
        cmocka_unit_test_setup_teardown(crash_and_driver_reload, setup, teardown),
        cmocka_unit_test_setup_teardown(driver_comes_later, setup, teardown),
        cmocka_unit_test_setup_teardown(killed_child, setup, teardown),
        cmocka_unit_test_setup_teardown(memory_limits, setup, teardown),
        cmocka_unit_test(bad_messages),
        cmocka_unit_test(inventory_file),
        cmocka_unit_test(kinds_of_the_inventory),
        cmocka_unit_test(inventory_of_parts),
        cmocka_unit_test(inventory_of_instances),
        cmocka_unit_test(links),
        cmocka_unit_test(library_of_another_kind),
    };
    static char dir[512];
    ssize_t n;

    if (argc > 1 && strcmp(argv[1], GPU_WORKER_COMMAND) == 0)
        return is_switched("parts") ? child_with_parts() : gpu_worker_main(argc, argv);
    n = readlink("/proc/self/exe", dir, sizeof(dir) - 1);
    if (n <= 0)
        return 1;
    dir[n] = 0;
    *strrchr(dir, '/') = 0;
    own_dir = dir;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
