/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/nvml/rates.h"

#include <stddef.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/text.h"

/* NVML wants more than 100 ms between two samples, and polls for a scrape can be closer together.
 * Of the polls at an interval of one second none may be too early by its jitter. */
#define AGE_MIN_NS 500000000u

#define ALL_LINKS UINT32_MAX /* in place of the number of a link */
#define LINKS_MOST 0x1p50    /* bytes a second; more is an error of the driver */

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const struct {
    unsigned int id;
    size_t offset, size; /* in struct gpu_rate_figures */
    double most;         /* more is an error of the driver */
    double unit;         /* the member's, in NVML's */
} metrics[] = {
#define METRIC(id, member, most, unit)                                                             \
    {                                                                                              \
        id, offsetof(struct gpu_rate_figures, member),                                             \
            sizeof(((struct gpu_rate_figures *) 0)->member), most, unit                            \
    }
    METRIC(NVML_GPM_METRIC_GRAPHICS_UTIL, graphics_ppm, 100, 10000),
    METRIC(NVML_GPM_METRIC_ANY_TENSOR_UTIL, tensor_ppm, 100, 10000),
    METRIC(NVML_GPM_METRIC_DRAM_BW_UTIL, dram_ppm, 100, 10000),
    METRIC(NVML_GPM_METRIC_PCIE_TX_PER_SEC, pcie_tx, 1 << 30, 1 << 20),
    METRIC(NVML_GPM_METRIC_PCIE_RX_PER_SEC, pcie_rx, 1 << 30, 1 << 20),
#undef METRIC
};
_Static_assert(COUNT(metrics) <= NVML_GPM_METRIC_MAX, "room in nvmlGpmMetricsGet_t");

static void forget(struct gpu_rate_figures *ret) {
    memset(ret, 0xff, sizeof(*ret));
}

/* ---- profiling metrics ---- */

static bool has_samples(const struct nvml *n, nvmlDevice_t card, struct gpu_rates *rates) {
    nvmlGpmSupport_t support = {.version = NVML_GPM_SUPPORT_VERSION};

    if (!n->nvmlGpmQueryDeviceSupport || !n->nvmlGpmSampleAlloc || !n->nvmlGpmSampleGet ||
        !n->nvmlGpmMigSampleGet || !n->nvmlGpmMetricsGet ||
        n->nvmlGpmQueryDeviceSupport(card, &support) != NVML_SUCCESS || !support.isSupportedDevice)
        return false;
    return (rates->older || n->nvmlGpmSampleAlloc(&rates->older) == NVML_SUCCESS) &&
           (rates->newer || n->nvmlGpmSampleAlloc(&rates->newer) == NVML_SUCCESS);
}

/* The sample becomes the newer one. */
static bool take_sample(const struct nvml *n, nvmlDevice_t card, unsigned int gi,
                        struct gpu_rates *rates) {
    nvmlGpmSample_t next = rates->older;

    rates->older = rates->newer;
    rates->newer = next;
    return (gi == NVML_NO_INSTANCE ? n->nvmlGpmSampleGet(card, next)
                                   : n->nvmlGpmMigSampleGet(card, gi, next)) == NVML_SUCCESS;
}

static void put_metric(const nvmlGpmMetric_t *m, size_t i, struct gpu_rate_figures *ret) {
    uint64_t value;

    /* NAN fails both comparisons. */
    if (m->nvmlReturn != NVML_SUCCESS || !(m->value >= 0 && m->value <= metrics[i].most))
        return;
    value = (uint64_t) (m->value * metrics[i].unit + 0.5);
    memcpy((char *) ret + metrics[i].offset, &value, metrics[i].size);
}

static void compare_samples(const struct nvml *n, const struct gpu_rates *rates,
                            struct gpu_rate_figures *ret) {
    nvmlGpmMetricsGet_t get = {.version = NVML_GPM_METRICS_GET_VERSION,
                               .numMetrics = COUNT(metrics),
                               .sample1 = rates->older,
                               .sample2 = rates->newer};

    for (size_t i = 0; i < COUNT(metrics); i++)
        get.metrics[i].metricId = metrics[i].id;
    if (n->nvmlGpmMetricsGet(&get) != NVML_SUCCESS)
        return;
    for (size_t i = 0; i < COUNT(metrics); i++)
        put_metric(&get.metrics[i], i, ret);
}

static void read_metrics(const struct nvml *n, nvmlDevice_t card, unsigned int gi,
                         struct gpu_rates *rates) {
    bool sampled = has_samples(n, card, rates) && take_sample(n, card, gi, rates);

    if (sampled && rates->sampled)
        compare_samples(n, rates, &rates->of);
    rates->sampled = sampled;
}

/* ---- NVLink ---- */

/* Sent and received data, in KiB, and when it was counted. */
static bool count_links(const struct nvml *n, nvmlDevice_t card, uint64_t *ret_kib,
                        uint64_t *ret_us) {
    nvmlFieldValue_t v[] = {
        {.fieldId = NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, .scopeId = ALL_LINKS},
        {.fieldId = NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, .scopeId = ALL_LINKS}};

    if (!n->nvmlDeviceGetFieldValues ||
        n->nvmlDeviceGetFieldValues(card, (int) COUNT(v), v) != NVML_SUCCESS)
        return false;
    for (size_t i = 0; i < COUNT(v); i++)
        if (v[i].nvmlReturn != NVML_SUCCESS || v[i].timestamp <= 0 ||
            v[i].valueType != NVML_VALUE_TYPE_UNSIGNED_LONG_LONG)
            return false;
    *ret_kib = v[0].value.ullVal + v[1].value.ullVal;
    *ret_us = (uint64_t) v[1].timestamp;
    return true;
}

/* The counters begin again when the card is reset, and the clock can be set back. */
static void read_links(const struct nvml *n, nvmlDevice_t card, struct gpu_rates *rates) {
    uint64_t kib = UINT64_MAX, us = 0;

    if (count_links(n, card, &kib, &us) && rates->kib != UINT64_MAX && kib >= rates->kib &&
        us > rates->kib_us) {
        double rate = (double) (kib - rates->kib) * 1024 * 1e6 / (double) (us - rates->kib_us);

        if (rate <= LINKS_MOST)
            rates->of.nvlink = (uint64_t) rate;
    }
    rates->kib = kib;
    rates->kib_us = us;
}

/* ---- both ---- */

void gpu_rates_read(const struct nvml *nvml, nvmlDevice_t card, unsigned int gi, const char *uuid,
                    struct gpu_rates *rates, struct gpu_sample *ret) {
    uint64_t now = clock_ns(CLOCK_MONOTONIC);

    if (strcmp(rates->uuid, uuid) != 0) {
        text_copy(rates->uuid, sizeof(rates->uuid), uuid);
        rates->sampled = false;
        rates->kib = UINT64_MAX;
        rates->read_ns = 0;
    }
    if (rates->read_ns == 0 || now - rates->read_ns >= AGE_MIN_NS) {
        forget(&rates->of);
        read_metrics(nvml, card, gi, rates);
        if (gi == NVML_NO_INSTANCE)
            read_links(nvml, card, rates);
        rates->read_ns = now;
    }
    ret->rates = rates->of;
}
