/* SPDX-License-Identifier: Apache-2.0 */

/* nvidia-smi also uses a table of private functions of NVML, whose slots are not documented. Some
 * of them list the processes of the whole machine. Inside a share with limits the program gets a
 * table of the same size in which every slot refuses, except for the one whose use is known;
 * nvidia-smi then calls the public functions, which are hooked. */

#include <stddef.h>
#include <stdlib.h>

#include "intercept/nvml/nvml.h"
#include "intercept/resolve/driver.h"

/* Four times the size of the largest table known so far. */
#define SLOTS_MAX 1023

struct export_table {
    size_t bytes;
    void *slot[SLOTS_MAX];
};

static nvmlReturn_t refuse(void) {
    return NVML_ERROR_NOT_SUPPORTED;
}

static nvmlReturn_t list_processes(nvmlDevice_t device, unsigned int *count,
                                   nvmlTableProcess_t *infos) {
    unsigned int room = count ? *count : 0, n = MEMBERS_MAX;
    nvmlProcessInfo_t *list;
    nvmlReturn_t r;

    if (!count || !infos)
        return NVML_ERROR_INVALID_ARGUMENT;
    list = calloc(n, sizeof(*list));
    if (!list)
        return NVML_ERROR_MEMORY;
    r = nvmlDeviceGetComputeRunningProcesses_v3(device, &n, list);
    if (r == NVML_SUCCESS) {
        *count = n;
        r = n > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
    }
    for (unsigned int i = 0; r == NVML_SUCCESS && i < n; i++)
        infos[i] = (nvmlTableProcess_t){.pid = list[i].pid, .usedGpuMemory = list[i].usedGpuMemory};
    free(list);
    return r;
}

static bool slots_are_known(size_t bytes) {
    size_t slots = bytes / sizeof(void *) - 1;

    return slots == NVML_TABLE_SLOTS_535 || slots == NVML_TABLE_SLOTS_550;
}

nvmlReturn_t nvmlInternalGetExportTable(const void **table, const void *id) {
    static struct export_table guarded;
    const struct export_table *real = NULL;
    nvmlReturn_t r;

    if (!table || !nvml_limited())
        return driver.nvmlInternalGetExportTable(table, id);
    r = driver.nvmlInternalGetExportTable((const void **) (void *) &real, id);
    if (r != NVML_SUCCESS)
        return r;
    if (!real || real->bytes > sizeof(guarded) || real->bytes < sizeof(void *))
        return NVML_ERROR_NOT_SUPPORTED;
    /* Threads that come at the same time write the same. */
    for (size_t i = 0; i < SLOTS_MAX; i++)
        __atomic_store_n(&guarded.slot[i],
                         i == NVML_TABLE_SLOT_PROCESSES && slots_are_known(real->bytes)
                             ? (void *) list_processes
                             : (void *) refuse,
                         __ATOMIC_RELAXED);
    __atomic_store_n(&guarded.bytes, real->bytes, __ATOMIC_RELEASE);
    *table = &guarded;
    return r;
}
