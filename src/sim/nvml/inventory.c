/* SPDX-License-Identifier: Apache-2.0 */

/* What is known of a device but never changes, or is always nothing: firmware, engines that are
 * idle, errors that do not happen, clocks that may be set. */

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "sim/nvml/nvml.h"

static nvmlReturn_t refuse_on_device(nvmlDevice_t device) {
    nvmlReturn_t r = nvml_enter(device);
    return r == NVML_SUCCESS ? NVML_ERROR_NOT_SUPPORTED : r;
}

/* -- firmware -------------------------------------------------------------------------------- */

nvmlReturn_t nvmlDeviceGetBoardPartNumber(nvmlDevice_t device, char *part_number,
                                          unsigned int length) {
    if (nvml_enter(device) == NVML_SUCCESS && !device->page->passive)
        return NVML_ERROR_NOT_SUPPORTED; /* boards of others */
    char text[32];
    (void) snprintf(text, sizeof(text), "900-2%04X-0000-000",
                    nvml_enter(device) == NVML_SUCCESS ? device->page->pci_id >> 16 : 0);
    NVML_GIVE_STRING(device, part_number, length, text);
}

nvmlReturn_t nvmlDeviceGetInforomImageVersion(nvmlDevice_t device, char *version,
                                              unsigned int length) {
    NVML_GIVE_STRING(device, version, length, "G500.0200.00.05");
}

nvmlReturn_t nvmlDeviceGetInforomVersion(nvmlDevice_t device, nvmlInforomObject_t object,
                                         char *version, unsigned int length) {
    if (object == NVML_INFOROM_OEM)
        NVML_GIVE_STRING(device, version, length, "2.1");
    if (object == NVML_INFOROM_ECC && nvml_enter(device) == NVML_SUCCESS && device->page->ecc)
        NVML_GIVE_STRING(device, version, length, "6.16");
    return refuse_on_device(device);
}

nvmlReturn_t nvmlDeviceValidateInforom(nvmlDevice_t device) {
    return nvml_enter(device);
}

/* Turing and later have the processor that runs it. */
nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t device, char *version) {
    NVML_TRY(nvml_enter(device));
    if (!version)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (device->page->architecture < NVML_DEVICE_ARCH_TURING)
        return NVML_ERROR_NOT_SUPPORTED;
    return nvml_put_string(version, NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE,
                           nvml_client()->host->driver);
}

nvmlReturn_t nvmlDeviceGetGspFirmwareMode(nvmlDevice_t device, unsigned int *is_enabled,
                                          unsigned int *default_mode) {
    NVML_TRY(nvml_enter(device));
    if (!is_enabled || !default_mode)
        return NVML_ERROR_INVALID_ARGUMENT;
    *is_enabled = *default_mode = device->page->architecture >= NVML_DEVICE_ARCH_TURING;
    return NVML_SUCCESS;
}

/* -- modes that these cards, or this system, do not have ----------------------------------------
 */

nvmlReturn_t nvmlDeviceGetDriverModel(nvmlDevice_t device, nvmlDriverModel_t *current,
                                      nvmlDriverModel_t *pending) {
    (void) current;
    (void) pending;
    return refuse_on_device(device); /* of Windows */
}

nvmlReturn_t nvmlDeviceGetGpuOperationMode(nvmlDevice_t device, nvmlGpuOperationMode_t *current,
                                           nvmlGpuOperationMode_t *pending) {
    (void) current;
    (void) pending;
    return refuse_on_device(device); /* of Kepler */
}

nvmlReturn_t nvmlDeviceGetConfComputeProtectedMemoryUsage(nvmlDevice_t device,
                                                          nvmlMemory_t *memory) {
    (void) memory;
    return refuse_on_device(device);
}

nvmlReturn_t nvmlDeviceGetAPIRestriction(nvmlDevice_t device, nvmlRestrictedAPI_t api_type,
                                         nvmlEnableState_t *is_restricted) {
    if (api_type == NVML_RESTRICTED_API_SET_APPLICATION_CLOCKS)
        NVML_GIVE(device, is_restricted, NVML_FEATURE_DISABLED);
    return refuse_on_device(device);
}

/* -- the bus --------------------------------------------------------------------------------- */

nvmlReturn_t nvmlDeviceGetIrqNum(nvmlDevice_t device, unsigned int *irq_num) {
    NVML_GIVE(device, irq_num, 120 + device->page->minor);
}

/* Megabytes a second and lane: generation 3 is 8000, each further one twice as fast. */
nvmlReturn_t nvmlDeviceGetPcieSpeed(nvmlDevice_t device, unsigned int *pcie_speed) {
    NVML_GIVE(device, pcie_speed, 8000u << (device->page->pcie_gen - 3));
}

