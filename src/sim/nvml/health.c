/* SPDX-License-Identifier: Apache-2.0 */

/* Memory errors, the bus. */

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
    NVML_TRY(enter_ecc(device));
    if (!current || !pending)
        return NVML_ERROR_INVALID_ARGUMENT;
    *current = *pending = NVML_FEATURE_ENABLED;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t error_type,
                                         nvmlEccCounterType_t counter_type,
                                         unsigned long long *ecc_counts) {
    NVML_TRY(enter_ecc(device));
    if (!ecc_counts || error_type > NVML_MEMORY_ERROR_TYPE_UNCORRECTED ||
        counter_type > NVML_AGGREGATE_ECC)
        return NVML_ERROR_INVALID_ARGUMENT;
    *ecc_counts = atomic_load(
        &device->page->ecc_errors[(counter_type == NVML_AGGREGATE_ECC ? SIM_ECC_CORRECTED_TOTAL
                                                                      : SIM_ECC_CORRECTED) +
                                  (error_type == NVML_MEMORY_ERROR_TYPE_UNCORRECTED)]);
    return NVML_SUCCESS;
}

/* Volta counts by part of the chip, later cards the device's memory and the rest. */
static bool counts_errors(const struct sim_page *p, nvmlMemoryErrorType_t error_type,
                          nvmlMemoryLocation_t location) {
    switch (location) {
    case NVML_MEMORY_LOCATION_DRAM:
        return true;
    case NVML_MEMORY_LOCATION_SRAM:
        return p->architecture > NVML_DEVICE_ARCH_VOLTA;
    case NVML_MEMORY_LOCATION_L1_CACHE:
    case NVML_MEMORY_LOCATION_L2_CACHE:
    case NVML_MEMORY_LOCATION_REGISTER_FILE:
        return p->architecture == NVML_DEVICE_ARCH_VOLTA;
    case NVML_MEMORY_LOCATION_CBU:
        return p->architecture == NVML_DEVICE_ARCH_VOLTA &&
               error_type == NVML_MEMORY_ERROR_TYPE_UNCORRECTED;
    default:
        return false;
    }
}

nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, nvmlMemoryErrorType_t error_type,
                                             nvmlEccCounterType_t counter_type,
                                             nvmlMemoryLocation_t location_type,
                                             unsigned long long *count) {
    NVML_TRY(nvmlDeviceGetTotalEccErrors(device, error_type, counter_type, count));
    if ((unsigned int) location_type >= NVML_MEMORY_LOCATION_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!counts_errors(device->page, error_type, location_type))
        return NVML_ERROR_NOT_SUPPORTED;
    if (location_type != NVML_MEMORY_LOCATION_DRAM) /* where injected errors are */
        *count = 0;
    return NVML_SUCCESS;
}

/* The driver does not answer for a card with MIG instances. */
nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corr_rows,
                                       unsigned int *unc_rows, unsigned int *is_pending,
                                       unsigned int *failure_occurred) {
    NVML_TRY(enter_ecc(device));
    if (device->page->architecture < NVML_DEVICE_ARCH_AMPERE)
        return NVML_ERROR_NOT_SUPPORTED;
    if (!corr_rows || !unc_rows || !is_pending || !failure_occurred)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (nvml_has_instances(device))
        return NVML_ERROR_NOT_SUPPORTED;
    *corr_rows = atomic_load(&device->page->repair[SIM_REPAIR_CORRECTED]);
    *unc_rows = atomic_load(&device->page->repair[SIM_REPAIR_UNCORRECTED]);
    *is_pending = atomic_load(&device->page->repair[SIM_REPAIR_PENDING]);
    *failure_occurred = atomic_load(&device->page->repair[SIM_REPAIR_FAILED]);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPcieReplayCounter(nvmlDevice_t device, unsigned int *value) {
    NVML_TRY(nvml_enter(device));
    NVML_RETURN_VALUE(value, 0);
}

nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, nvmlPcieUtilCounter_t counter,
                                         unsigned int *value) {
    (void) counter;
    return nvmlDeviceGetPcieReplayCounter(device, value); /* nothing moves on the bus either */
}
