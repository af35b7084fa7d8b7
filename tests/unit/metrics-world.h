/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* An agent with what its metrics are about. The figures of cards come from a simulated NVML through
 * the monitor. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/audit/usage.h"
#include "agent/health/cards.h"
#include "agent/mps/mps.h"
#include "agent/os/kmsg.h"
#include "agent/report/metrics.h"
#include "agent/report/report.h"
#include "agent/shares/gputime.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/text.h"
#include "gpu/nvml/worker.h"
#include "kube/api/event.h"
#include "kube/api/event_writer.h"
#include "metrics-page.h"

#define CARDS 3
#define TIMEOUT_MS 60000u

static const char *own_dir; /* of this program */

/* ---- what the agent's objects say ---- */

static struct gpu_snapshot snapshot;
static struct gpu_monitor_status monitor_status;
static bool hanging; /* a call for card 0 */
static struct plugin_stats stats_of_plugin;
static struct slot_total granted;
static unsigned walks, gathered;
static bool synced, no_statm;
static struct slot_usage usage;
static struct arbiter_view view;
static const struct arbiter_stats arbiter_figures = {.cpu_ns = 2250000000, .steps = 7001};
static const struct event_writer_stats *events; /* NULL: the writer's own */

const struct gpu_snapshot *__real_gpu_monitor_snapshot(const struct gpu_monitor *monitor);
const struct gpu_snapshot *__wrap_gpu_monitor_snapshot(const struct gpu_monitor *monitor);
void __real_gpu_monitor_status(const struct gpu_monitor *monitor, struct gpu_monitor_status *ret);
void __wrap_gpu_monitor_status(const struct gpu_monitor *monitor,
                               struct gpu_monitor_status *ret_status);
bool __wrap_gpu_monitor_hangs(const struct gpu_monitor *monitor, uint32_t card);
const struct plugin *__wrap_kubelet_plugin(const struct kubelet *kubelet, size_t i);
const struct prom_histogram *__wrap_kubelet_waits(const struct kubelet *k);
const struct resource *__wrap_plugin_resource(const struct plugin *plugin);
void __wrap_plugin_stats(const struct plugin *plugin, struct plugin_stats *ret_stats);
bool __wrap_pods_synced(const struct pods *pods);
bool __wrap_mps_card_status(const struct mps *m, const char *uuid, struct mps_card_status *ret);
void __wrap_slot_card_use(const struct slot_store *slots, const char *uuid, const char *but,
                          struct slot_total *ret_granted, const struct slot **ret_holder);
void __wrap_usage_of_slot(struct slot *slot, struct slot_usage *ret);
void __wrap_gputime_view(const struct slot *slot, uint32_t device, struct arbiter_view *ret);
void __wrap_arbiter_stats(struct arbiter *arbiter, struct arbiter_stats *ret);
size_t __wrap_prestart_waiting(const struct prestarts *all);
int __real_file_read(const char *path, size_t max, struct buf *out, struct err *err);
int __wrap_file_read(const char *path, size_t max, struct buf *out, struct err *err);
void __real_event_writer_stats(const struct event_writer *w, struct event_writer_stats *ret);
void __wrap_event_writer_stats(const struct event_writer *w, struct event_writer_stats *ret);

const struct gpu_snapshot *__wrap_gpu_monitor_snapshot(const struct gpu_monitor *monitor) {
    return monitor ? __real_gpu_monitor_snapshot(monitor) : &snapshot;
}

bool __wrap_gpu_monitor_hangs(const struct gpu_monitor *monitor, uint32_t card) {
    (void) monitor;
    return hanging && card == 0;
}

void __wrap_gpu_monitor_status(const struct gpu_monitor *monitor,
                               struct gpu_monitor_status *ret_status) {
    (void) monitor;
    *ret_status = monitor_status;
}

const struct plugin *__wrap_kubelet_plugin(const struct kubelet *kubelet, size_t i) {
    (void) kubelet;
    return i < resources_count ? (const struct plugin *) &resources[i] : NULL;
}

const struct prom_histogram *__wrap_kubelet_waits(const struct kubelet *k) {
    static const struct prom_histogram waits = {.buckets = {[4] = 3}, .sum_ns = 6500000000};

    (void) k;
    return &waits;
}

const struct resource *__wrap_plugin_resource(const struct plugin *plugin) {
    return (const struct resource *) plugin;
}