/* NVML's number of the speed is that of the generation. */
nvmlReturn_t nvmlDeviceGetPcieLinkMaxSpeed(nvmlDevice_t device, unsigned int *max_speed) {
    NVML_GIVE(device, max_speed, device->page->pcie_gen);
}

/* -- memory errors --------------------------------------------------------------------------- */

nvmlReturn_t nvmlDeviceGetDefaultEccMode(nvmlDevice_t device, nvmlEnableState_t *default_mode) {
    if (nvml_enter(device) == NVML_SUCCESS && !device->page->ecc)
        return NVML_ERROR_NOT_SUPPORTED;
    NVML_GIVE(device, default_mode, NVML_FEATURE_ENABLED);
}

nvmlReturn_t nvmlDeviceGetDetailedEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t error_type,
                                            nvmlEccCounterType_t counter_type,
                                            nvmlEccErrorCounts_t *ecc_counts) {
    unsigned long long total;
    nvmlReturn_t r =
        nvmlDeviceGetTotalEccErrors(device, error_type, counter_type, ecc_counts ? &total : NULL);
    if (r == NVML_SUCCESS)
        *ecc_counts = (nvmlEccErrorCounts_t){.deviceMemory = total};
    return r;
}

/* Pages are retired up to Turing, rows remapped from Ampere on. */
static nvmlReturn_t enter_retiring(nvmlDevice_t device, const void *out) {
    NVML_TRY(nvml_enter(device));
    if (!device->page->ecc || device->page->architecture >= NVML_DEVICE_ARCH_AMPERE)
        return NVML_ERROR_NOT_SUPPORTED;
    return out ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, nvmlPageRetirementCause_t cause,
                                       unsigned int *page_count, unsigned long long *addresses) {
    NVML_TRY(enter_retiring(device, page_count));
    if ((unsigned int) cause > NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR)
        return NVML_ERROR_INVALID_ARGUMENT;
    bool uncorrected = cause == NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR;
    unsigned int room = *page_count;
    *page_count = atomic_load(
        &device->page->repair[uncorrected ? SIM_REPAIR_UNCORRECTED : SIM_REPAIR_CORRECTED]);
    for (unsigned int i = 0; addresses && i < room && i < *page_count; i++)
        addresses[i] = (2ull * i + uncorrected) << 12;
    return !addresses || room < *page_count ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRetiredPages_v2(nvmlDevice_t device, nvmlPageRetirementCause_t cause,
                                          unsigned int *page_count, unsigned long long *addresses,
                                          unsigned long long *timestamps) {
    (void) timestamps;
    return nvmlDeviceGetRetiredPages(device, cause, page_count, addresses);
}

nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device,
                                                    nvmlEnableState_t *is_pending) {
    nvmlReturn_t r = enter_retiring(device, is_pending);
    if (r == NVML_SUCCESS)
        *is_pending = atomic_load(&device->page->repair[SIM_REPAIR_PENDING])
                          ? NVML_FEATURE_ENABLED
                          : NVML_FEATURE_DISABLED;
    return r;
}

nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device,
                                               nvmlRowRemapperHistogramValues_t *values) {
    NVML_TRY(nvml_enter(device));
    if (!device->page->ecc || device->page->architecture < NVML_DEVICE_ARCH_AMPERE)
        return NVML_ERROR_NOT_SUPPORTED;
    if (!values)
        return NVML_ERROR_INVALID_ARGUMENT;
    unsigned int none = atomic_load(&device->page->repair[SIM_REPAIR_EXHAUSTED]);
    unsigned int remapped = atomic_load(&device->page->repair[SIM_REPAIR_CORRECTED]) +
                            atomic_load(&device->page->repair[SIM_REPAIR_UNCORRECTED]);
    if (none == 0)
        none = atomic_load(&device->page->repair[SIM_REPAIR_FAILED]);
    if (remapped > SIM_BANKS - none) /* one of each bank */
        remapped = SIM_BANKS - none;
    *values = (nvmlRowRemapperHistogramValues_t){
        .max = SIM_BANKS - none - remapped, .high = remapped, .none = none};
    return NVML_SUCCESS;
}

/* -- engines for video ----------------------------------------------------------------------- */

/* The big cards of Ampere and Hopper have no encoder. */
static bool has_encoder(nvmlDevice_t device) {
    return device->page->cc_major < 8 || device->page->cc_minor != 0;
}

nvmlReturn_t nvmlDeviceGetEncoderCapacity(nvmlDevice_t device, nvmlEncoderType_t encoder_query_type,
                                          unsigned int *encoder_capacity) {
    if (nvml_enter(device) == NVML_SUCCESS &&
        (!has_encoder(device) || encoder_query_type > NVML_ENCODER_QUERY_HEVC))
        return encoder_query_type == NVML_ENCODER_QUERY_UNKNOWN ? NVML_ERROR_INVALID_ARGUMENT
                                                                : NVML_ERROR_NOT_SUPPORTED;
    NVML_GIVE(device, encoder_capacity, 100);
}

