/* SPDX-License-Identifier: Apache-2.0 */

/* Errors (there are none yet), events, peers. */

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sim/nvml/nvml.h"

/* A card without ECC does not know these questions. */
static nvmlReturn_t enter_ecc(nvmlDevice_t device) {
    nvmlReturn_t r = nvml_enter(device);
    if (r == NVML_SUCCESS && !device->page->ecc)
        return NVML_ERROR_NOT_SUPPORTED;
    return r;
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t *current,
                                  nvmlEnableState_t *pending) {
    nvmlReturn_t r = enter_ecc(device);
    if (r != NVML_SUCCESS)
        return r;
    if (!current || !pending)
        return NVML_ERROR_INVALID_ARGUMENT;
    *current = *pending = NVML_FEATURE_ENABLED;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t error_type,
                                         nvmlEccCounterType_t counter_type,
                                         unsigned long long *ecc_counts) {
    (void) error_type;
    (void) counter_type;
    nvmlReturn_t r = enter_ecc(device);
    if (r != NVML_SUCCESS)
        return r;
    if (!ecc_counts)
        return NVML_ERROR_INVALID_ARGUMENT;
    *ecc_counts = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, nvmlMemoryErrorType_t error_type,
                                             nvmlEccCounterType_t counter_type,
                                             nvmlMemoryLocation_t location_type,
                                             unsigned long long *count) {
    (void) location_type;
    return nvmlDeviceGetTotalEccErrors(device, error_type, counter_type, count);
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corr_rows,
                                       unsigned int *unc_rows, unsigned int *is_pending,
                                       unsigned int *failure_occurred) {
    nvmlReturn_t r = enter_ecc(device);
    if (r != NVML_SUCCESS)
        return r;
    if (device->page->architecture < NVML_DEVICE_ARCH_AMPERE)
        return NVML_ERROR_NOT_SUPPORTED;
    if (!corr_rows || !unc_rows || !is_pending || !failure_occurred)
        return NVML_ERROR_INVALID_ARGUMENT;
    *corr_rows = *unc_rows = *is_pending = *failure_occurred = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPcieReplayCounter(nvmlDevice_t device, unsigned int *value) {
    nvmlReturn_t r = nvml_enter(device);
    if (r != NVML_SUCCESS)
        return r;
    if (!value)
        return NVML_ERROR_INVALID_ARGUMENT;
    *value = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, nvmlPcieUtilCounter_t counter,
                                         unsigned int *value) {
    (void) counter;
    return nvmlDeviceGetPcieReplayCounter(device, value); /* nothing moves on the bus either */
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device1, nvmlDevice_t device2,
                                                 nvmlGpuTopologyLevel_t *path_info) {
    nvmlReturn_t r = nvml_enter(device1);
    if (r == NVML_SUCCESS)
        r = nvml_enter(device2);
    if (r != NVML_SUCCESS)
        return r;
    if (!path_info || device1 == device2)
        return NVML_ERROR_INVALID_ARGUMENT;
    *path_info = NVML_TOPOLOGY_NODE;
    return NVML_SUCCESS;
}

/* Event sets remember nothing but that they exist: no device has an event to report yet. */
struct nvmlEventSet_st {
    unsigned long long types;
};

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device,
                                              unsigned long long *event_types) {
    nvmlReturn_t r = nvml_enter(device);
    if (r != NVML_SUCCESS)
        return r;
    if (!event_types)
        return NVML_ERROR_INVALID_ARGUMENT;
    *event_types = nvmlEventTypeSingleBitEccError | nvmlEventTypeDoubleBitEccError |
                   nvmlEventTypePState | nvmlEventTypeXidCriticalError | nvmlEventTypeClock;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
    nvmlReturn_t r = nvml_ready();
    if (r != NVML_SUCCESS)
        return r;
    if (!set)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlEventSet_t s = calloc(1, sizeof(*s));
    if (!s)
        return NVML_ERROR_MEMORY;
    *set = s;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
    nvmlReturn_t r = nvml_ready();
    if (r != NVML_SUCCESS)
        return r;
    if (!set)
        return NVML_ERROR_INVALID_ARGUMENT;
    free(set);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long event_types,
                                      nvmlEventSet_t set) {
    nvmlReturn_t r = nvml_enter(device);
    if (r != NVML_SUCCESS)
        return r;
    if (!set)
        return NVML_ERROR_INVALID_ARGUMENT;
    set->types |= event_types;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data,
                                 unsigned int timeoutms) {
    nvmlReturn_t r = nvml_ready();
    if (r != NVML_SUCCESS)
        return r;
    if (!set || !data)
        return NVML_ERROR_INVALID_ARGUMENT;
    /* The daemon never speaks first: what ends the wait early is that it is gone. */
    struct pollfd p = {.fd = nvml_client()->ctl, .events = 0};
    int n = poll(&p, 1, timeoutms > INT32_MAX ? -1 : (int) timeoutms);
    return n > 0 ? NVML_ERROR_GPU_IS_LOST : NVML_ERROR_TIMEOUT;
}

nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeoutms) {
    return nvmlEventSetWait_v2(set, data, timeoutms);
}
