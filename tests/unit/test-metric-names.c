/* SPDX-License-Identifier: Apache-2.0 */

/* --metric-names: the choice of vocabularies, and what containers and cards are under the names of
 * other projects. */

#include "metrics-world.h"

static void test_chosen_names(void **state) {
    static const char *const bad[] = {"", ",", "hamy", "dcgm,hami-", "Aliquot", " dcgm"};
    uint32_t names = 0;
    struct err err;

    (void) state;
    assert_int_equal(metric_names_parse("gpu-manager,aliquot,aliquot", &names, &err), 0);
    assert_int_equal(names, 1 | 1 << 4);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(metric_names_parse(bad[i], &names, &err), -EINVAL);
        assert_non_null(strstr(err.text, ": aliquot, dcgm, hami, hami-legacy, gpu-manager"));
    }
    assert_non_null(strstr(err.text, "' dcgm' is none"));
    assert_int_equal(names, 1 | 1 << 4);
}

static bool has_family(const char *page, const char *name) {
    char line[128];

    (void) snprintf(line, sizeof(line), "# TYPE %s ", name);
    return strstr(page, line) != NULL;
}

static void test_each_choice_of_names(void **state) {
    _cleanup_buf_ struct buf out = BUF_INIT((size_t) 1 << 20);

    (void) state;
    for (size_t chosen = 0; chosen < agent_vocabularies_count; chosen++) {
        report.metric_names = 1u << chosen;
        (void) page(&out);
        for (size_t v = 0; v < agent_vocabularies_count; v++)
            for (size_t i = 0; i < agent_vocabularies[v]->nmetrics; i++)
                assert_int_equal(has_family(buf_str(&out), agent_vocabularies[v]->metrics[i].name),
                                 v == chosen);
    }
}

#define IN_TEAM(index, uuid)                                                                       \
    "namespace=\"team\",pod=\"pod\",container=\"main\",vdevice_index=\"" index                     \
    "\",device_uuid=\"" uuid "\""
#define BY_MANAGER "pod_name=\"pod\",namespace=\"team\",node=\"node-a\",container_name=\"main\""

/* A container with a card, an instance of it, whose load is not known, and another card. The pod
 * has the name of one that has ended. */
static void test_containers_under_other_names(void **state) {
    static const char *const lines[] = {
        "vgpu_memory_used_bytes{" IN_TEAM("0", "GPU-fake-0") "} 1001\n",
        "vgpu_memory_used_bytes{" IN_TEAM("1", "MIG-0") "} 1002\n",
        "vgpu_memory_used_bytes{" IN_TEAM("2", "GPU-fake-1") "} 1003\n",
        "container_device_utilization_ratio{" IN_TEAM("0", "GPU-fake-0") "} 10\n",
        "container_device_utilization_ratio{" IN_TEAM("2", "GPU-fake-1") "} 30\n",
        "container_gpu_utilization{" BY_MANAGER ",gpu=\"gpu1\"} 30\n",
        "container_gpu_memory_total{" BY_MANAGER ",gpu_memory=\"gpu0\"} 30\n",
        "container_gpu_memory_total{" BY_MANAGER ",gpu_memory=\"gpu1\"} 30\n",
        "container_gpu_memory_total{" BY_MANAGER ",gpu_memory=\"total\"} 60\n",
        "container_request_gpu_utilization{" BY_MANAGER ",req_of_gpu=\"total\"} 1.5\n",
        "container_request_gpu_memory{" BY_MANAGER ",req_of_gpu_memory=\"total\"} 600\n",
    };
    _cleanup_buf_ struct buf out = BUF_INIT((size_t) 1 << 20);
    struct slot_device three[3], left = {.uuid = "GPU-fake-0"};
    struct slot ended = {.nonce = "e", .releasing = true};

    (void) state;
    read_nvml("none");
    fill_instance();
    snapshot.devices[2].offer = GPU_OFFER_SHARES;
    snapshot.devices[2].mig = (struct gpu_mig){.ci_slices = 3, .card_slices = 7};
    snapshot.devices[2].sample.gpu_percent = GPU_NOT_TOLD;
    add_container();
    memset(three, 0, sizeof(three));
    for (uint32_t i = 0; i < 3; i++) {
        text_copy(three[i].uuid, sizeof(three[i].uuid),
                  i == 0   ? "GPU-fake-0"
                  : i == 1 ? "MIG-0"
                           : "GPU-fake-1");
        three[i].index = i / 2;
        three[i].core = 50;
        three[i].memory = 200 << 20;
        three[i].driver_memory = (10 + 10 * (uint64_t) i) << 20;
        three[i].driver_percent = 10 + 10 * i;
        usage.booked[i] = 1001 + i;
    }
    slot.grant.devices = three;
    slot.grant.ndevices = 3;
    ended.grant = slot.grant;
    ended.grant.devices = &left;
    ended.grant.ndevices = 1;
    HASH_ADD_STR(shares.slots.slots, nonce, &ended);
    (void) page(&out);
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        if (!strstr(buf_str(&out), lines[i]))
            fail_msg("the page has no %s", lines[i]);
    assert_int_equal(page_samples(buf_str(&out), "aliquot_container_memory_used_bytes", NULL), 4);
    assert_int_equal(page_samples(buf_str(&out), "hami_vgpu_memory_used_bytes", NULL), 3);
    assert_int_equal(page_samples(buf_str(&out), "hami_container_device_utilization_ratio", NULL),
                     2);
    assert_int_equal(page_samples(buf_str(&out), "container_gpu_utilization", NULL), 1);
    assert_int_equal(page_samples(buf_str(&out), "container_gpu_memory_total", NULL), 3);
    assert_int_equal(page_samples(buf_str(&out), "container_request_gpu_memory", NULL), 1);
    assert_int_equal(page_samples(buf_str(&out), "container_request_gpu_utilization", NULL), 1);
}

