/* SPDX-License-Identifier: Apache-2.0 */

/* One scrape of the agent: the work that it takes, and each figure under its name. */

#include "metrics-world.h"

/* ---- each figure under its name ---- */

static int something; /* in place of objects that the wrapped functions know all about */

static const struct expected full[] = {
    {"aliquot_gpu_healthy", "1"},
    {"aliquot_gpu_call_hangs", "1"},
    {"aliquot_gpu_memory_total_bytes", "85899345920"},
    {"aliquot_gpu_memory_used_bytes", "1073741824"},
    {"aliquot_gpu_memory_granted_bytes", "16106127360"},
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
    {"aliquot_container_memory_peak_bytes", "22500"},
    {"aliquot_container_memory_driver_bytes", "24117248"},
    {"aliquot_container_memory_overhead_bytes", "24000"},
    {"aliquot_container_memory_charged_bytes", "25000"},
    {"aliquot_container_memory_physical_bytes", "26000"},
    {"aliquot_container_memory_overuse", "1"},
    {"aliquot_container_unlimited_processes", "27"},
    {"aliquot_container_core_limit_percent", "25"},
    {"aliquot_container_utilization_percent", "29"},
    {"aliquot_container_processes", "30"},
    {"aliquot_container_memory_refused_total", "31"},
    {"aliquot_container_ledger_damaged", "0"},
    {"aliquot_container_gpu_seconds_total", "1.5"},
    {"aliquot_container_throttled_seconds_total", "2.5"},
    {"aliquot_container_launches_total", "32"},
    {"aliquot_container_last_launch_timestamp_seconds", "4000000000"},
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
    {"aliquot_resource_claim_user_info", "1"},
    {"aliquot_container_exclusive_cpus", "81"},
    {"aliquot_container_cpus_on_other_numa_node", "82"},
    {"aliquot_agent_podresources_differences", "83"},
    {"aliquot_agent_devices_of_other_plugins", "1"},
    {"aliquot_agent_podresources_failed_total", "84"},
    {"aliquot_agent_kubelet_wait_seconds", "6.5"},
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
    {"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "139"},
    {"DCGM_FI_PROF_GR_ENGINE_ACTIVE", "0.03125"},
    {"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "0.15625"},
    {"DCGM_FI_PROF_DRAM_ACTIVE", "0.3125"},
    {"DCGM_FI_PROF_PCIE_TX_BYTES", "65536000"},
    {"DCGM_FI_PROF_PCIE_RX_BYTES", "68812800"},
    {"hami_host_gpu_memory_used_bytes", "1073741824"},
    {"hami_host_gpu_utilization_ratio", "37"},
    {"hami_host_gpu_memory_controller_utilization_ratio", "23"},
    {"hami_gpu_memory_limit_bytes", "128849018880"},
    {"hami_gpu_core_limit_ratio", "100"},
    {"hami_gpu_shared_count", "1"},
    {"hami_gpu_core_allocated_ratio", "110"},
    {"hami_node_gpu_memory_allocated_ratio", "0.25"},
    {"hami_gpu_memory_allocated_bytes", "32212254720"},
    {"hami_node_gpu_overview", "32212254720"},
    {"hami_vgpu_memory_used_bytes", "22000"},
    {"hami_vgpu_memory_limit_bytes", "21000"},
    {"hami_container_device_memory_bytes", "22000"},
    {"hami_container_device_utilization_ratio", "29"},
    {"hami_container_last_kernel_elapsed_seconds", "0"},
    {"HostGPUMemoryUsage", "1073741824"},
    {"HostCoreUtilization", "37"},
    {"GPUDeviceMemoryLimit", "128849018880"},
    {"GPUDeviceCoreLimit", "100"},
    {"GPUDeviceSharedNum", "1"},
    {"GPUDeviceCoreAllocated", "110"},
    {"GPUDeviceMemoryAllocated", "32212254720"},
    {"nodeGPUOverview", "32212254720"},
    {"nodeGPUMemoryPercentage", "0.25"},
    {"vGPU_device_memory_usage_in_bytes", "22000"},
    {"vGPU_device_memory_limit_in_bytes", "21000"},
    {"Device_memory_desc_of_container", "22000"},
    {"Device_utilization_desc_of_container", "29"},
    {"Device_last_kernel_of_container", "0"},
    {"container_gpu_utilization", "29"},
    {"container_gpu_memory_total", "23"},
    {"container_request_gpu_utilization", "0.25"},
    {"container_request_gpu_memory", "300"},
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
    granted = (struct slot_total){.memory = 15ULL << 30, .physical = 12000, .core = 55};
    shares.mps = (void *) &something;
    audit.initial_pids = true;
    audit.outside[0] = 13000;
    audit.audits[0].memory.bytes = 14000;
}

static struct slot_claim claim_of_slot = {.uid = "u-claim", .name = "third"};

static void fill_container(void) {
    add_container();
    slot.compute = (void *) &something;
    slot.grant.terms.memory_limit = 21000;
    slot.grant.terms.policy = SHARE_BURST;
    device.memory = 300 << 20;
    device.physical = 26000;
    device.core = 25;
    device.driver_memory = 23 << 20;
    device.driver_percent = 29;
    device.driver_processes = 30;
    device.driver_time = 3500000000;
    device.overhead.bytes = 24000;
    device.charged = 25000;
    device.bypassing = 27;
    device.memory_audit.state = AUDIT_MEMORY_OVER;
    usage.booked[0] = 22000;
    usage.peak[0] = 22500;
    usage.refused[0] = 31;
    view = (struct arbiter_view){
        .usage = {.charged = 1500000000, .waited = 2500000000, .launches = 32},
        .taken = RATE_WHOLE / 4,
        .entitled = RATE_WHOLE / 4 * 3,
        .launched = 4000000000000000000, /* by a clock that was set back since */
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
    hanging = true;
    stats_of_plugin = (struct plugin_stats){.registered = true,
                                            .registrations = 33,
                                            .register_ns = 4500000000,
                                            .allocate = {.sum_ns = 5500000000}};
    prestarts.list = (void *) &something;
    prestarts.granted = 51;
    prestarts.refused = 52;
    shares.reclaimed = 44;
    audit.overuse_found = 45;
    audit.overuse_stopped = 46;
    shares.driver_limits.left = 47;
    shares.arbiter = (void *) &something;
    shares.events.writer = (void *) &something;
    events = &written;
}

static void test_each_figure_under_its_name(void **state) {
    _cleanup_buf_ struct buf out = BUF_INIT((size_t) 1 << 20);

    (void) state;
    read_nvml_until("vgpu", true);
    fill_card();
    fill_instance();
    fill_container();
    slot.grant.claim = &claim_of_slot;
    fill_cpus();
    fill_agent();
    assert_page(page(&out), agent_vocabularies, agent_vocabularies_count, full,
                sizeof(full) / sizeof(full[0]));
    slot.grant.claim = NULL;
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

/* The share is there once, and each container that uses it has a row. */
static void test_a_share_of_a_claim(void **state) {
    _cleanup_buf_ struct buf other = BUF_INIT((size_t) 1 << 20), out = BUF_INIT((size_t) 1 << 20);

    (void) state;
    read_nvml("none");
    fill_container();
    assert_null(strstr(page(&other), "resource_claim=\""));
    slot.grant.claim = &claim_of_slot;
    assert_non_null(strstr(
        page(&out), "\naliquot_container_memory_limit_bytes{node=\"node-a\",namespace=\"team\","
                    "pod=\"pod\",pod_uid=\"\",container=\"main\",gpu=\"0\","
                    "uuid=\"GPU-fake-0\",resource_claim=\"third\"} 21000\n"));
    assert_non_null(strstr(buf_str(&out),
                           "\naliquot_resource_claim_user_info{node=\"node-a\",namespace=\"team\","
                           "resource_claim=\"third\",resource_claim_uid=\"u-claim\",pod=\"pod\","
                           "pod_uid=\"\",container=\"main\"} 1\n"));
    slot.grant.claim = NULL;
}

static bool has_holder(struct buf *out) {
    return strstr(page(out), "DCGM_FI_DRIVER_VERSION=\"\",namespace=\"team\",pod=\"pod\","
                             "container=\"main\"} 61\n");
}

/* A card is labelled with the container that has it whole, and with none of several. */
static void test_who_has_a_card_whole(void **state) {
    static struct slot_whole whole = {.uuid = "GPU-fake-0"};
    static struct slot_claim claim;
    struct slot_device part = {.uuid = "GPU-fake-0", .core = 50};
    struct slot second = {.nonce = "m", .grant = {.devices = &part, .ndevices = 1}};
    _cleanup_buf_ struct buf out = BUF_INIT((size_t) 1 << 20);

    (void) state;
    read_nvml("none");
    fill_container();
    assert_false(has_holder(&out));
    device.core = 100;
    slot.grant.claim = &claim;
    assert_false(has_holder(&out));
    slot.grant.claim = NULL;
    assert_true(has_holder(&out));
    slot.grant.ndevices = 0;
    slot.grant.whole = &whole;
    slot.grant.nwhole = 1;
    assert_true(has_holder(&out));
    assert_null(strstr(buf_str(&out), "\nDCGM_FI_DEV_GPU_TEMP{gpu=\"1\",UUID=\"GPU-fake-1\","
                                      "pci_bus_id=\"\",device=\"nvidia1\",modelName=\"Fake\","
                                      "Hostname=\"node-a\",hostname=\"node-a\","
                                      "DCGM_FI_DRIVER_VERSION=\"\",namespace"));
    HASH_ADD_STR(shares.slots.slots, nonce, &second);
    assert_false(has_holder(&out));
    HASH_DEL(shares.slots.slots, &second);
}

/* No figure that cannot be had is 0: of an unhealthy card, of files that cannot be read, of what
 * has not happened yet. */
static void test_figures_that_are_absent(void **state) {
    _cleanup_buf_ struct buf out = BUF_INIT((size_t) 1 << 20);

    (void) state;
    add_container();
    text_copy(device.uuid, sizeof(device.uuid), "GPU-a");
    snapshot.devices[0].sample.loads_untold = snapshot.devices[0].sample.memory_untold = 1;
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
    assert_int_equal(metric_names_parse(METRIC_NAMES_DEFAULT, &report.metric_names, NULL), 0);
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
        T(test_who_has_a_card_whole),       T(test_a_share_of_a_claim),
        T(test_figures_that_are_absent),    T(test_a_driver_without_figures_of_load),
        T(test_one_walk_for_each_card),     T(test_events_that_were_dropped),
    };
    int status;

    if (is_nvml_process(argc, argv, &status))
        return status;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
