/* SPDX-License-Identifier: Apache-2.0 */

/* Rates between two readings of NVML's counters. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "gpu/nvml/rates.h"

#define CARD ((nvmlDevice_t) (uintptr_t) 1)
#define ALL_LINKS UINT32_MAX
#define MIB (1ULL << 20)

/* ---- the clock and NVML ---- */

static time_t now_s;
static long now_ns;

int __wrap_clock_gettime(clockid_t clock, struct timespec *ts);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ts) {
    (void) clock;
    *ts = (struct timespec){.tv_sec = now_s, .tv_nsec = now_ns};
    return 0;
}

static struct {
    bool supported, fails, has_links;
    unsigned int allocated, taken, compared;
    double graphics, pcie;       /* what the metrics say */
    nvmlReturn_t tensor;         /* the result of this metric */
    unsigned long long kib, us;  /* of the links' counters, in each direction */
    unsigned int gi;             /* of the last sample */
    nvmlGpmSample_t last, older; /* the buffers that were filled */
} driver;

static nvmlReturn_t query(nvmlDevice_t device, nvmlGpmSupport_t *support) {
    assert_ptr_equal(device, CARD);
    assert_int_equal(support->version, 1);
    support->isSupportedDevice = driver.supported;
    return NVML_SUCCESS;
}

static nvmlReturn_t alloc_sample(nvmlGpmSample_t *sample) {
    *sample = (nvmlGpmSample_t) (uintptr_t) (0x1000 + ++driver.allocated);
    return NVML_SUCCESS;
}

static nvmlReturn_t fill(nvmlGpmSample_t sample, unsigned int gi) {
    if (driver.fails)
        return NVML_ERROR_UNKNOWN;
    driver.gi = gi;
    driver.older = driver.last;
    driver.last = sample;
    driver.taken++;
    return NVML_SUCCESS;
}

static nvmlReturn_t get_sample(nvmlDevice_t device, nvmlGpmSample_t sample) {
    assert_ptr_equal(device, CARD);
    return fill(sample, NVML_NO_INSTANCE);
}

static nvmlReturn_t get_mig_sample(nvmlDevice_t device, unsigned int gi, nvmlGpmSample_t sample) {
    assert_ptr_equal(device, CARD);
    return fill(sample, gi);
}

static nvmlReturn_t get_metrics(nvmlGpmMetricsGet_t *get) {
    assert_int_equal(get->version, 1);
    assert_ptr_equal(get->sample2, driver.last);
    assert_ptr_equal(get->sample1, driver.older);
    driver.compared++;
    for (unsigned int i = 0; i < get->numMetrics; i++) {
        nvmlGpmMetric_t *m = &get->metrics[i];

        m->nvmlReturn = NVML_SUCCESS;
        m->value = m->metricId == NVML_GPM_METRIC_GRAPHICS_UTIL     ? driver.graphics
                   : m->metricId == NVML_GPM_METRIC_DRAM_BW_UTIL    ? 12.5
                   : m->metricId == NVML_GPM_METRIC_ANY_TENSOR_UTIL ? 25
                   : m->metricId == NVML_GPM_METRIC_PCIE_TX_PER_SEC ? driver.pcie
                                                                    : 3;
        if (m->metricId == NVML_GPM_METRIC_ANY_TENSOR_UTIL)
            m->nvmlReturn = driver.tensor;
    }
    return NVML_SUCCESS;
}

static nvmlReturn_t get_fields(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
    assert_ptr_equal(device, CARD);
    for (int i = 0; i < count; i++) {
        assert_true(values[i].scopeId == ALL_LINKS);
        values[i].nvmlReturn = driver.has_links ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
        values[i].valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
        values[i].value.ullVal = driver.kib;
        values[i].timestamp = (long long) driver.us;
    }
    return NVML_SUCCESS;
}

static struct nvml nvml;
static struct gpu_rates rates;

static int setup(void **state) {
    (void) state;
    now_s = 1000;
    now_ns = 0;
    memset(&driver, 0, sizeof(driver));
    memset(&rates, 0, sizeof(rates));
    driver.supported = driver.has_links = true;
    driver.graphics = 50;
    driver.kib = 1000;
    driver.us = 5000000;
    nvml = (struct nvml){.nvmlGpmQueryDeviceSupport = query,
                         .nvmlGpmSampleAlloc = alloc_sample,
                         .nvmlGpmSampleGet = get_sample,
                         .nvmlGpmMigSampleGet = get_mig_sample,
                         .nvmlGpmMetricsGet = get_metrics,
                         .nvmlDeviceGetFieldValues = get_fields};
    return 0;
}

/* A poll that many milliseconds after the one before. */
static struct gpu_sample poll_after(unsigned int ms, unsigned int gi, const char *uuid) {
    struct gpu_sample ret;

    now_s += ms / 1000;
    now_ns += (long) (ms % 1000) * 1000000;
    if (now_ns >= 1000000000) {
        now_s++;
        now_ns -= 1000000000;
    }
    memset(&ret, 0xff, sizeof(ret));
    ret.temperature = 61;
    gpu_rates_read(&nvml, CARD, gi, uuid, &rates, &ret);
    assert_int_equal(ret.temperature, 61);
    return ret;
}

static struct gpu_sample poll_card(unsigned int ms) {
    return poll_after(ms, NVML_NO_INSTANCE, "GPU-1");
}

static void assert_not_told(const struct gpu_sample *s) {
    assert_int_equal(s->rates.graphics_ppm, GPU_NOT_TOLD);
    assert_int_equal(s->rates.tensor_ppm, GPU_NOT_TOLD);
    assert_int_equal(s->rates.dram_ppm, GPU_NOT_TOLD);
    assert_true(s->rates.pcie_tx == UINT64_MAX && s->rates.pcie_rx == UINT64_MAX);
}

