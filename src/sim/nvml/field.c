/* SPDX-License-Identifier: Apache-2.0 */

/* Field values: one table from NVML's field numbers to the functions that know. */

#include <stdio.h>
#include <time.h>

#include "sim/nvml/nvml.h"

static nvmlReturn_t as_int(nvmlReturn_t r, unsigned int value, nvmlFieldValue_t *out) {
    out->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
    out->value.uiVal = value;
    return r;
}

static nvmlReturn_t as_long(nvmlReturn_t r, unsigned long long value, nvmlFieldValue_t *out) {
    out->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
    out->value.ullVal = value;
    return r;
}

static nvmlReturn_t as_read(nvmlDevice_t device,
                            nvmlReturn_t (*get)(nvmlDevice_t device, unsigned int *value),
                            nvmlFieldValue_t *out) {
    unsigned int value = 0;
    nvmlReturn_t r = get(device, &value);
    return as_int(r, value, out);
}

static nvmlReturn_t ecc_mode(nvmlDevice_t device, unsigned int which, nvmlFieldValue_t *out) {
    nvmlEnableState_t mode[2] = {NVML_FEATURE_DISABLED};
    nvmlReturn_t r = nvmlDeviceGetEccMode(device, &mode[0], &mode[1]);
    return as_int(r, mode[which], out);
}

/* which: 0, 1 of the driver's life, 2, 3 of the card's; even: corrected. */
static nvmlReturn_t ecc_count(nvmlDevice_t device, unsigned int which, nvmlFieldValue_t *out) {
    unsigned long long n = 0;
    nvmlReturn_t r = nvmlDeviceGetTotalEccErrors(device, (nvmlMemoryErrorType_t) (which & 1),
                                                 (nvmlEccCounterType_t) (which >> 1), &n);
    return as_long(r, n, out);
}

/* which: pages for errors that could be corrected, that could not, whether some are pending. */
static nvmlReturn_t retired(nvmlDevice_t device, unsigned int which, nvmlFieldValue_t *out) {
    nvmlEnableState_t pending;
    nvmlReturn_t r = nvmlDeviceGetRetiredPagesPendingStatus(device, &pending);
    return as_int(r, atomic_load(&device->page->repair[SIM_REPAIR_CORRECTED + which]), out);
}

static nvmlReturn_t remapped(nvmlDevice_t device, unsigned int which, nvmlFieldValue_t *out) {
    unsigned int n[4] = {0};
    nvmlReturn_t r = nvmlDeviceGetRemappedRows(device, &n[0], &n[1], &n[2], &n[3]);
    return as_int(r, n[which], out);
}

/* Only memory on the package reports its temperature. */
static nvmlReturn_t memory_temperature(nvmlDevice_t device, unsigned int which,
                                       nvmlFieldValue_t *out) {
    unsigned int temperature = 0;
    (void) which;
    nvmlReturn_t r = nvmlDeviceGetTemperature(device, NVML_TEMPERATURE_GPU, &temperature);
    if (r == NVML_SUCCESS && device->page->bus_bits < 1024)
        r = NVML_ERROR_NOT_SUPPORTED;
    return as_int(r, temperature + 3, out);
}

static nvmlReturn_t energy(nvmlDevice_t device, unsigned int which, nvmlFieldValue_t *out) {
    unsigned long long mj = 0;
    (void) which;
    nvmlReturn_t r = nvmlDeviceGetTotalEnergyConsumption(device, &mj);
    return as_long(r, mj, out);
}

static nvmlReturn_t power(nvmlDevice_t device, unsigned int which, nvmlFieldValue_t *out) {
    (void) which;
    return as_read(device, nvmlDeviceGetPowerUsage, out);
}

/* which: the least, the most, the one at start, the one in force. */
static nvmlReturn_t limit(nvmlDevice_t device, unsigned int which, nvmlFieldValue_t *out) {
    unsigned int mw[4] = {0};
    nvmlReturn_t r = nvmlDeviceGetPowerManagementLimitConstraints(device, &mw[0], &mw[1]);
    if (r == NVML_SUCCESS)
        r = nvmlDeviceGetPowerManagementDefaultLimit(device, &mw[2]);
    if (r == NVML_SUCCESS)
        r = nvmlDeviceGetEnforcedPowerLimit(device, &mw[3]);
    return as_int(r, mw[which], out);
}

