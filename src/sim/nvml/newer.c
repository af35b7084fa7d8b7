/* SPDX-License-Identifier: Apache-2.0 */

/* Younger forms of what older functions say, and small things that they left out. */

#include <stdio.h>
#include <string.h>

#include "sim/nvml/nvml.h"

nvmlReturn_t nvmlSystemGetDriverBranch(nvmlSystemDriverBranchInfo_v1_t *branch_info,
                                       unsigned int length) {
    nvmlReturn_t r = nvml_ready();
    if (r != NVML_SUCCESS)
        return r;
    NVML_CHECK_VERSION(branch_info, nvmlSystemDriverBranchInfo_v1_t, 1);
    char text[32];
    (void) snprintf(text, sizeof(text), "r%.3s_00", nvml_client()->host->driver);
    if (length > sizeof(branch_info->branch))
        length = sizeof(branch_info->branch);
    return nvml_put_string(branch_info->branch, length, text);
}

/* It came with driver 550. */
nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device,
                                             nvmlEccSramErrorStatus_v1_t *status) {
    unsigned int driver = 0;
    NVML_TRY(nvml_enter(device));
    (void) sscanf(nvml_client()->host->driver, "%u", &driver);
    if (driver < 550)
        return NVML_ERROR_FUNCTION_NOT_FOUND;
    NVML_CHECK_VERSION(status, nvmlEccSramErrorStatus_v1_t, 1);
    if (!device->page->ecc || device->page->architecture < NVML_DEVICE_ARCH_AMPERE)
        return NVML_ERROR_NOT_SUPPORTED;
    *status = (nvmlEccSramErrorStatus_v1_t){.version = status->version,
                                            .bThresholdExceeded =
                                                atomic_load(&device->page->sram_exceeded)};
    return NVML_SUCCESS;
}

/* Of units in a rack, and of cards that were left out on purpose, there are none. */
static nvmlReturn_t report_none(unsigned int *count) {
    NVML_TRY(nvml_ready());
    NVML_RETURN_VALUE(count, 0);
}

nvmlReturn_t nvmlUnitGetCount(unsigned int *unit_count) {
    return report_none(unit_count);
}

nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned int *device_count) {
    return report_none(device_count);
}

nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_v1_t *pci) {
    nvmlPciInfo_t plain;
    NVML_TRY(nvmlDeviceGetPciInfo_v3(device, pci ? &plain : NULL));
    if (pci->version != NVML_STRUCT_VERSION_OF(nvmlPciInfoExt_v1_t, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    *pci = (nvmlPciInfoExt_v1_t){.version = pci->version,
                                 .domain = plain.domain,
                                 .bus = plain.bus,
                                 .device = plain.device,
                                 .pciDeviceId = plain.pciDeviceId,
                                 .pciSubSystemId = plain.pciSubSystemId,
                                 .baseClass = 3,                             /* display */
                                 .subClass = device->page->passive ? 2 : 0}; /* 3D, VGA */
    memcpy(pci->busId, plain.busId, sizeof(pci->busId));
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_v1_t *temperature) {
    unsigned int degrees;
    NVML_TRY(nvml_enter(device));
    NVML_CHECK_VERSION(temperature, nvmlTemperature_v1_t, 1);
    nvmlReturn_t r = nvmlDeviceGetTemperature(device, temperature->sensorType, &degrees);
    if (r == NVML_SUCCESS)
        temperature->temperature = (int) degrees;
    return r;
}

nvmlReturn_t nvmlDeviceGetPowerSource(nvmlDevice_t device, nvmlPowerSource_t *power_source) {
    NVML_GIVE(device, power_source, 0); /* the mains */
}

/* Position on the board: unknown for single cards. */
nvmlReturn_t nvmlDeviceGetModuleId(nvmlDevice_t device, unsigned int *module_id) {
    NVML_GIVE(device, module_id, device->page->nvlink_max >= 12 ? device->page->minor + 1 : 0);
}

/* As nvmlDeviceGetPerformanceState: small cards have a state for idling. */
static unsigned int performance_states(nvmlDevice_t device, nvmlPstates_t list[2]) {
    list[0] = NVML_PSTATE_0;
    list[1] = NVML_PSTATE_8;
    return device->page->power_limit_mw < NVML_IDLING_CARD_MW ? 2 : 1;
}

nvmlReturn_t nvmlDeviceGetSupportedPerformanceStates(nvmlDevice_t device, nvmlPstates_t *pstates,
                                                     unsigned int size) {
    NVML_TRY(nvml_enter(device));
    nvmlPstates_t list[2];
    unsigned int n = performance_states(device, list),
                 room = size / (unsigned int) sizeof(*pstates);
    if (!pstates || size == 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned int i = 0; i < room; i++)
        pstates[i] = i < n ? list[i] : NVML_PSTATE_UNKNOWN;
    return room < n ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMinMaxClockOfPState(nvmlDevice_t device, nvmlClockType_t type,
                                              nvmlPstates_t pstate, unsigned int *min_clock_mhz,
                                              unsigned int *max_clock_mhz) {
    unsigned int top;
    NVML_TRY(nvmlDeviceGetMaxClockInfo(device, type, &top));
    if (!min_clock_mhz || !max_clock_mhz)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlPstates_t list[2];
    if (pstate != NVML_PSTATE_0 && (performance_states(device, list) < 2 || pstate != list[1]))
        return NVML_ERROR_NOT_SUPPORTED;
    *max_clock_mhz = top;
    *min_clock_mhz = type == NVML_CLOCK_MEM ? top : NVML_IDLE_CLOCK_MHZ;
    return NVML_SUCCESS;
}
