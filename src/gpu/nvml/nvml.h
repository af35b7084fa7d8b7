/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* NVML by dlopen: the functions that the child calls. Not every driver has all of them: those
 * marked OPTIONAL are NULL where they are missing. */

#include "abi/nvml.h"

struct err;

#define NVML_BINDING(REQUIRED, OPTIONAL)                                                           \
    REQUIRED(nvmlInit_v2, (void) )                                                                 \
    REQUIRED(nvmlDeviceGetCount_v2, (unsigned int *) )                                             \
    REQUIRED(nvmlDeviceGetHandleByIndex_v2, (unsigned int, nvmlDevice_t *) )                       \
    REQUIRED(nvmlDeviceGetUUID, (nvmlDevice_t, char *, unsigned int) )                             \
    REQUIRED(nvmlDeviceGetName, (nvmlDevice_t, char *, unsigned int) )                             \
    REQUIRED(nvmlDeviceGetMinorNumber, (nvmlDevice_t, unsigned int *) )                            \
    REQUIRED(nvmlDeviceGetMemoryInfo, (nvmlDevice_t, nvmlMemory_t *) )                             \
    OPTIONAL(nvmlDeviceGetMemoryInfo_v2, (nvmlDevice_t, nvmlMemory_v2_t *) )                       \
    OPTIONAL(nvmlSystemGetDriverVersion, (char *, unsigned int) )                                  \
    OPTIONAL(nvmlDeviceGetPciInfo_v3, (nvmlDevice_t, nvmlPciInfo_t *) )                            \
    OPTIONAL(nvmlDeviceGetMigMode, (nvmlDevice_t, unsigned int *, unsigned int *) )                \
    OPTIONAL(nvmlDeviceGetUtilizationRates, (nvmlDevice_t, nvmlUtilization_t *) )                  \
    OPTIONAL(nvmlDeviceGetTemperature, (nvmlDevice_t, nvmlTemperatureSensors_t, unsigned int *) )  \
    OPTIONAL(nvmlDeviceGetPowerUsage, (nvmlDevice_t, unsigned int *) )                             \
    OPTIONAL(nvmlDeviceGetClockInfo, (nvmlDevice_t, nvmlClockType_t, unsigned int *) )             \
    OPTIONAL(nvmlDeviceGetComputeRunningProcesses_v3,                                              \
             (nvmlDevice_t, unsigned int *, nvmlProcessInfo_v2_t *) )                              \
    OPTIONAL(nvmlDeviceGetComputeRunningProcesses_v2,                                              \
             (nvmlDevice_t, unsigned int *, nvmlProcessInfo_v2_t *) )                              \
    OPTIONAL(nvmlDeviceGetGraphicsRunningProcesses_v3,                                             \
             (nvmlDevice_t, unsigned int *, nvmlProcessInfo_v2_t *) )                              \
    OPTIONAL(nvmlDeviceGetGraphicsRunningProcesses_v2,                                             \
             (nvmlDevice_t, unsigned int *, nvmlProcessInfo_v2_t *) )                              \
    OPTIONAL(nvmlDeviceGetMPSComputeRunningProcesses_v3,                                           \
             (nvmlDevice_t, unsigned int *, nvmlProcessInfo_v2_t *) )                              \
    OPTIONAL(nvmlDeviceGetFieldValues, (nvmlDevice_t, int, nvmlFieldValue_t *) )                   \
    OPTIONAL(nvmlDeviceGetMemoryAffinity,                                                          \
             (nvmlDevice_t, unsigned int, unsigned long *, nvmlAffinityScope_t))                   \
    OPTIONAL(nvmlDeviceGetTopologyCommonAncestor,                                                  \
             (nvmlDevice_t, nvmlDevice_t, nvmlGpuTopologyLevel_t *) )                              \
    OPTIONAL(nvmlDeviceGetNvLinkState, (nvmlDevice_t, unsigned int, nvmlEnableState_t *) )         \
    OPTIONAL(nvmlDeviceGetNvLinkRemoteDeviceType,                                                  \
             (nvmlDevice_t, unsigned int, nvmlIntNvLinkDeviceType_t *) )                           \
    OPTIONAL(nvmlDeviceGetNvLinkRemotePciInfo_v2, (nvmlDevice_t, unsigned int, nvmlPciInfo_t *) )  \
    OPTIONAL(nvmlEventSetCreate, (nvmlEventSet_t *) )                                              \
    OPTIONAL(nvmlDeviceRegisterEvents, (nvmlDevice_t, unsigned long long, nvmlEventSet_t))         \
    OPTIONAL(nvmlEventSetWait_v2, (nvmlEventSet_t, nvmlEventData_t *, unsigned int) )              \
    OPTIONAL(nvmlDeviceGetMemoryLimits_v1, (nvmlDevice_t, nvmlGetMemoryLimits_v1_t *) )            \
    OPTIONAL(nvmlDeviceSetMemoryLimits_v1, (nvmlDevice_t, nvmlSetMemoryLimits_v1_t *) )            \
    OPTIONAL(nvmlDeviceGetProcessUtilization, (nvmlDevice_t, nvmlProcessUtilizationSample_t *,     \
                                               unsigned int *, unsigned long long) )

struct nvml {
    const char *(*error_string)(nvmlReturn_t); /* never NULL */
#define NVML_POINTER(name, params) nvmlReturn_t(*name) params;
    NVML_BINDING(NVML_POINTER, NVML_POINTER)
#undef NVML_POINTER
};

/* Loads the library, for the life of the process, and resolves; nothing is called yet. */
int nvml_load(const char *path, struct nvml *ret, struct err *err);
