/* SPDX-License-Identifier: Apache-2.0 */

/* Settings of a card, and accounting. Only root and the user that owns the machine may change
 * them. */

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

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t *mode) {
    NVML_GIVE(device, mode, (nvmlEnableState_t) read_setting(device, SIM_SETTING_PERSISTENCE));
}

nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t mode) {
    nvmlReturn_t r = nvml_enter(device);
    if (r != NVML_SUCCESS)
        return r;
    if ((unsigned int) mode > NVML_FEATURE_ENABLED)
        return NVML_ERROR_INVALID_ARGUMENT;
    return write_setting(device, SIM_SETTING_PERSISTENCE, mode);
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t *mode) {
    NVML_GIVE(device, mode, (nvmlComputeMode_t) read_setting(device, SIM_SETTING_COMPUTE_MODE));
}

nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, nvmlComputeMode_t mode) {
    nvmlReturn_t r = nvml_enter(device);
    if (r != NVML_SUCCESS)
        return r;
    if ((unsigned int) mode > NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (mode == NVML_COMPUTEMODE_EXCLUSIVE_THREAD)
        mode = NVML_COMPUTEMODE_EXCLUSIVE_PROCESS; /* what it has meant since CUDA 8 */
    return write_setting(device, SIM_SETTING_COMPUTE_MODE, mode);
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
    nvmlReturn_t r = nvml_enter(device);
    if (r != NVML_SUCCESS)
        return r;
    if (!min_limit || !max_limit)
        return NVML_ERROR_INVALID_ARGUMENT;
    *min_limit = device->page->power_limit_mw / 4;
    *max_limit = device->page->power_limit_mw;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceSetPowerManagementLimit(nvmlDevice_t device, unsigned int limit) {
    unsigned int least, most;
    nvmlReturn_t r = nvmlDeviceGetPowerManagementLimitConstraints(device, &least, &most);
    if (r != NVML_SUCCESS)
        return r;
    if (limit < least || limit > most)
        return NVML_ERROR_INVALID_ARGUMENT;
    return write_setting(device, SIM_SETTING_POWER_LIMIT, limit);
}

/* -- accounting ------------------------------------------------------------------------------ */

nvmlReturn_t nvmlDeviceGetAccountingMode(nvmlDevice_t device, nvmlEnableState_t *mode) {
    NVML_GIVE(device, mode, (nvmlEnableState_t) read_setting(device, SIM_SETTING_ACCOUNTING));
}

nvmlReturn_t nvmlDeviceSetAccountingMode(nvmlDevice_t device, nvmlEnableState_t mode) {
    nvmlReturn_t r = nvml_enter(device);
    if (r != NVML_SUCCESS)
        return r;
    if ((unsigned int) mode > NVML_FEATURE_ENABLED)
        return NVML_ERROR_INVALID_ARGUMENT;
    return write_setting(device, SIM_SETTING_ACCOUNTING, mode);
}

nvmlReturn_t nvmlDeviceGetAccountingBufferSize(nvmlDevice_t device, unsigned int *buffer_size) {
    NVML_GIVE(device, buffer_size, SIM_ACCOUNTS_MAX);
}

nvmlReturn_t nvmlDeviceClearAccountingPids(nvmlDevice_t device) {
    nvmlReturn_t r = nvml_enter(device);
    if (r != NVML_SUCCESS)
        return r;
    return write_setting(device, SIM_SETTING_ACCOUNTING,
                         read_setting(device, SIM_SETTING_ACCOUNTING) ? 1 : 0);
}

/* All processes that are accounted for. `*ret` is malloc'ed. */
static nvmlReturn_t fetch_accounts(nvmlDevice_t device, struct sim_account **ret,
                                   unsigned int *ret_count) {
    nvmlReturn_t r = nvml_enter(device);
    if (r != NVML_SUCCESS)
        return r;
    if (!read_setting(device, SIM_SETTING_ACCOUNTING))
        return NVML_ERROR_NOT_SUPPORTED;
    size_t room = SIM_ACCOUNTS_MAX * sizeof(struct sim_account);
    struct sim_account *list = malloc(room);
    if (!list)
        return NVML_ERROR_MEMORY;
    struct client_answer a = {.list = list, .list_max = room};
    r = nvml_request(device, SIM_ACCOUNTS, 0, &a);
    if (r != NVML_SUCCESS) {
        free(list);
        return r;
    }
    *ret = list;
    *ret_count = a.reply.count < SIM_ACCOUNTS_MAX ? a.reply.count : SIM_ACCOUNTS_MAX;
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
    nvmlReturn_t r = fetch_accounts(device, &list, &n);
    if (r != NVML_SUCCESS)
        return r;
    r = NVML_ERROR_NOT_FOUND;
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
    nvmlReturn_t r = nvml_enter(device);
    if (r != NVML_SUCCESS)
        return r;
    if (!device->page->ecc)
        return NVML_ERROR_NOT_SUPPORTED;
    if ((unsigned int) counter_type > NVML_AGGREGATE_ECC)
        return NVML_ERROR_INVALID_ARGUMENT;
    return write_setting(device, SIM_SETTING_ECC_COUNTS, 0);
}
