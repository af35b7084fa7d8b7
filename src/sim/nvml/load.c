/* SPDX-License-Identifier: Apache-2.0 */

/* Utilisation, and the temperatures, watts and clocks that follow from it. */

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sim/nvml/nvml.h"

nvmlReturn_t nvml_load(nvmlDevice_t device, unsigned int *ret_gpu, unsigned int *ret_memory) {
    NVML_TRY(nvml_enter_working(device));
    if (atomic_load(&device->page->mig)) {
        *ret_gpu = *ret_memory = 0; /* instances are not measured from outside */
        return NVML_SUCCESS;
    }
    struct client_answer a = {.list = NULL};
    NVML_TRY(nvml_request(device, SIM_UTILIZATION, 0, &a));
    *ret_gpu = (unsigned int) a.reply.a;
    *ret_memory = (unsigned int) a.reply.b;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization) {
    unsigned int gpu, memory;
    NVML_TRY(nvml_load(device, &gpu, &memory));
    if (atomic_load(&device->page->mig))
        return NVML_ERROR_NOT_SUPPORTED;
    if (!utilization)
        return NVML_ERROR_INVALID_ARGUMENT;
    *utilization = (nvmlUtilization_t){.gpu = gpu, .memory = memory};
    return NVML_SUCCESS;
}

/* Encoders and their like exist and are idle. */
static nvmlReturn_t idle_engine(nvmlDevice_t device, unsigned int *utilization,
                                unsigned int *period_us) {
    NVML_TRY(nvml_enter(device));
    if (!utilization || !period_us)
        return NVML_ERROR_INVALID_ARGUMENT;
    *utilization = 0;
    *period_us = nvml_client()->host->sample_us;
    return NVML_SUCCESS;
}

#define ENGINE_PARAMETERS nvmlDevice_t device, unsigned int *utilization, unsigned int *period_us

nvmlReturn_t nvmlDeviceGetEncoderUtilization(ENGINE_PARAMETERS) {
    return idle_engine(device, utilization, period_us);
}

nvmlReturn_t nvmlDeviceGetDecoderUtilization(ENGINE_PARAMETERS) {
    return idle_engine(device, utilization, period_us);
}

nvmlReturn_t nvmlDeviceGetJpgUtilization(ENGINE_PARAMETERS) {
    return idle_engine(device, utilization, period_us);
}

nvmlReturn_t nvmlDeviceGetOfaUtilization(ENGINE_PARAMETERS) {
    return idle_engine(device, utilization, period_us);
}

/* Samples since a time stamp: of the processes (SIM_SAMPLES) or of the card (SIM_HISTORY).
 * NOT_FOUND when there are none. The caller frees `*ret`. */
static nvmlReturn_t fetch_samples(nvmlDevice_t device, enum sim_op op, unsigned long long since,
                                  struct sim_sample **ret, unsigned int *ret_count) {
    struct nvml_list list;
    NVML_TRY(nvml_request_list(device, op, since, sizeof(**ret), SIM_LIST_MAX, &list));
    if (list.count == 0) {
        free(list.entries);
        return NVML_ERROR_NOT_FOUND;
    }
    *ret = list.entries;
    *ret_count = list.count;
    return NVML_SUCCESS;
}

/* Seen on an RTX PRO 6000 with driver 580: there are never samples of a Blackwell card, where
 * nvmlDeviceGetProcessesUtilizationInfo has them. */
nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                             nvmlProcessUtilizationSample_t *utilization,
                                             unsigned int *process_samples_count,
                                             unsigned long long last_seen_time_stamp) {
    NVML_TRY(nvml_enter(device));
    if (!process_samples_count)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (device->page->architecture >= NVML_DEVICE_ARCH_BLACKWELL)
        return NVML_ERROR_NOT_FOUND;
    struct sim_sample *list;
    unsigned int n;
    nvmlReturn_t r = fetch_samples(device, SIM_SAMPLES, last_seen_time_stamp, &list, &n);
    if (r != NVML_SUCCESS)
        return r;
    if (!utilization || *process_samples_count < n)
        r = NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned int i = 0; r == NVML_SUCCESS && i < n; i++)
        utilization[i] = (nvmlProcessUtilizationSample_t){.pid = list[i].pid,
                                                          .timeStamp = list[i].time_us,
                                                          .smUtil = list[i].sm,
                                                          .memUtil = list[i].memory};
    *process_samples_count = n;
    free(list);
    return r;
}