static nvmlReturn_t replays(nvmlDevice_t device, unsigned int which, nvmlFieldValue_t *out) {
    (void) which;
    return as_read(device, nvmlDeviceGetPcieReplayCounter, out);
}

static nvmlReturn_t link_count(nvmlDevice_t device, unsigned int which, nvmlFieldValue_t *out) {
    (void) which;
    return as_int(device->page->nvlink_max ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED,
                  device->page->nvlink_max, out);
}

/* Of each link: the second generation has 25 GB/s and direction, as have all after it. */
static nvmlReturn_t link_speed(nvmlDevice_t device, unsigned int which, nvmlFieldValue_t *out) {
    (void) which;
    return as_int(device->page->nvlink_max ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED,
                  device->page->nvlinks ? 25781 : 0, out);
}

/* Copies take the host's time: nothing moves over the links. */
static nvmlReturn_t link_bytes(nvmlDevice_t device, unsigned int which, nvmlFieldValue_t *out) {
    (void) which;
    return as_long(device->page->nvlink_max ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED, 0, out);
}

/* NVML's numbers: 0 nothing to do, 1 reset the card, 2 reboot. The field came with driver 570. */
static nvmlReturn_t recovery(nvmlDevice_t device, unsigned int which, nvmlFieldValue_t *out) {
    unsigned int driver = 0;
    (void) which;
    (void) sscanf(nvml_client()->host->driver, "%u", &driver);
    return as_int(driver >= 570 ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED,
                  atomic_load(&device->page->state) == SIM_NEEDS_RESET, out);
}

static const struct {
    unsigned int first, last; /* field numbers */
    nvmlReturn_t (*read)(nvmlDevice_t device, unsigned int which, nvmlFieldValue_t *out);
    unsigned int which; /* of the first; the next ones count on */
} fields[] = {
    {NVML_FI_DEV_ECC_CURRENT, NVML_FI_DEV_ECC_PENDING, ecc_mode, 0},
    {NVML_FI_DEV_ECC_SBE_VOL_TOTAL, NVML_FI_DEV_ECC_DBE_AGG_TOTAL, ecc_count, 0},
    {NVML_FI_DEV_RETIRED_SBE, NVML_FI_DEV_RETIRED_PENDING, retired, 0},
    {NVML_FI_DEV_MEMORY_TEMP, NVML_FI_DEV_MEMORY_TEMP, memory_temperature, 0},
    {NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, energy, 0},
    {NVML_FI_DEV_NVLINK_SPEED_MBPS_L0, NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON, link_speed, 0},
    {NVML_FI_DEV_NVLINK_LINK_COUNT, NVML_FI_DEV_NVLINK_LINK_COUNT, link_count, 0},
    {NVML_FI_DEV_PCIE_REPLAY_COUNTER, NVML_FI_DEV_PCIE_REPLAY_COUNTER, replays, 0},
    {NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, NVML_FI_DEV_NVLINK_THROUGHPUT_RAW_RX, link_bytes, 0},
    {NVML_FI_DEV_REMAPPED_COR, NVML_FI_DEV_REMAPPED_FAILURE, remapped, 0},
    {NVML_FI_DEV_POWER_AVERAGE, NVML_FI_DEV_POWER_INSTANT, power, 0},
    {NVML_FI_DEV_POWER_MIN_LIMIT, NVML_FI_DEV_POWER_CURRENT_LIMIT, limit, 0},
    {NVML_FI_DEV_ENERGY, NVML_FI_DEV_ENERGY, energy, 0},
    {NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, recovery, 0},
};

static nvmlReturn_t read_field(nvmlDevice_t device, nvmlFieldValue_t *out) {
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        if (out->fieldId >= fields[i].first && out->fieldId <= fields[i].last)
            return fields[i].read(device, fields[i].which + out->fieldId - fields[i].first, out);
    return NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int values_count,
                                      nvmlFieldValue_t *values) {
    NVML_TRY(nvml_enter(device));
    if (!values || values_count <= 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < values_count; i++) {
        struct timespec ts;
        (void) clock_gettime(CLOCK_REALTIME, &ts);
        values[i].timestamp = (long long) ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
        values[i].latencyUsec = 0;
        values[i].nvmlReturn = read_field(device, &values[i]);
    }
    return NVML_SUCCESS;
}