void __wrap_plugin_stats(const struct plugin *plugin, struct plugin_stats *ret_stats) {
    (void) plugin;
    gathered++;
    *ret_stats = stats_of_plugin;
}

bool __wrap_mps_card_status(const struct mps *m, const char *uuid, struct mps_card_status *ret) {
    (void) m;
    (void) uuid;
    *ret = (struct mps_card_status){.ready = true, .restarts = 38};
    return true;
}

bool __wrap_pods_synced(const struct pods *pods) {
    (void) pods;
    return synced;
}

void __wrap_slot_card_use(const struct slot_store *slots, const char *uuid, const char *but,
                          struct slot_total *ret_granted, const struct slot **ret_holder) {
    (void) slots, (void) uuid, (void) but, (void) ret_holder;
    walks++;
    *ret_granted = granted;
}

void __wrap_usage_of_slot(struct slot *slot, struct slot_usage *ret) {
    (void) slot;
    *ret = usage;
}

void __wrap_gputime_view(const struct slot *slot, uint32_t device, struct arbiter_view *ret) {
    (void) slot, (void) device;
    *ret = view;
}

void __wrap_arbiter_stats(struct arbiter *arbiter, struct arbiter_stats *ret) {
    (void) arbiter;
    *ret = arbiter_figures;
}

size_t __wrap_prestart_waiting(const struct prestarts *all) {
    return all->list ? 43 : 0;
}

int __wrap_file_read(const char *path, size_t max, struct buf *out, struct err *err) {
    if (strcmp(path, "/proc/self/statm") != 0)
        return __real_file_read(path, max, out, err);
    if (no_statm)
        return -ENOENT;
    buf_puts(out, "999 2000 0 0 0 0 0\n");
    return 0;
}

void __wrap_event_writer_stats(const struct event_writer *w, struct event_writer_stats *ret) {
    if (events)
        *ret = *events;
    else
        __real_event_writer_stats(w, ret);
}

/* ---- an agent with one container on the first card ---- */

static struct shares shares;
static struct audit audit;
static struct prestarts prestarts;
static struct cross_check cross_check;
static struct slot slot;
static struct slot_device device;
static struct health_cards health;
static struct report report = {.shares = &shares,
                               .audit = &audit,
                               .prestarts = &prestarts,
                               .cross_check = &cross_check,
                               .health = &health};

static int setup(void **state) {
    (void) state;
    memset(&shares, 0, sizeof(shares));
    memset(&audit, 0, sizeof(audit));
    audit.shares = &shares;
    memset(&health, 0, sizeof(health));
    memset(&prestarts, 0, sizeof(prestarts));
    memset(&slot, 0, sizeof(slot));
    memset(&device, 0, sizeof(device));
    memset(&monitor_status, 0, sizeof(monitor_status));
    hanging = false;
    memset(&stats_of_plugin, 0, sizeof(stats_of_plugin));
    memset(&usage, 0, sizeof(usage));
    memset(&view, 0, sizeof(view));
    granted = (struct slot_total){0};
    snapshot = (struct gpu_snapshot){
        .ndevices = CARDS + 1,
        .devices = {{.uuid = "GPU-a"},
                    {.uuid = "GPU-b"},
                    {.uuid = "GPU-c"},
                    {.kind = GPU_MIG_INSTANCE, .uuid = "MIG-a", .parent = "GPU-a"}},
    };
    walks = gathered = 0;
    synced = no_statm = false;
    events = NULL;
    shares.options.node_name = "node-a";
    report.metric_names = UINT32_MAX;
    cross_check = (struct cross_check){.cpus = BUF_INIT(0), .others = BUF_INIT(0)};
    return 0;
}

static int teardown(void **state) {
    (void) state;
    HASH_CLEAR(hh, shares.slots.slots);
    buf_done(&cross_check.cpus);
    buf_done(&cross_check.others);
    return 0;
}

static void add_container(void) {
    text_copy(device.uuid, sizeof(device.uuid), "GPU-fake-0");
    text_copy(slot.nonce, sizeof(slot.nonce), "n");
    text_copy(slot.grant.namespace, sizeof(slot.grant.namespace), "team");
    text_copy(slot.grant.pod, sizeof(slot.grant.pod), "pod");
    text_copy(slot.grant.container, sizeof(slot.grant.container), "main");
    slot.grant.devices = &device;
    slot.grant.ndevices = 1;
    HASH_ADD_STR(shares.slots.slots, nonce, &slot);
}

/* ---- the cards by a simulated NVML ---- */