nvmlReturn_t
nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                      nvmlProcessesUtilizationInfo_t *proceses_util_info) {
    nvmlProcessesUtilizationInfo_t *info = proceses_util_info;
    NVML_TRY(nvml_enter(device));
    NVML_CHECK_VERSION(info, nvmlProcessesUtilizationInfo_t, 1);
    struct sim_sample *list;
    unsigned int n;
    nvmlReturn_t r = fetch_samples(device, SIM_SAMPLES, info->lastSeenTimeStamp, &list, &n);
    if (r != NVML_SUCCESS)
        return r;
    if (!info->procUtilArray || info->processSamplesCount < n)
        r = NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned int i = 0; r == NVML_SUCCESS && i < n; i++)
        info->procUtilArray[i] = (nvmlProcessUtilizationInfo_v1_t){.timeStamp = list[i].time_us,
                                                                   .pid = list[i].pid,
                                                                   .smUtil = list[i].sm,
                                                                   .memUtil = list[i].memory};
    info->processSamplesCount = n;
    free(list);
    return r;
}

/* The driver's history: one value a period. */
nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, nvmlSamplingType_t type,
                                  unsigned long long last_seen_time_stamp,
                                  nvmlValueType_t *sample_val_type, unsigned int *sample_count,
                                  nvmlSample_t *samples) {
    NVML_TRY(nvml_enter_working(device));
    if (!sample_val_type || !sample_count || (samples && *sample_count == 0))
        return NVML_ERROR_INVALID_ARGUMENT;
    if (type != NVML_GPU_UTILIZATION_SAMPLES && type != NVML_MEMORY_UTILIZATION_SAMPLES)
        return NVML_ERROR_NOT_SUPPORTED;
    *sample_val_type = NVML_VALUE_TYPE_UNSIGNED_INT;
    struct sim_sample *list;
    unsigned int n;
    NVML_TRY(fetch_samples(device, SIM_HISTORY, last_seen_time_stamp, &list, &n));
    if (samples && *sample_count < n)
        n = *sample_count;
    for (unsigned int i = 0; samples && i < n; i++) {
        samples[i].timeStamp = list[i].time_us;
        samples[i].sampleValue.uiVal =
            type == NVML_GPU_UTILIZATION_SAMPLES ? list[i].sm : list[i].memory;
    }
    *sample_count = n;
    free(list);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor_type,
                                      unsigned int *temp) {
    unsigned int gpu, memory;
    NVML_TRY(nvml_load(device, &gpu, &memory));
    if (!temp || sensor_type != NVML_TEMPERATURE_GPU)
        return NVML_ERROR_INVALID_ARGUMENT;
    *temp = atomic_load(&device->page->temperature);
    if (*temp == 0)
        *temp = 31 + gpu * 35 / 100;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device,
                                               nvmlTemperatureThresholds_t threshold_type,
                                               unsigned int *temp) {
    NVML_TRY(nvml_enter(device));
    if (!temp)
        return NVML_ERROR_INVALID_ARGUMENT;
    switch (threshold_type) {
    case NVML_TEMPERATURE_THRESHOLD_SHUTDOWN:
        *temp = 92;
        return NVML_SUCCESS;
    case NVML_TEMPERATURE_THRESHOLD_SLOWDOWN:
        *temp = 89;
        return NVML_SUCCESS;
    case NVML_TEMPERATURE_THRESHOLD_GPU_MAX:
        *temp = 85;
        return NVML_SUCCESS;
    default:
        return NVML_ERROR_NOT_SUPPORTED;
    }
}

