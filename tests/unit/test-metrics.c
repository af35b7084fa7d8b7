/* SPDX-License-Identifier: Apache-2.0 */

/* One scrape of the agent: the work that it takes, and each figure under its name. The figures of
 * cards come from a simulated NVML through the monitor. */

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
const struct plugin *__wrap_kubelet_plugin(const struct kubelet *kubelet, size_t i);
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

void __wrap_gpu_monitor_status(const struct gpu_monitor *monitor,
                               struct gpu_monitor_status *ret_status) {
    (void) monitor;
    *ret_status = monitor_status;
}

const struct plugin *__wrap_kubelet_plugin(const struct kubelet *kubelet, size_t i) {
    (void) kubelet;
    return i < resources_count ? (const struct plugin *) &resources[i] : NULL;
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
static int something; /* in place of objects that the functions above know all about */
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
    memset(&health, 0, sizeof(health));
    memset(&prestarts, 0, sizeof(prestarts));
    memset(&slot, 0, sizeof(slot));
    memset(&device, 0, sizeof(device));
    memset(&monitor_status, 0, sizeof(monitor_status));
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

/* Runs the loop until the monitor has the cards of tests/unit/fake-nvml.c. */
static void wait_for_cards(uv_loop_t *loop, const struct gpu_monitor *monitor) {
    struct gpu_monitor_status status;
    bool timed_out = false;
    uv_timer_t timer;

    (void) uv_timer_init(loop, &timer);
    timer.data = &timed_out;
    (void) uv_timer_start(&timer, on_timeout, TIMEOUT_MS, 0);
    while (__real_gpu_monitor_snapshot(monitor)->ndevices < 2 && !timed_out)
        (void) uv_run(loop, UV_RUN_ONCE);
    if (timed_out) {
        __real_gpu_monitor_status(monitor, &status);
        fail_msg("no cards from NVML within %u ms: %s", TIMEOUT_MS, status.text);
    }
    uv_close((uv_handle_t *) &timer, NULL);
    (void) uv_run(loop, UV_RUN_NOWAIT);
}

/* Leaves in `snapshot` what the monitor makes of tests/unit/fake-nvml.c with that fault. */
static void read_nvml(const char *fault) {
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
    wait_for_cards(&loop, monitor);
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

/* ---- each figure under its name ---- */

static const struct expected full[] = {
    {"aliquot_gpu_healthy", "1"},
    {"aliquot_gpu_memory_total_bytes", "85899345920"},
    {"aliquot_gpu_memory_used_bytes", "1073741824"},
    {"aliquot_gpu_memory_granted_bytes", "11000"},
    {"aliquot_gpu_memory_capacity_bytes", "128849018880"},
    {"aliquot_gpu_memory_physical_granted_bytes", "12000"},
    {"aliquot_gpu_memory_outside_bytes", "13000"},
    {"aliquot_gpu_memory_unattributed_bytes", "14000"},
    {"aliquot_gpu_core_granted_percent", "55"},
    {"aliquot_gpu_utilization_percent", "37"},
    {"aliquot_gpu_mps_ready", "1"},
    {"aliquot_gpu_mps_restarts_total", "38"},
    {"aliquot_gpu_state", "1"},
    {"aliquot_gpu_xid_total", "3"},
    {"aliquot_gpu_resets_total", "4"},
    {"aliquot_container_memory_limit_bytes", "21000"},
    {"aliquot_container_memory_used_bytes", "22000"},
    {"aliquot_container_memory_driver_bytes", "23000"},
    {"aliquot_container_memory_overhead_bytes", "24000"},
    {"aliquot_container_memory_charged_bytes", "25000"},
    {"aliquot_container_memory_physical_bytes", "26000"},
    {"aliquot_container_memory_overuse", "1"},
    {"aliquot_container_unlimited_processes", "27"},
    {"aliquot_container_core_limit_percent", "28"},
    {"aliquot_container_utilization_percent", "29"},
    {"aliquot_container_processes", "30"},
    {"aliquot_container_memory_refused_total", "31"},
    {"aliquot_container_ledger_damaged", "0"},
    {"aliquot_container_gpu_seconds_total", "1.5"},
    {"aliquot_container_throttled_seconds_total", "2.5"},
    {"aliquot_container_launches_total", "32"},
    {"aliquot_container_gpu_share_ratio", "0.25"},
    {"aliquot_container_gpu_entitled_ratio", "0.75"},
    {"aliquot_container_gpu_share_error_ratio", "-0.5"},
    {"aliquot_container_gpu_wanted", "1"},
    {"aliquot_container_account_damaged", "0"},
    {"aliquot_container_gpu_driver_seconds_total", "3.5"},
    {"aliquot_container_gpu_time_overuse", "0"},
    {"aliquot_container_compute_policy_info", "1"},
    {"aliquot_agent_registered", "1"},
    {"aliquot_agent_registrations_total", "33"},
    {"aliquot_agent_register_seconds", "4.5"},
    {"aliquot_agent_allocate_seconds", "5.5"},
    {"aliquot_gpu_instance_healthy", "1"},
    {"aliquot_gpu_instance_memory_total_bytes", "61000"},
    {"aliquot_gpu_instance_memory_used_bytes", "62000"},
    {"aliquot_gpu_instance_utilization_percent", "63"},
    {"aliquot_gpu_nvlinks_active", "17"},
    {"aliquot_container_exclusive_cpus", "81"},
    {"aliquot_container_cpus_on_other_numa_node", "82"},
    {"aliquot_agent_podresources_differences", "83"},
    {"aliquot_agent_devices_of_other_plugins", "1"},
    {"aliquot_agent_podresources_failed_total", "84"},
    {"aliquot_agent_driver_answering", "1"},
    {"aliquot_agent_nvml_restarts_total", "41"},
    {"aliquot_agent_nvml_hangs_total", "42"},
    {"aliquot_agent_api_synced", "0"},
    {"aliquot_agent_slots", "1"},
    {"aliquot_agent_prestart_waiting", "43"},
    {"aliquot_agent_reclaimed_total", "44"},
    {"aliquot_agent_overuse_total", "45"},
    {"aliquot_agent_overuse_stopped_total", "46"},
    {"aliquot_agent_driver_limits_left_total", "47"},
    {"aliquot_agent_events_written_total", "48"},
    {"aliquot_agent_events_failed_total", "49"},
    {"aliquot_agent_events_dropped_total", "50"},
    {"aliquot_agent_arbiter_cpu_seconds_total", "2.25"},
    {"aliquot_agent_arbiter_decisions_total", "7001"},
    {"process_resident_memory_bytes", "8192000"},
    {"aliquot_agent_prestart_total", "51"},
    {"aliquot_agent_info", "1"},
    {"DCGM_FI_DEV_GPU_UTIL", "37"},
    {"DCGM_FI_DEV_MEM_COPY_UTIL", "23"},
    {"DCGM_FI_DEV_FB_USED", "1024"},
    {"DCGM_FI_DEV_FB_FREE", "80896"},
    {"DCGM_FI_DEV_FB_RESERVED", "512"},
    {"DCGM_FI_DEV_ENC_UTIL", "41"},
    {"DCGM_FI_DEV_DEC_UTIL", "43"},
    {"DCGM_FI_DEV_MEMORY_TEMP", "82"},
    {"DCGM_FI_DEV_GPU_TEMP", "61"},
    {"DCGM_FI_DEV_POWER_USAGE", "312"},
    {"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "83"},
    {"DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "94"},
    {"DCGM_FI_DEV_XID_ERRORS", "13"},
    {"DCGM_FI_DEV_SM_CLOCK", "1410"},
    {"DCGM_FI_DEV_MEM_CLOCK", "2619"},
    {"DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "3"},
    {"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "0"},
    {"DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", "5"},
    {"DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "6"},
    {"DCGM_FI_DEV_RETIRED_SBE", "29"},
    {"DCGM_FI_DEV_RETIRED_DBE", "30"},
    {"DCGM_FI_DEV_RETIRED_PENDING", "31"},
    {"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "143"},
    {"DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "142"},
    {"DCGM_FI_DEV_ROW_REMAP_FAILURE", "0"},
    {"DCGM_FI_DEV_ROW_REMAP_PENDING", "144"},
    {"DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_MAX", "651"},
    {"DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_HIGH", "652"},
    {"DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_PARTIAL", "653"},
    {"DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_LOW", "654"},
    {"DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_NONE", "655"},
    {"DCGM_FI_DEV_THRESHOLD_SRM", "1"},
    {"DCGM_FI_DEV_VGPU_LICENSE_STATUS", "1"},
};

static uint32_t no_holders(const char *uuid, void *userdata) {
    (void) uuid, (void) userdata;
    return 0;
}

static void judge_all(void) {
    for (uint32_t i = 0; i < snapshot.ndevices; i++)
        health_cards_judge(&health, &snapshot.devices[i]);
}

/* NVML has reported two XIDs 13 of card 0, the kernel's log one more. */
static void fill_health(void) {
    const struct health_cards_options options = {
        .rules = &health_defaults, .state_dir = "/nowhere", .holders = no_holders};
    const struct gpu_xid by_nvml = {.uuid = "GPU-fake-0", .gi = GPU_NOT_TOLD, .xid = 13};
    const struct kmsg_xid by_log = {.gi = KMSG_WHOLE_CARD, .ci = KMSG_WHOLE_CARD, .xid = 13};

    health_cards_start(&health, &options);
    text_copy(snapshot.devices[0].pci, sizeof(snapshot.devices[0].pci), "00000000:00:00.0");
    judge_all();
    for (int i = 0; i < 2; i++)
        assert_false(health_cards_xid(&health, &by_nvml));
    for (int i = 0; i < 3; i++)
        assert_false(health_cards_log(&health, &by_log));
    snapshot.devices[0].pci[0] = 0;
    for (int i = 0; i < 4; i++)
        health_cards_count_reset(&health, "GPU-fake-0", RESET_SUCCEEDED);
}

static void fill_card(void) {
    fill_health();
    shares.options.memory_scaling = 1500;
    granted = (struct slot_total){.memory = 11000, .physical = 12000, .core = 55};
    shares.mps = (void *) &something;
    audit.initial_pids = true;
    audit.outside[0] = 13000;
    audit.audits[0].memory.bytes = 14000;
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

static void fill_container(void) {
    add_container();
    slot.compute = (void *) &something;
    slot.grant.terms.memory_limit = 21000;
    slot.grant.terms.policy = SHARE_BURST;
    device.memory = 90000;
    device.physical = 26000;
    device.core = 28;
    device.driver_memory = 23000;
    device.driver_percent = 29;
    device.driver_processes = 30;
    device.driver_time = 3500000000;
    device.overhead.bytes = 24000;
    device.charged = 25000;
    device.bypassing = 27;
    device.memory_audit.state = AUDIT_MEMORY_OVER;
    usage.booked[0] = 22000;
    usage.refused[0] = 31;
    view = (struct arbiter_view){
        .usage = {.charged = 1500000000, .waited = 2500000000, .launches = 32},
        .taken = RATE_WHOLE / 4,
        .entitled = RATE_WHOLE / 4 * 3,
        .active = true,
    };
}

static void fill_cpus(void) {
    static const struct cross_check_other other = {.uuid = "GPU-fake-0"};
    static const struct cross_check_cpus cpus = {.namespace = "team",
                                                 .pod = "pod",
                                                 .container = "main",
                                                 .uuid = "GPU-fake-0",
                                                 .exclusive = 81,
                                                 .elsewhere = 82};

    buf_append(&cross_check.cpus, &cpus, sizeof(cpus));
    buf_append(&cross_check.others, &other, sizeof(other));
    cross_check.differences = 83;
    cross_check.failed = 84;
}

static void fill_agent(void) {
    static const struct event_writer_stats written = {.written = 48, .failed = 49, .dropped = 50};

    monitor_status = (struct gpu_monitor_status){.answering = true, .restarts = 41, .hangs = 42};
    stats_of_plugin = (struct plugin_stats){.registered = true,
                                            .registrations = 33,
                                            .register_ns = 4500000000,
                                            .allocate = {.sum_ns = 5500000000}};
    prestarts.list = (void *) &something;
    prestarts.granted = 51;
    prestarts.refused = 52;
    audit.reclaimed = 44;
    audit.overuse_found = 45;
    audit.overuse_stopped = 46;
    shares.driver_limits.left = 47;
    shares.arbiter = (void *) &something;
    shares.events.writer = (void *) &something;
    events = &written;
}

static const char *page(struct buf *out) {
    buf_reset(out);
    metrics_write(&report, PROM_TEXT, out);
    assert_int_equal(buf_error(out), 0);
    return buf_str(out);
}

static void test_each_figure_under_its_name(void **state) {
    _cleanup_buf_ struct buf out = BUF_INIT((size_t) 1 << 20);

    (void) state;
    read_nvml("vgpu");
    fill_card();
    fill_instance();
    fill_container();
    fill_cpus();
    fill_agent();
    assert_page(page(&out), agent_vocabularies, agent_vocabularies_count, full,
                sizeof(full) / sizeof(full[0]));
    assert_int_equal(gathered, resources_count);
    assert_int_equal(page_samples(buf_str(&out), "aliquot_agent_prestart_total", "52"), 1);
    assert_int_equal(page_samples(buf_str(&out), "aliquot_gpu_state", "1"), snapshot.ndevices);
    assert_int_equal(page_samples(buf_str(&out), "aliquot_gpu_state", "0"),
                     (HEALTH_STATES - 1) * snapshot.ndevices);
    /* Those that are 0 or 1, the other way round. */
    device.compute_audit.over = true;
    device.memory_audit.state = AUDIT_MEMORY_OVER + 1;
    view.active = false;
    monitor_status.answering = false;
    synced = true;
    (void) page(&out);
    assert_int_equal(page_samples(buf_str(&out), "aliquot_container_gpu_time_overuse", "1"), 1);
    assert_int_equal(page_samples(buf_str(&out), "aliquot_container_memory_overuse", "0"), 1);
    assert_int_equal(page_samples(buf_str(&out), "aliquot_container_gpu_wanted", "0"), 1);
    assert_int_equal(page_samples(buf_str(&out), "aliquot_container_gpu_share_error_ratio", "0"),
                     1);
    assert_int_equal(page_samples(buf_str(&out), "aliquot_agent_driver_answering", "0"), 1);
    assert_int_equal(page_samples(buf_str(&out), "aliquot_agent_api_synced", "1"), 1);
    view.damaged = true;
    (void) page(&out);
    assert_int_equal(page_samples(buf_str(&out), "aliquot_container_account_damaged", "1"), 1);
    assert_int_equal(page_samples(buf_str(&out), "aliquot_container_ledger_damaged", "0"), 1);
    assert_int_equal(page_samples(buf_str(&out), "aliquot_container_launches_total", NULL), 0);
}

static void test_labels(void **state) {
    _cleanup_buf_ struct buf out = BUF_INIT((size_t) 1 << 20);

    (void) state;
    read_nvml("none");
    fill_health();
    fill_container();
    (void) page(&out);
    assert_non_null(strstr(buf_str(&out), "\naliquot_gpu_healthy{node=\"node-a\",gpu=\"1\","
                                          "uuid=\"GPU-fake-1\",model=\"Fake\"} 1\n"));
    assert_non_null(strstr(buf_str(&out),
                           "\naliquot_gpu_state{node=\"node-a\",gpu=\"1\",uuid=\"GPU-"
                           "fake-1\",state=\"Healthy\"} 1\n"));
    assert_non_null(strstr(buf_str(&out),
                           "\naliquot_gpu_xid_total{node=\"node-a\",gpu=\"0\",uuid=\""
                           "GPU-fake-0\",xid=\"13\"} 3\n"));
    assert_non_null(strstr(buf_str(&out),
                           "\nDCGM_FI_DEV_GPU_TEMP{gpu=\"1\",UUID=\"GPU-fake-1\",pci_bus_id=\"\","
                           "device=\"nvidia1\",modelName=\"Fake\",Hostname=\"node-a\","
                           "hostname=\"node-a\",DCGM_FI_DRIVER_VERSION=\"\"} 61\n"));
    assert_non_null(strstr(
        buf_str(&out), "\naliquot_container_memory_limit_bytes{node=\"node-a\",namespace=\"team\","
                       "pod=\"pod\",pod_uid=\"\",container=\"main\",gpu=\"0\","
                       "uuid=\"GPU-fake-0\"} 21000\n"));
    assert_non_null(strstr(buf_str(&out), "container=\"main\",gpu=\"0\",uuid=\"GPU-fake-0\","
                                          "policy=\"burst\"} 1\n"));
}

/* No figure that cannot be had is 0: of an unhealthy card, of files that cannot be read, of what
 * has not happened yet. */
static void test_figures_that_are_absent(void **state) {
    _cleanup_buf_ struct buf out = BUF_INIT((size_t) 1 << 20);

    (void) state;
    add_container();
    text_copy(device.uuid, sizeof(device.uuid), "GPU-a");
    usage.damaged = no_statm = true;
    assert_absent(page(&out), agent_vocabularies, agent_vocabularies_count);
    assert_int_equal(page_samples(buf_str(&out), "aliquot_gpu_healthy", "0"), CARDS);
    assert_int_equal(page_samples(buf_str(&out), "aliquot_container_ledger_damaged", "1"), 1);
    assert_int_equal(page_samples(buf_str(&out), "aliquot_container_account_damaged", "0"), 1);
}

/* A driver without these figures leaves them out and no others. */
static void test_a_driver_without_figures_of_load(void **state) {
    static const char *const silent[] = {
        "aliquot_gpu_utilization_percent",
        "DCGM_FI_DEV_GPU_UTIL",
        "DCGM_FI_DEV_MEM_COPY_UTIL",
        "DCGM_FI_DEV_GPU_TEMP",
        "DCGM_FI_DEV_POWER_USAGE",
        "DCGM_FI_DEV_SM_CLOCK",
        "DCGM_FI_DEV_MEM_CLOCK",
        "DCGM_FI_DEV_ENC_UTIL",
        "DCGM_FI_DEV_DEC_UTIL",
    };
    _cleanup_buf_ struct buf out = BUF_INIT((size_t) 1 << 20);

    (void) state;
    read_nvml("silent-load");
    (void) page(&out);
    for (size_t i = 0; i < sizeof(silent) / sizeof(silent[0]); i++)
        assert_int_equal(page_samples(buf_str(&out), silent[i], NULL), 0);
    assert_int_equal(page_samples(buf_str(&out), "aliquot_gpu_healthy", "1"), 2);
    assert_int_equal(page_samples(buf_str(&out), "DCGM_FI_DEV_FB_USED", "1024"), 2);
}

/* ---- the work of a scrape ---- */

/* What walks all pairs of shares runs once for each card. */
static void test_one_walk_for_each_card(void **state) {
    _cleanup_buf_ struct buf out = BUF_INIT((size_t) 1 << 20);
    (void) state;
    metrics_write(&report, PROM_TEXT, &out);
    assert_int_equal(buf_error(&out), 0);
    assert_non_null(strstr(buf_str(&out), "aliquot_gpu_memory_granted_bytes{"));
    assert_non_null(strstr(buf_str(&out), "uuid=\"GPU-c\""));
    assert_int_equal(walks, CARDS);
}

static int no_connection(void *context, const char *method, const char *path,
                         const char *content_type, const char *body, size_t size,
                         unsigned timeout_ms, kube_response_cb on_response, void *userdata,
                         struct err *err) {
    (void) context, (void) method, (void) path, (void) content_type, (void) body, (void) size;
    (void) timeout_ms, (void) on_response, (void) userdata, (void) err;
    return -ENOTCONN;
}

/* There is room for one: the second takes the place of the first. */
static void test_events_that_were_dropped(void **state) {
    const struct event_writer_options options = {
        .component = "test", .request = no_connection, .objects_max = 1};
    struct event e = {.namespace = "n",
                      .name = "p",
                      .uid = "u1",
                      .api_version = "v1",
                      .kind = "Pod",
                      .reason = "R",
                      .message = "m"};
    _cleanup_buf_ struct buf out = BUF_INIT((size_t) 1 << 20);
    (void) state;
    shares.events.writer = event_writer_new(&options);
    assert_non_null(shares.events.writer);
    event_writer_note(shares.events.writer, &e, 0, false, 1000);
    e.uid = "u2";
    event_writer_note(shares.events.writer, &e, 0, false, 1000);
    metrics_write(&report, PROM_TEXT, &out);
    assert_non_null(strstr(buf_str(&out), "\naliquot_agent_events_dropped_total 1\n"));
    assert_non_null(strstr(buf_str(&out), "\naliquot_agent_events_written_total 0\n"));
    assert_non_null(strstr(buf_str(&out), "\naliquot_agent_events_failed_total 1\n"));
    event_writer_free(shares.events.writer);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        T(test_each_figure_under_its_name), T(test_labels),
        T(test_figures_that_are_absent),    T(test_a_driver_without_figures_of_load),
        T(test_one_walk_for_each_card),     T(test_events_that_were_dropped),
    };
    static char dir[512];
    ssize_t n;

    if (argc > 1 && strcmp(argv[1], GPU_WORKER_COMMAND) == 0)
        return gpu_worker_main(argc, argv);
    n = readlink("/proc/self/exe", dir, sizeof(dir) - 1);
    if (n <= 0)
        return 1;
    dir[n] = 0;
    *strrchr(dir, '/') = 0;
    own_dir = dir;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
