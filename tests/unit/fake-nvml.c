/* SPDX-License-Identifier: Apache-2.0 */

/* An NVML with two cards that goes wrong on demand, for test-gpu.c: a file of the name of a fault
 * in the directory $FAKE_NVML switches it on. */

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
    *count = 2;
    return fault("unloaded") ? NVML_ERROR_UNINITIALIZED : NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device);
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    if (index == 1 && fault("lost"))
        return NVML_ERROR_GPU_IS_LOST;
    *device = (nvmlDevice_t) (uintptr_t) (index + 1);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length);
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
    (void) snprintf(uuid, length, "GPU-fake-%u", index_of(device));
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length);
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length) {
    (void) device;
    (void) snprintf(name, length, "Fake");
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor);
nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor) {
    *minor = index_of(device);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory);
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    while (index_of(device) == 1 && fault("hang"))
        (void) pause();
    *memory = (nvmlMemory_t){.total = 80 * GIB, .free = 79 * GIB, .used = GIB};
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device,
                                                            unsigned int *count,
                                                            nvmlProcessInfo_v2_t *list);
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                     nvmlProcessInfo_v2_t *list) {
    /* More than one packet holds. */
    *count = index_of(device) == 0 ? 100 : 0;
    for (unsigned int i = 0; i < *count; i++)
        list[i] = (nvmlProcessInfo_v2_t){.pid = 1000 + i, .usedGpuMemory = i};
    return NVML_SUCCESS;
}