/* Data-centre cards are cooled by the server's fans and have none to report. */
nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned int *speed) {
    unsigned int gpu, memory;
    NVML_TRY(nvml_load(device, &gpu, &memory));
    if (!speed)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (device->page->passive)
        return NVML_ERROR_NOT_SUPPORTED;
    *speed = 30 + gpu / 2;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNumFans(nvmlDevice_t device, unsigned int *num_fans) {
    NVML_TRY(nvml_enter(device));
    NVML_RETURN_VALUE(num_fans, device->page->passive ? 0 : 2);
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *power) {
    unsigned int gpu, memory;
    NVML_TRY(nvml_load(device, &gpu, &memory));
    if (!power)
        return NVML_ERROR_INVALID_ARGUMENT;
    const struct sim_page *p = device->page;
    *power = p->power_idle_mw + (p->power_limit_mw - p->power_idle_mw) / 100 * gpu;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *energy) {
    NVML_TRY(nvml_enter(device));
    if (!energy)
        return NVML_ERROR_INVALID_ARGUMENT;
    const struct sim_page *p = device->page;
    struct timespec ts;
    (void) clock_gettime(CLOCK_MONOTONIC, &ts);
    unsigned long long busy_ms = atomic_load(&p->busy_ns) / 1000000u;
    unsigned long long up_ms =
        (unsigned long long) ts.tv_sec * 1000u + (unsigned long long) ts.tv_nsec / 1000000u;
    *energy = (up_ms * p->power_idle_mw + busy_ms * (p->power_limit_mw - p->power_idle_mw)) / 1000u;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerManagementMode(nvmlDevice_t device, nvmlEnableState_t *mode) {
    NVML_TRY(nvml_enter(device));
    NVML_RETURN_VALUE(mode, NVML_FEATURE_ENABLED);
}

static nvmlReturn_t performance_state(nvmlDevice_t device, nvmlPstates_t *state) {
    NVML_TRY(nvml_enter(device));
    if (!state)
        return NVML_ERROR_INVALID_ARGUMENT;
    bool idle = atomic_load(&device->page->clients) == 0;
    *state =
        idle && device->page->power_limit_mw < NVML_IDLING_CARD_MW ? NVML_PSTATE_8 : NVML_PSTATE_0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerState(nvmlDevice_t device, nvmlPstates_t *state) {
    return performance_state(device, state);
}

nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, nvmlPstates_t *state) {
    return performance_state(device, state);
}

static nvmlReturn_t clock_of(nvmlDevice_t device, nvmlClockType_t type, bool current,
                             unsigned int *clock) {
    NVML_TRY(nvml_enter(device));
    if (!clock)
        return NVML_ERROR_INVALID_ARGUMENT;
    const struct sim_page *p = device->page;
    bool idle = current && atomic_load(&p->clients) == 0;
    if (type == NVML_CLOCK_MEM)
        *clock = p->memory_clock_mhz;
    else if (type == NVML_CLOCK_VIDEO)
        *clock = idle ? 585 : p->sm_clock_mhz * 9 / 10;
    else if (type == NVML_CLOCK_GRAPHICS || type == NVML_CLOCK_SM)
        *clock = idle ? NVML_IDLE_CLOCK_MHZ : p->sm_clock_mhz;
    else
        return NVML_ERROR_INVALID_ARGUMENT;
    return NVML_SUCCESS;
}

#define CLOCK_PARAMETERS nvmlDevice_t device, nvmlClockType_t type, unsigned int *clock

nvmlReturn_t nvmlDeviceGetClockInfo(CLOCK_PARAMETERS) {
    return clock_of(device, type, true, clock);
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(CLOCK_PARAMETERS) {
    return clock_of(device, type, false, clock);
}

nvmlReturn_t nvmlDeviceGetApplicationsClock(CLOCK_PARAMETERS) {
    return clock_of(device, type, false, clock);
}

nvmlReturn_t nvmlDeviceGetDefaultApplicationsClock(CLOCK_PARAMETERS) {
    return clock_of(device, type, false, clock);
}

nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, nvmlClockType_t clock_type,
                                nvmlClockId_t clock_id, unsigned int *clock_mhz) {
    return clock_of(device, clock_type, clock_id == NVML_CLOCK_ID_CURRENT, clock_mhz);
}

static nvmlReturn_t clock_reasons(nvmlDevice_t device, unsigned long long *reasons) {
    NVML_TRY(nvml_enter(device));
    if (!reasons)
        return NVML_ERROR_INVALID_ARGUMENT;
    bool idle = atomic_load(&device->page->clients) == 0;
    *reasons = idle ? nvmlClocksEventReasonGpuIdle : nvmlClocksEventReasonNone;
    return NVML_SUCCESS;
}

static nvmlReturn_t supported_reasons(nvmlDevice_t device, unsigned long long *reasons) {
    nvmlReturn_t r = clock_reasons(device, reasons);
    if (r == NVML_SUCCESS)
        *reasons = nvmlClocksEventReasonGpuIdle;
    return r;
}

nvmlReturn_t
nvmlDeviceGetSupportedClocksThrottleReasons(nvmlDevice_t device,
                                            unsigned long long *supported_clocks_throttle_reasons) {
    return supported_reasons(device, supported_clocks_throttle_reasons);
}

nvmlReturn_t
nvmlDeviceGetSupportedClocksEventReasons(nvmlDevice_t device,
                                         unsigned long long *supported_clocks_event_reasons) {
    return supported_reasons(device, supported_clocks_event_reasons);
}

nvmlReturn_t
nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device,
                                          unsigned long long *clocks_throttle_reasons) {
    return clock_reasons(device, clocks_throttle_reasons);
}

nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device,
                                                    unsigned long long *clocks_event_reasons) {
    return clock_reasons(device, clocks_event_reasons);
}