static void test_time_since_the_last_launch(void **state) {
    _cleanup_buf_ struct buf out = BUF_INIT((size_t) 1 << 20);
    double ago;

    (void) state;
    read_nvml("none");
    add_container();
    slot.compute = (void *) &view;
    view.launched = clock_ns(CLOCK_REALTIME) - 100500000000;
    ago = page_sum(page(&out), "hami_container_last_kernel_elapsed_seconds");
    assert_true(ago >= 100.5 && ago < 160);
    view.launched = 0;
    (void) page(&out);
    assert_int_equal(
        page_samples(buf_str(&out), "hami_container_last_kernel_elapsed_seconds", NULL), 0);
    assert_int_equal(
        page_samples(buf_str(&out), "aliquot_container_last_launch_timestamp_seconds", NULL), 0);
}

/* A card that a container has whole, and one without a container. */
static void test_cards_under_other_names(void **state) {
    static const char card[] = "node=\"node-a\",device_uuid=\"GPU-fake-1\",device_index=\"1\"";
    static struct slot_whole whole = {.uuid = "GPU-fake-1"};
    _cleanup_buf_ struct buf out = BUF_INIT((size_t) 1 << 20);
    char line[256];

    (void) state;
    read_nvml("none");
    add_container();
    text_copy(slot.grant.pod_uid, sizeof(slot.grant.pod_uid), "u");
    slot.grant.ndevices = 0;
    slot.grant.whole = &whole;
    slot.grant.nwhole = 1;
    (void) page(&out);
    (void) snprintf(line, sizeof(line),
                    "\nhami_gpu_memory_allocated_bytes{%s,device_cores=\"100\",device_type="
                    "\"NVIDIA-Fake\"} 85899345920\n",
                    card);
    assert_non_null(strstr(buf_str(&out), line));
    (void) snprintf(line, sizeof(line),
                    "\nhami_node_gpu_overview{%s,device_cores=\"100\",device_memory_limit="
                    "\"81920\",device_type=\"NVIDIA-Fake\"} 85899345920\n",
                    card);
    assert_non_null(strstr(buf_str(&out), line));
    assert_int_equal(page_samples(buf_str(&out), "hami_gpu_core_allocated_ratio", "100"), 1);
    assert_int_equal(page_samples(buf_str(&out), "hami_gpu_core_allocated_ratio", "0"), 1);
    assert_int_equal(page_samples(buf_str(&out), "hami_gpu_shared_count", "1"), 1);
    assert_int_equal(page_samples(buf_str(&out), "hami_gpu_shared_count", "0"), 1);
    assert_int_equal(page_samples(buf_str(&out), "nodeGPUMemoryPercentage", "1"), 1);
    text_copy(snapshot.devices[0].model, sizeof(snapshot.devices[0].model), "NVIDIA A100");
    (void) page(&out);
    assert_int_equal(
        page_labelled(buf_str(&out), "HostGPUMemoryUsage", "devicetype=\"NVIDIA-NVIDIA A100\""), 1);
    assert_int_equal(
        page_labelled(buf_str(&out), "GPUDeviceMemoryLimit", "devicetype=\"NVIDIA A100\""), 1);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        T(test_chosen_names),
        T(test_each_choice_of_names),
        T(test_containers_under_other_names),
        T(test_time_since_the_last_launch),
        T(test_cards_under_other_names),
    };
    int status;

    if (is_nvml_process(argc, argv, &status))
        return status;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