nvmlReturn_t nvmlDeviceGetEncoderStats(nvmlDevice_t device, unsigned int *session_count,
                                       unsigned int *average_fps, unsigned int *average_latency) {
    NVML_TRY(nvml_enter(device));
    if (!session_count || !average_fps || !average_latency)
        return NVML_ERROR_INVALID_ARGUMENT;
    *session_count = *average_fps = *average_latency = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEncoderSessions(nvmlDevice_t device, unsigned int *session_count,
                                          nvmlEncoderSessionInfo_t *session_infos) {
    (void) session_infos;
    NVML_GIVE(device, session_count, 0);
}

nvmlReturn_t nvmlDeviceGetFBCStats(nvmlDevice_t device, nvmlFBCStats_t *fbc_stats) {
    NVML_GIVE(device, fbc_stats, (nvmlFBCStats_t){0});
}

nvmlReturn_t nvmlDeviceGetFBCSessions(nvmlDevice_t device, unsigned int *session_count,
                                      nvmlFBCSessionInfo_t *session_info) {
    (void) session_info;
    NVML_GIVE(device, session_count, 0);
}

/* -- fans, clocks ---------------------------------------------------------------------------- */

nvmlReturn_t nvmlDeviceGetFanSpeed_v2(nvmlDevice_t device, unsigned int fan, unsigned int *speed) {
    unsigned int fans = 0;
    NVML_TRY(nvmlDeviceGetNumFans(device, &fans));
    if (fans > 0 && fan >= fans)
        return NVML_ERROR_INVALID_ARGUMENT;
    return nvmlDeviceGetFanSpeed(device, speed);
}

nvmlReturn_t nvmlDeviceGetMaxCustomerBoostClock(nvmlDevice_t device, nvmlClockType_t clock_type,
                                                unsigned int *clock_mhz) {
    return nvmlDeviceGetMaxClockInfo(device, clock_type, clock_mhz);
}

nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t device, unsigned int *count,
                                                unsigned int *clocks_mhz) {
    NVML_TRY(nvml_enter(device));
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    unsigned int room = *count;
    *count = 1;
    if (room == 0)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    if (!clocks_mhz)
        return NVML_ERROR_INVALID_ARGUMENT;
    clocks_mhz[0] = device->page->memory_clock_mhz;
    return NVML_SUCCESS;
}

/* In steps of 15 MHz, the highest first. */
nvmlReturn_t nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t device,
                                                  unsigned int memory_clock_mhz,
                                                  unsigned int *count, unsigned int *clocks_mhz) {
    NVML_TRY(nvml_enter(device));
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (memory_clock_mhz != device->page->memory_clock_mhz)
        return NVML_ERROR_NOT_FOUND;
    unsigned int room = *count, top = device->page->sm_clock_mhz;
    *count = (top - NVML_IDLE_CLOCK_MHZ) / 15 + 1;
    if (room < *count)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    if (!clocks_mhz)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned int i = 0; i < *count; i++)
        clocks_mhz[i] = top - 15 * i;
    return NVML_SUCCESS;
}

/* Nothing ever held it back. */
nvmlReturn_t nvmlDeviceGetViolationStatus(nvmlDevice_t device,
                                          nvmlPerfPolicyType_t perf_policy_type,
                                          nvmlViolationTime_t *viol_time) {
    struct timespec ts;
    if ((unsigned int) perf_policy_type > NVML_PERF_POLICY_TOTAL_BASE_CLOCKS)
        return NVML_ERROR_INVALID_ARGUMENT;
    (void) clock_gettime(CLOCK_REALTIME, &ts);
    unsigned long long now =
        (unsigned long long) ts.tv_sec * 1000000u + (unsigned long long) ts.tv_nsec / 1000u;
    NVML_GIVE(device, viol_time, ((nvmlViolationTime_t){.referenceTime = now}));
}

nvmlReturn_t nvmlDeviceGetDynamicPstatesInfo(nvmlDevice_t device,
                                             nvmlGpuDynamicPstatesInfo_t *dynamic_pstates_info) {
    unsigned int gpu, memory;
    NVML_TRY(nvml_load(device, &gpu, &memory));
    if (!dynamic_pstates_info)
        return NVML_ERROR_INVALID_ARGUMENT;
    const unsigned int percent[] = {gpu, memory, 0, 0};
    memset(dynamic_pstates_info, 0, sizeof(*dynamic_pstates_info));
    for (int i = 0; i < 4; i++) {
        dynamic_pstates_info->utilization[i].bIsPresent = 1;
        dynamic_pstates_info->utilization[i].percentage = percent[i];
    }
    return NVML_SUCCESS;
}
