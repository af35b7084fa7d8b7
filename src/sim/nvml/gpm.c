/* SPDX-License-Identifier: Apache-2.0 */

/* Profiling metrics (GPM), from two samples of a device's counters. Measured is how long kernels
 * ran. None of them uses tensor cores, and nothing moves on the bus, as nvmlDeviceGetPcieThroughput
 * says. */

#include <stdlib.h>
#include <time.h>

#include "sim/nvml/nvml.h"

#define SAMPLE_MAGIC 0x4750u

struct nvmlGpmSample_st {
    uint32_t magic;
    bool taken;
    bool computes; /* its time is counted: of a card in MIG mode it is not */
    uint32_t card, gi;
    uint64_t at_ns;   /* CLOCK_MONOTONIC */
    uint64_t busy_ns; /* since the daemon started */
};

static bool is_sample(nvmlGpmSample_t sample) {
    return sample && sample->magic == SAMPLE_MAGIC;
}

static bool has_gpm(nvmlDevice_t device) {
    return device->page->architecture >= NVML_DEVICE_ARCH_HOPPER && !nvml_client()->host->vgpu;
}

nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *gpm_support) {
    NVML_TRY(nvml_enter(device));
    if (!gpm_support)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (gpm_support->version != NVML_GPM_SUPPORT_VERSION)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    gpm_support->isSupportedDevice = has_gpm(device);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *gpm_sample) {
    NVML_TRY(nvml_ready());
    if (!gpm_sample)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlGpmSample_t sample = calloc(1, sizeof(*sample));
    if (!sample)
        return NVML_ERROR_MEMORY;
    sample->magic = SAMPLE_MAGIC;
    *gpm_sample = sample;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t gpm_sample) {
    NVML_TRY(nvml_ready());
    if (!is_sample(gpm_sample))
        return NVML_ERROR_INVALID_ARGUMENT;
    gpm_sample->magic = 0;
    free(gpm_sample);
    return NVML_SUCCESS;
}

static void take(nvmlDevice_t card, unsigned int gi, bool computes, uint64_t busy_ns,
                 nvmlGpmSample_t ret) {
    struct timespec ts;
    (void) clock_gettime(CLOCK_MONOTONIC, &ts);
    *ret = (struct nvmlGpmSample_st){.magic = SAMPLE_MAGIC,
                                     .taken = true,
                                     .computes = computes,
                                     .card = card->page->parent,
                                     .gi = gi,
                                     .at_ns =
                                         (uint64_t) ts.tv_sec * 1000000000u + (uint64_t) ts.tv_nsec,
                                     .busy_ns = busy_ns};
}

/* A request brings the counters of all devices up to this moment. */
static nvmlReturn_t enter_sample(nvmlDevice_t device, nvmlGpmSample_t sample) {
    unsigned int gpu, memory;
    NVML_TRY(nvml_load(device, &gpu, &memory));
    if (!is_sample(sample))
        return NVML_ERROR_INVALID_ARGUMENT;
    return has_gpm(device) ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t gpm_sample) {
    NVML_TRY(enter_sample(device, gpm_sample));
    const struct sim_page *p = device->page;
    take(device, p->compute_slices > 0 ? p->gpu_instance : NVML_NO_INSTANCE, !atomic_load(&p->mig),
         atomic_load(&p->busy_ns), gpm_sample);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned int gpu_instance_id,
                                 nvmlGpmSample_t gpm_sample) {
    NVML_TRY(enter_sample(device, gpm_sample));
    uint64_t busy_ns = 0;
    nvmlDevice_t part;
    bool found = false;
    for (unsigned int i = 0; nvmlDeviceGetMigDeviceHandleByIndex(device, i, &part) == NVML_SUCCESS;
         i++) {
        const struct sim_page *p = part->page;
        unsigned int gpu, memory;
        if (p->gpu_instance != gpu_instance_id)
            continue;
        NVML_TRY(nvml_load(part, &gpu, &memory));
        found = true;
        busy_ns += atomic_load(&p->busy_ns) * p->compute_slices / p->gpu_slices;
    }
    if (!found)
        return NVML_ERROR_INVALID_ARGUMENT;
    take(device, gpu_instance_id, true, busy_ns, gpm_sample);
    return NVML_SUCCESS;
}

static void put_metric(const struct nvmlGpmSample_st *a, const struct nvmlGpmSample_st *b,
                       nvmlGpmMetric_t *ret) {
    double busy = 100 * (double) (b->busy_ns - a->busy_ns) / (double) (b->at_ns - a->at_ns);
    bool computes = a->computes && b->computes;
    ret->metricInfo.shortName = ret->metricInfo.longName = ret->metricInfo.unit = NULL;
    ret->nvmlReturn = NVML_SUCCESS;
    ret->value = 0;
    if (busy > 100)
        busy = 100; /* a kernel's time is counted when the daemon looks */
    switch (ret->metricId) {
    case NVML_GPM_METRIC_GRAPHICS_UTIL:
        ret->value = busy;
        break;
    case NVML_GPM_METRIC_DRAM_BW_UTIL:
        ret->value = busy / 2; /* as nvmlDeviceGetUtilizationRates */
        break;
    case NVML_GPM_METRIC_ANY_TENSOR_UTIL:
        break;
    case NVML_GPM_METRIC_PCIE_TX_PER_SEC:
    case NVML_GPM_METRIC_PCIE_RX_PER_SEC:
        computes = true;
        break;
    default:
        computes = false;
    }
    if (!computes)
        ret->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
}

/* Of one device, the older sample first, and not of one moment. */
static bool can_be_compared(nvmlGpmSample_t a, nvmlGpmSample_t b) {
    return is_sample(a) && is_sample(b) && a->taken && b->taken && a->card == b->card &&
           a->gi == b->gi && b->at_ns > a->at_ns && b->busy_ns >= a->busy_ns;
}

nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *metrics_get) {
    NVML_TRY(nvml_ready());
    if (!metrics_get)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (metrics_get->version != NVML_GPM_METRICS_GET_VERSION)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (!can_be_compared(metrics_get->sample1, metrics_get->sample2))
        return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned int i = 0; i < metrics_get->numMetrics; i++)
        put_metric(metrics_get->sample1, metrics_get->sample2, &metrics_get->metrics[i]);
    return NVML_SUCCESS;
}
