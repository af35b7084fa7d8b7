/* SPDX-License-Identifier: Apache-2.0 */

/* An NVML with two cards that goes wrong on demand, for gpu-world.h: a file of the name of a fault
 * in the directory $FAKE_NVML switches it on. */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "abi/nvml.h"

#define EXPORT __attribute__((visibility("default")))
#define GIB (1ULL << 30)

static int fault(const char *name) {
    char path[256];

    (void) snprintf(path, sizeof(path), "%s/%s", getenv("FAKE_NVML"), name);
    return access(path, F_OK) == 0;
}

static unsigned int index_of(nvmlDevice_t device) {
    return (unsigned int) ((uintptr_t) device - 1);
}

/* Card 1 in MIG mode has two MIG devices, with the numbers 0 and 2. */
#define INSTANCE 101u /* the handle of number 0 */

static bool is_instance(nvmlDevice_t device) {
    return (uintptr_t) device >= INSTANCE;
}

static unsigned int number_of(nvmlDevice_t device) {
    return (unsigned int) ((uintptr_t) device - INSTANCE);
}

/* "hang...": the call creates a file "in-hang..." and returns once the first file is gone. */
static void hang(const char *name) {
    char path[256];
    FILE *f;

    if (!fault(name))
        return;
    (void) snprintf(path, sizeof(path), "%s/in-%s", getenv("FAKE_NVML"), name);
    f = fopen(path, "we");
    if (f)
        (void) fclose(f);
    while (fault(name))
        (void) usleep(2000);
}

EXPORT nvmlReturn_t nvmlInit_v2(void);
nvmlReturn_t nvmlInit_v2(void) {
    return fault("unloaded") ? NVML_ERROR_DRIVER_NOT_LOADED : NVML_SUCCESS;
}

EXPORT const char *nvmlErrorString(nvmlReturn_t code);
const char *nvmlErrorString(nvmlReturn_t code) {
    return code == NVML_ERROR_GPU_IS_LOST ? "GPU is lost" : "Driver Not Loaded";
}

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count);
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
    if (fault("crash"))
        abort();
    hang("hang-count");
    *count = 2;
    return fault("unloaded") ? NVML_ERROR_UNINITIALIZED : NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device);
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    if (index == 1)
        hang("hang-handle-1");
    if (index == 1 && fault("lost"))
        return NVML_ERROR_GPU_IS_LOST;
    *device = (nvmlDevice_t) (uintptr_t) (index + 1);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length);
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
    if (is_instance(device))
        (void) snprintf(uuid, length, "MIG-fake-%u", number_of(device));
    else
        (void) snprintf(uuid, length, "GPU-fake-%u", index_of(device));
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length);
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length) {
    (void) snprintf(name, length, is_instance(device) ? "Fake MIG 1c.2g.20gb+me" : "Fake");
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor);
nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor) {
    *minor = index_of(device);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory);
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    if (is_instance(device) && number_of(device) == 2 && fault("mig-broken"))
        return NVML_ERROR_GPU_IS_LOST;
    hang(index_of(device) == 0 ? "hang-0" : "hang-1");
    *memory = (nvmlMemory_t){.total = 80 * GIB, .free = 79 * GIB, .used = GIB};
    return NVML_SUCCESS;
}

/* Card 1 is asked before and after its processes are listed. "taken": 4 GiB more after it,
 * "returned": before it. "no-reserve": the driver does not separate its reserve. */
EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory);
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    static unsigned int calls;
    unsigned long long used = GIB / 2;

    if (fault("no-reserve"))
        return NVML_ERROR_FUNCTION_NOT_FOUND;
    if (index_of(device) == 1 && fault(calls++ % 2 ? "taken" : "returned"))
        used += 4 * GIB;
    *memory = (nvmlMemory_v2_t){
        .version = memory->version, .total = 80 * GIB, .reserved = GIB / 2, .used = used};
    return NVML_SUCCESS;
}

/* Figures of load, all different. "silent-load": the driver does not tell them. */
static nvmlReturn_t tell(unsigned int *ret, unsigned int value) {
    if (fault("silent-load"))
        return NVML_ERROR_NOT_SUPPORTED;
    *ret = value;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *load);
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *load) {
    (void) device;
    (void) tell(&load->memory, 23);
    return tell(&load->gpu, 37);
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor,
                                             unsigned int *celsius);
nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor,
                                      unsigned int *celsius) {
    (void) device;
    return sensor == NVML_TEMPERATURE_GPU ? tell(celsius, 61) : NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *milliwatts);
nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *milliwatts) {
    (void) device;
    return tell(milliwatts, 312999);
}

EXPORT nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type,
                                           unsigned int *mhz);
nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz) {
    (void) device;
    return tell(mhz, type == NVML_CLOCK_SM ? 1410 : type == NVML_CLOCK_MEM ? 2619 : 0);
}

EXPORT nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned int *percent,
                                                    unsigned int *period_us);
nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned int *percent,
                                             unsigned int *period_us) {
    (void) device;
    *period_us = 1000000;
    return tell(percent, 41);
}

EXPORT nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned int *percent,
                                                    unsigned int *period_us);
nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned int *percent,
                                             unsigned int *period_us) {
    (void) device;
    *period_us = 1000000;
    return tell(percent, 43);
}

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current,
                                         unsigned int *pending);
nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current,
                                  unsigned int *pending) {
    if (index_of(device) == 0)
        return NVML_ERROR_NOT_SUPPORTED;
    *pending = (unsigned int) fault("mig-pending");
    *current = (unsigned int) fault("mig");
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count);
nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) {
    (void) device;
    *count = 7;
    return NVML_SUCCESS;
}

/* "mig-one": the one with number 0 was destroyed. */
EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
                                                        nvmlDevice_t *mig_device);
nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
                                                 nvmlDevice_t *mig_device) {
    if (index_of(device) != 1 || (index == 0 && fault("mig-one")) || (index != 0 && index != 2))
        return index > 4 ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_NOT_FOUND;
    *mig_device = (nvmlDevice_t) (uintptr_t) (INSTANCE + index);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id);
nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id) {
    *id = 7 + number_of(device);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id);
nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id) {
    *id = number_of(device) / 2;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *ret);
nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *ret) {
    (void) device;
    *ret = (nvmlDeviceAttributes_t){.multiprocessorCount = 14,
                                    .sharedCopyEngineCount = 1,
                                    .sharedDecoderCount = 2,
                                    .sharedEncoderCount = 3,
                                    .sharedJpegCount = 4,
                                    .sharedOfaCount = 5,
                                    .gpuInstanceSliceCount = 2,
                                    .computeInstanceSliceCount = 1};
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id,
                                                 nvmlGpuInstance_t *gpu_instance);
nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id,
                                          nvmlGpuInstance_t *gpu_instance) {
    (void) device;
    *gpu_instance = (nvmlGpuInstance_t) (uintptr_t) id;
    return NVML_SUCCESS;
}

/* A card of seven slices: no profile has more. */
EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int profile,
                                                        nvmlGpuInstanceProfileInfo_t *info);
nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int profile,
                                                 nvmlGpuInstanceProfileInfo_t *info) {
    static const unsigned int slices[] = {1, 2, 3, 4, 7};

    (void) device;
    if (profile >= sizeof(slices) / sizeof(slices[0]))
        return NVML_ERROR_NOT_SUPPORTED;
    *info = (nvmlGpuInstanceProfileInfo_t){.id = profile, .sliceCount = slices[profile]};
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t gpu_instance,
                                           nvmlGpuInstanceInfo_t *info);
nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t gpu_instance, nvmlGpuInstanceInfo_t *info) {
    *info = (nvmlGpuInstanceInfo_t){.id = (unsigned int) (uintptr_t) gpu_instance,
                                    .profileId = 19,
                                    .placement = {.start = 4, .size = 2}};
    return NVML_SUCCESS;
}

/* As drivers from 615 on have it: notes what it is asked in the file "limits". */
EXPORT nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device,
                                                 nvmlSetMemoryLimits_v1_t *limits);
nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, nvmlSetMemoryLimits_v1_t *limits) {
    char path[256];
    FILE *f;

    hang(index_of(device) == 0 ? "hang-limit-0" : "hang-limit-1");
    if (fault("no-limits"))
        return NVML_ERROR_NOT_SUPPORTED;
    if (limits->softLimit > limits->hardLimit || limits->hardLimit > 80 * GIB)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (access(limits->nameSpace, F_OK) < 0)
        return NVML_ERROR_OPERATING_SYSTEM;
    (void) snprintf(path, sizeof(path), "%s/limits", getenv("FAKE_NVML"));
    f = fopen(path, "ae");
    if (!f)
        return NVML_ERROR_UNKNOWN;
    (void) fprintf(f, "%u %s %llu %llu\n", index_of(device), limits->nameSpace, limits->softLimit,
                   limits->hardLimit);
    (void) fclose(f);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device,
                                                            unsigned int *count,
                                                            nvmlProcessInfo_v2_t *list);
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                     nvmlProcessInfo_v2_t *list) {
    if (is_instance(device)) {
        *count = 1;
        list[0] = (nvmlProcessInfo_v2_t){.pid = 2000 + number_of(device), .usedGpuMemory = GIB};
        return NVML_SUCCESS;
    }
    /* More than one packet holds. "untold": of one of them the driver does not tell. */
    *count = index_of(device) == 0 ? 100 : 0;
    for (unsigned int i = 0; i < *count; i++)
        list[i] = (nvmlProcessInfo_v2_t){.pid = 1000 + i, .usedGpuMemory = i};
    if (*count > 0 && fault("untold"))
        list[7].usedGpuMemory = NVML_VALUE_NOT_AVAILABLE_ULL;
    return NVML_SUCCESS;
}

/* Clients of MPS, one of which is in the other list, too; only where a file "mps" is there. */
EXPORT nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device,
                                                               unsigned int *count,
                                                               nvmlProcessInfo_v2_t *list);
nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                        nvmlProcessInfo_v2_t *list) {
    *count = index_of(device) == 0 && fault("mps") ? 2 : 0;
    for (unsigned int i = 0; i < *count; i++)
        list[i] = (nvmlProcessInfo_v2_t){.pid = 1099 + i, .usedGpuMemory = 500 + i};
    return NVML_SUCCESS;
}

/* The load of process 1000 on card 0: by the newer of two functions, or, with a file "older-load",
 * by the older one alone. "silent-loads": both have no samples. */
EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                                    nvmlProcessUtilizationSample_t *samples,
                                                    unsigned int *count, unsigned long long since);
nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                             nvmlProcessUtilizationSample_t *samples,
                                             unsigned int *count, unsigned long long since) {
    if (index_of(device) != 0 || !fault("older-load"))
        return NVML_ERROR_NOT_FOUND;
    *count = 1;
    samples[0] =
        (nvmlProcessUtilizationSample_t){.pid = 1000, .timeStamp = since + 1, .smUtil = 40};
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                          nvmlProcessesUtilizationInfo_t *info);
nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                   nvmlProcessesUtilizationInfo_t *info) {
    if (fault("older-load"))
        return NVML_ERROR_NOT_SUPPORTED;
    if (index_of(device) != 0 || fault("silent-loads"))
        return NVML_ERROR_NOT_FOUND;
    if (info->version != NVML_STRUCT_VERSION_OF(nvmlProcessesUtilizationInfo_t, 1) ||
        info->processSamplesCount < 1)
        return NVML_ERROR_INVALID_ARGUMENT;
    info->processSamplesCount = 1;
    info->procUtilArray[0] = (nvmlProcessUtilizationInfo_v1_t){
        .pid = 1000, .timeStamp = info->lastSeenTimeStamp + 1, .smUtil = 55};
    return NVML_SUCCESS;
}

/* A file xid-N becomes an event of card 1, once; recovery: the driver wants it reset. */
static unsigned int take_xid(void) {
    static const unsigned int known[] = {31, 48};

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        char path[256];

        (void) snprintf(path, sizeof(path), "%s/xid-%u", getenv("FAKE_NVML"), known[i]);
        if (unlink(path) == 0)
            return known[i];
    }
    return 0;
}

EXPORT nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set);
nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
    static int one;

    *set = (nvmlEventSet_t) (uintptr_t) &one;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types,
                                             nvmlEventSet_t set);
nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types,
                                      nvmlEventSet_t set) {
    return device && types && set ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data,
                                        unsigned int timeoutms);
nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data,
                                 unsigned int timeoutms) {
    (void) set;
    for (unsigned int ms = 0; ms < timeoutms; ms += 5) {
        unsigned int xid = take_xid();

        if (xid != 0) {
            *data = (nvmlEventData_t){.device = (nvmlDevice_t) (uintptr_t) 2,
                                      .eventType = nvmlEventTypeXidCriticalError,
                                      .eventData = xid,
                                      .gpuInstanceId = xid == 31 ? 5 : UINT32_MAX,
                                      .computeInstanceId = UINT32_MAX};
            return NVML_SUCCESS;
        }
        (void) usleep(5000);
    }
    return NVML_ERROR_TIMEOUT;
}

/* With the fault `vgpu`: one with a licence. */
EXPORT nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device,
                                                    nvmlGpuVirtualizationMode_t *mode);
nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device,
                                             nvmlGpuVirtualizationMode_t *mode) {
    (void) device;
    *mode = fault("vgpu") ? NVML_GPU_VIRTUALIZATION_MODE_VGPU : NVML_GPU_VIRTUALIZATION_MODE_NONE;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link,
                                             nvmlEnableState_t *state);
nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link,
                                      nvmlEnableState_t *state) {
    (void) device;
    *state = link == 1 ? NVML_FEATURE_DISABLED : NVML_FEATURE_ENABLED;
    return link < 18 ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

/* The value of a field is its number, but for those that decide on the card's health. */
EXPORT nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device,
                                                      nvmlRowRemapperHistogramValues_t *values);
nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device,
                                               nvmlRowRemapperHistogramValues_t *values) {
    (void) device;
    if (fault("silent"))
        return NVML_ERROR_NOT_SUPPORTED;
    *values = (nvmlRowRemapperHistogramValues_t){651, 652, 653, 654, 655};
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device,
                                                    nvmlEccSramErrorStatus_v1_t *status);
nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device,
                                             nvmlEccSramErrorStatus_v1_t *status) {
    (void) device;
    if (fault("silent"))
        return NVML_ERROR_NOT_SUPPORTED;
    if (status->version != NVML_STRUCT_VERSION_OF(nvmlEccSramErrorStatus_v1_t, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    status->bThresholdExceeded = 1;
    return NVML_SUCCESS;
}

/* Of all links: so many KiB each second, of which one passes between two calls. */
static void count_links(nvmlFieldValue_t *value) {
    static unsigned int calls;
    unsigned int seconds = 1 + calls++ / 4; /* of two cards, in two directions */

    value->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
    value->value.ullVal = 69500ULL * seconds;
    value->timestamp = 1000000LL * seconds;
}

EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count,
                                             nvmlFieldValue_t *values);
nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
    (void) device;
    for (int i = 0; i < count; i++) {
        unsigned int id = values[i].fieldId;

        values[i].nvmlReturn = fault("silent") ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
        values[i].valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
        values[i].value.uiVal = id;
        if (values[i].scopeId == UINT32_MAX)
            count_links(&values[i]);
        if (id == NVML_FI_DEV_ECC_DBE_VOL_TOTAL || id == NVML_FI_DEV_REMAPPED_FAILURE)
            values[i].value.uiVal = 0; /* the card is in order */
        if (id == NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)
            values[i].value.uiVal = fault("recovery") ? 1 : 0;
    }
    return NVML_SUCCESS;
}

/* ---- profiling metrics ---- */

EXPORT nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *support);
nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *support) {
    (void) device;
    support->isSupportedDevice = !fault("silent-load");
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *sample);
nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *sample) {
    static char room[2 * 2];
    static unsigned int used;

    if (used == sizeof(room))
        return NVML_ERROR_MEMORY;
    *sample = (nvmlGpmSample_t) (uintptr_t) &room[used++];
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample);
nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample) {
    return device && sample ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned int gi,
                                        nvmlGpmSample_t sample);
nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned int gi, nvmlGpmSample_t sample) {
    (void) gi;
    return nvmlGpmSampleGet(device, sample);
}

/* The value of a metric follows from its number. */
EXPORT nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *get);
nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *get) {
    for (unsigned int i = 0; i < get->numMetrics; i++) {
        get->metrics[i].nvmlReturn = NVML_SUCCESS;
        get->metrics[i].value = get->metrics[i].metricId * 3.125;
    }
    return NVML_SUCCESS;
}
