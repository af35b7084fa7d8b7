/* SPDX-License-Identifier: Apache-2.0 */

/* Settings of a card, and accounting. Only administrators may change them. */

#include <stdlib.h>
#include <string.h>

#include "sim/nvml/nvml.h"

static unsigned int read_setting(nvmlDevice_t device, enum sim_setting which) {
    return atomic_load(&device->page->setting[which]);
}

static nvmlReturn_t write_setting(nvmlDevice_t device, enum sim_setting which, unsigned int value) {
    struct client_answer a = {.list = NULL};
    return nvml_request(device, SIM_SET, (uint64_t) which << 32 | value, &a);
}

/* -- modes ----------------------------------------------------------------------------------- */

static nvmlReturn_t set_mode(nvmlDevice_t device, enum sim_setting which, unsigned int mode,
                             unsigned int highest) {
    NVML_TRY(nvml_enter(device));
    return mode <= highest ? write_setting(device, which, mode) : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t *mode) {
    NVML_GIVE(device, mode, (nvmlEnableState_t) read_setting(device, SIM_SETTING_PERSISTENCE));
}

nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t mode) {
    return set_mode(device, SIM_SETTING_PERSISTENCE, mode, NVML_FEATURE_ENABLED);
}

/* In MIG mode it is DEFAULT and cannot be set. */
static unsigned int compute_mode(nvmlDevice_t device) {
    return atomic_load(&device->page->mig) ? NVML_COMPUTEMODE_DEFAULT
                                           : read_setting(device, SIM_SETTING_COMPUTE_MODE);
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t *mode) {
    NVML_GIVE(device, mode, (nvmlComputeMode_t) compute_mode(device));
}

nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, nvmlComputeMode_t mode) {
    NVML_TRY(nvml_enter(device));
    if (atomic_load(&device->page->mig))
        return NVML_ERROR_NOT_SUPPORTED;
    if (mode == NVML_COMPUTEMODE_EXCLUSIVE_THREAD)
        mode = NVML_COMPUTEMODE_EXCLUSIVE_PROCESS; /* its meaning since CUDA 8 */
    return set_mode(device, SIM_SETTING_COMPUTE_MODE, mode, NVML_COMPUTEMODE_EXCLUSIVE_PROCESS);
}

/* -- power ----------------------------------------------------------------------------------- */

static nvmlReturn_t power_limit(nvmlDevice_t device, unsigned int *limit) {
    NVML_GIVE(device, limit, read_setting(device, SIM_SETTING_POWER_LIMIT));
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned int *limit) {
    return power_limit(device, limit);
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int *limit) {
    return power_limit(device, limit);
}

nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t device,
                                                      unsigned int *default_limit) {
    NVML_GIVE(device, default_limit, device->page->power_limit_mw);
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device,
                                                          unsigned int *min_limit,
                                                          unsigned int *max_limit) {
    NVML_TRY(nvml_enter(device));
    if (!min_limit || !max_limit)
        return NVML_ERROR_INVALID_ARGUMENT;
    *min_limit = device->page->power_limit_mw / 4;
    *max_limit = device->page->power_limit_mw;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceSetPowerManagementLimit(nvmlDevice_t device, unsigned int limit) {
    unsigned int least, most;
    NVML_TRY(nvmlDeviceGetPowerManagementLimitConstraints(device, &least, &most));
    if (limit < least || limit > most)
        return NVML_ERROR_INVALID_ARGUMENT;
    return write_setting(device, SIM_SETTING_POWER_LIMIT, limit);
}

/* -- accounting ------------------------------------------------------------------------------ */

nvmlReturn_t nvmlDeviceGetAccountingMode(nvmlDevice_t device, nvmlEnableState_t *mode) {
    NVML_GIVE(device, mode, (nvmlEnableState_t) read_setting(device, SIM_SETTING_ACCOUNTING));
}

nvmlReturn_t nvmlDeviceSetAccountingMode(nvmlDevice_t device, nvmlEnableState_t mode) {
    return set_mode(device, SIM_SETTING_ACCOUNTING, mode, NVML_FEATURE_ENABLED);
}

nvmlReturn_t nvmlDeviceGetAccountingBufferSize(nvmlDevice_t device, unsigned int *buffer_size) {
    NVML_GIVE(device, buffer_size, SIM_ACCOUNTS_MAX);
}

nvmlReturn_t nvmlDeviceClearAccountingPids(nvmlDevice_t device) {
    NVML_TRY(nvml_enter(device));
    return write_setting(device, SIM_SETTING_ACCOUNTING,
                         read_setting(device, SIM_SETTING_ACCOUNTING) ? 1 : 0);
}

/* The records of all processes. The caller frees `*ret`. */
static nvmlReturn_t fetch_accounts(nvmlDevice_t device, struct sim_account **ret,
                                   unsigned int *ret_count) {
    struct nvml_list list;
    NVML_TRY(nvml_enter(device));
    if (!read_setting(device, SIM_SETTING_ACCOUNTING))
        return NVML_ERROR_NOT_SUPPORTED;
    NVML_TRY(nvml_request_list(device, SIM_ACCOUNTS, 0, sizeof(**ret), SIM_ACCOUNTS_MAX, &list));
    *ret = list.entries;
    *ret_count = list.count;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned int *count,
                                         unsigned int *pids) {
    struct sim_account *list = NULL;
    unsigned int n;
    nvmlReturn_t r = nvml_enter(device);
    if (r == NVML_SUCCESS && (!count || (*count > 0 && !pids)))
        return NVML_ERROR_INVALID_ARGUMENT;
    r = fetch_accounts(device, &list, &n);
    if (r != NVML_SUCCESS)
        return r;
    r = n > *count ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
    for (unsigned int i = 0; r == NVML_SUCCESS && i < n; i++)
        pids[i] = list[i].pid;
    *count = n;
    free(list);
    return r;
}

static nvmlReturn_t find_account(nvmlDevice_t device, unsigned int pid, struct sim_account *ret) {
    struct sim_account *list = NULL;
    unsigned int n;
    NVML_TRY(fetch_accounts(device, &list, &n));
    nvmlReturn_t r = NVML_ERROR_NOT_FOUND;
    for (unsigned int i = 0; i < n; i++)
        if (list[i].pid == pid) {
            *ret = list[i];
            r = NVML_SUCCESS;
        }
    free(list);
    return r;
}

nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned int pid,
                                          nvmlAccountingStats_t *stats) {
    struct sim_account a = {0};
    nvmlReturn_t r = nvml_enter(device);
    if (r == NVML_SUCCESS && !stats)
        return NVML_ERROR_INVALID_ARGUMENT;
    r = find_account(device, pid, &a);
    if (r == NVML_SUCCESS)
        *stats = (nvmlAccountingStats_t){.gpuUtilization = a.gpu,
                                         .memoryUtilization = a.gpu / 2,
                                         .maxMemoryUsage = a.peak,
                                         .time = a.running ? 0 : a.time_ms,
                                         .startTime = a.start_us,
                                         .isRunning = a.running};
    return r;
}

/* -- error counts ---------------------------------------------------------------------------- */

nvmlReturn_t nvmlDeviceClearEccErrorCounts(nvmlDevice_t device, nvmlEccCounterType_t counter_type) {
    NVML_TRY(nvml_enter(device));
    if (!device->page->ecc)
        return NVML_ERROR_NOT_SUPPORTED;
    if ((unsigned int) counter_type > NVML_AGGREGATE_ECC)
        return NVML_ERROR_INVALID_ARGUMENT;
    return write_setting(device, SIM_SETTING_ECC_COUNTS, counter_type);
}