static const char *library(void *userdata) {
    return userdata;
}

static void on_update(void *userdata) {
    (void) userdata;
}

static void on_closed(void *userdata) {
    *(bool *) userdata = true;
}

static void on_timeout(uv_timer_t *timer) {
    *(bool *) timer->data = true;
}

/* Whether the monitor has the cards of tests/unit/fake-nvml.c, and with `rates` also figures that
 * need two readings. */
static bool has_cards(const struct gpu_monitor *monitor, bool rates) {
    const struct gpu_snapshot *s = __real_gpu_monitor_snapshot(monitor);

    return s->ndevices >= 2 && (!rates || (s->devices[0].sample.rates.nvlink != METRIC_UNKNOWN_64 &&
                                           s->devices[1].sample.rates.nvlink != METRIC_UNKNOWN_64));
}

static void wait_for_cards(uv_loop_t *loop, const struct gpu_monitor *monitor, bool rates) {
    struct gpu_monitor_status status;
    bool timed_out = false;
    uv_timer_t timer;

    (void) uv_timer_init(loop, &timer);
    timer.data = &timed_out;
    (void) uv_timer_start(&timer, on_timeout, TIMEOUT_MS, 0);
    while (!has_cards(monitor, rates) && !timed_out)
        (void) uv_run(loop, UV_RUN_ONCE);
    if (timed_out) {
        __real_gpu_monitor_status(monitor, &status);
        fail_msg("no cards from NVML within %u ms: %s", TIMEOUT_MS, status.text);
    }
    uv_close((uv_handle_t *) &timer, NULL);
    (void) uv_run(loop, UV_RUN_NOWAIT);
}

/* Leaves in `snapshot` what the monitor makes of tests/unit/fake-nvml.c with that fault. */
static void read_nvml_until(const char *fault, bool rates) {
    char path[600], dir[] = "/tmp/aliquot-metrics-XXXXXX";
    struct gpu_monitor_options options = {.program = "/proc/self/exe",
                                          .library = library,
                                          .on_update = on_update,
                                          .userdata = path,
                                          .interval_ms = 20};
    struct gpu_monitor *monitor;
    bool closed = false;
    uv_loop_t loop;

    assert_non_null(mkdtemp(dir));
    assert_int_equal(setenv("FAKE_NVML", dir, 1), 0);
    (void) snprintf(path, sizeof(path), "%s/%s", dir, fault);
    assert_int_equal(close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600)), 0);
    (void) snprintf(path, sizeof(path), "%s/libfake-nvml.so", own_dir);
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(gpu_monitor_start(&loop, &options, NULL, &monitor, NULL), 0);
    wait_for_cards(&loop, monitor, rates);
    snapshot = *__real_gpu_monitor_snapshot(monitor);
    for (uint32_t i = 0; i < snapshot.ndevices; i++) {
        snapshot.devices[i].processes = NULL; /* the monitor's */
        snapshot.devices[i].nprocesses = 0;
    }
    gpu_monitor_close(monitor, on_closed, &closed);
    while (!closed)
        (void) uv_run(&loop, UV_RUN_ONCE);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    (void) dir_remove(dir, NULL);
}

static void read_nvml(const char *fault) {
    read_nvml_until(fault, false);
}

static void fill_instance(void) {
    struct gpu_device *d = &snapshot.devices[snapshot.ndevices++];

    *d = (struct gpu_device){.kind = GPU_MIG_INSTANCE,
                             .uuid = "MIG-0",
                             .parent = "GPU-fake-0",
                             .healthy = true,
                             .memory = 61000,
                             .sample = {.memory_used = 62000, .gpu_percent = 63}};
}

static const char *page(struct buf *out) {
    buf_reset(out);
    metrics_write(&report, PROM_TEXT, out);
    assert_int_equal(buf_error(out), 0);
    return buf_str(out);
}
/* Runs before the tests of main(): whether the process is the agent's NVML process instead, which
 * has ended with *ret_status. */
static bool is_nvml_process(int argc, char **argv, int *ret_status) {
    static char dir[512];
    ssize_t n = readlink("/proc/self/exe", dir, sizeof(dir) - 1);

    if (argc > 1 && strcmp(argv[1], GPU_WORKER_COMMAND) == 0) {
        *ret_status = gpu_worker_main(argc, argv);
        return true;
    }
    dir[n > 0 ? n : 0] = 0;
    *strrchr(dir, '/') = 0;
    own_dir = dir;
    return false;
}