/* ---- tests ---- */

static void two_readings(void **state) {
    struct gpu_sample s = poll_card(0);

    (void) state;
    assert_not_told(&s);
    assert_true(s.rates.nvlink == UINT64_MAX);
    driver.kib += 4096;
    driver.us += 2000000;
    driver.pcie = 1.5;
    s = poll_card(1000);
    assert_int_equal(s.rates.graphics_ppm, 500000);
    assert_int_equal(s.rates.tensor_ppm, 250000);
    assert_int_equal(s.rates.dram_ppm, 125000);
    assert_true(s.rates.pcie_tx == MIB * 3 / 2 && s.rates.pcie_rx == 3 * MIB);
    /* Both directions, in two seconds. */
    assert_true(s.rates.nvlink == 4096 * 2 * 1024 / 2);
    /* Two buffers, whose order changes each time, which get_metrics() checks. */
    (void) poll_card(1000);
    (void) poll_card(1000);
    assert_int_equal(driver.compared, 3);
    assert_int_equal(driver.allocated, 2);
}

/* NVML cannot compare samples that are close together: the rates of a moment ago stand. */
static void polls_that_are_close_together(void **state) {
    struct gpu_sample s;

    (void) state;
    (void) poll_card(0);
    (void) poll_card(1000);
    driver.graphics = 70;
    s = poll_card(99);
    assert_int_equal(s.rates.graphics_ppm, 500000);
    assert_int_equal(driver.taken, 2);
    s = poll_card(900);
    assert_int_equal(s.rates.graphics_ppm, 700000);
    assert_int_equal(driver.taken, 3);
}

static void what_the_driver_does_not_know(void **state) {
    struct gpu_sample s;

    (void) state;
    driver.tensor = NVML_ERROR_NOT_SUPPORTED;
    driver.graphics = NAN;
    driver.pcie = -1;
    driver.has_links = false;
    (void) poll_card(0);
    s = poll_card(1000);
    assert_int_equal(s.rates.graphics_ppm, GPU_NOT_TOLD);
    assert_int_equal(s.rates.tensor_ppm, GPU_NOT_TOLD);
    assert_int_equal(s.rates.dram_ppm, 125000);
    assert_true(s.rates.pcie_tx == UINT64_MAX && s.rates.pcie_rx == 3 * MIB &&
                s.rates.nvlink == UINT64_MAX);
    driver.graphics = 100.5;
    s = poll_card(1000);
    assert_int_equal(s.rates.graphics_ppm, GPU_NOT_TOLD);
}

static void cards_before_hopper(void **state) {
    struct gpu_sample s;

    (void) state;
    driver.supported = false;
    (void) poll_card(0);
    s = poll_card(1000);
    assert_not_told(&s);
    assert_int_equal(driver.allocated, 0);
}

static void drivers_without_the_functions(void **state) {
    struct gpu_sample s;

    (void) state;
    nvml = (struct nvml){NULL};
    (void) poll_card(0);
    s = poll_card(1000);
    assert_not_told(&s);
    assert_true(s.rates.nvlink == UINT64_MAX);
}

/* After a sample that failed, two are needed again. */
static void a_sample_that_fails(void **state) {
    struct gpu_sample s;

    (void) state;
    (void) poll_card(0);
    driver.fails = true;
    s = poll_card(1000);
    assert_not_told(&s);
    driver.fails = false;
    s = poll_card(1000);
    assert_not_told(&s);
    s = poll_card(1000);
    assert_int_equal(s.rates.graphics_ppm, 500000);
}

/* The card was reset, the driver's clock was set back, or it counts wrongly. */
static void counters_that_jump(void **state) {
    struct gpu_sample s;

    (void) state;
    (void) poll_card(0);
    driver.kib = 10;
    driver.us += 1000000;
    s = poll_card(1000);
    assert_true(s.rates.nvlink == UINT64_MAX);
    driver.kib = 20;
    driver.us -= 3000000;
    s = poll_card(1000);
    assert_true(s.rates.nvlink == UINT64_MAX);
    driver.kib = 30;
    driver.us += 1000000;
    s = poll_card(1000);
    assert_true(s.rates.nvlink == 10 * 2 * 1024);
    driver.kib += UINT64_C(1) << 62; /* no link moves that much */
    driver.us += 1000000;
    s = poll_card(1000);
    assert_true(s.rates.nvlink == UINT64_MAX);
}

/* Samples of one that was destroyed say nothing about the next one under its id. */
static void an_instance(void **state) {
    struct gpu_sample s;

    (void) state;
    (void) poll_after(0, 3, "MIG-1");
    assert_int_equal(driver.gi, 3);
    s = poll_after(1000, 3, "MIG-1");
    assert_int_equal(s.rates.graphics_ppm, 500000);
    assert_true(s.rates.nvlink == UINT64_MAX); /* links are the card's */
    s = poll_after(1000, 3, "MIG-2");
    assert_not_told(&s);
    s = poll_after(1000, 3, "MIG-2");
    assert_int_equal(s.rates.graphics_ppm, 500000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(two_readings, setup),
        cmocka_unit_test_setup(polls_that_are_close_together, setup),
        cmocka_unit_test_setup(what_the_driver_does_not_know, setup),
        cmocka_unit_test_setup(cards_before_hopper, setup),
        cmocka_unit_test_setup(drivers_without_the_functions, setup),
        cmocka_unit_test_setup(a_sample_that_fails, setup),
        cmocka_unit_test_setup(counters_that_jump, setup),
        cmocka_unit_test_setup(an_instance, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
