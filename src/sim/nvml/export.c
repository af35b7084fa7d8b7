/* SPDX-License-Identifier: Apache-2.0 */

/* nvidia-smi asks for a private table and gives up without it. It gets one of the size of 535's in
 * which every slot refuses, except the one that lists a device's processes; what it then asks of
 * the public functions is answered. */

#include <stdlib.h>
#include <string.h>

#include "sim/nvml/nvml.h"

static nvmlReturn_t refuse_export(void) {
    return NVML_ERROR_NOT_SUPPORTED;
}

static nvmlReturn_t list_processes(nvmlDevice_t device, unsigned int *count,
                                   nvmlTableProcess_t *infos) {
    if (!count || !infos)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlProcessInfo_t *list = calloc(*count, sizeof(*list));
    if (!list)
        return NVML_ERROR_MEMORY;
    nvmlReturn_t r = nvmlDeviceGetComputeRunningProcesses_v3(device, count, list);
    for (unsigned int i = 0; r == NVML_SUCCESS && i < *count; i++)
        infos[i] = (nvmlTableProcess_t){.pid = list[i].pid, .usedGpuMemory = list[i].usedGpuMemory};
    free(list);
    return r;
}

struct table {
    size_t bytes;
    void *slot[NVML_TABLE_SLOTS_535];
};

static struct table table;

nvmlReturn_t nvmlInternalGetExportTable(const void **out, const void *id) {
    static const unsigned char known[16] = {0x6c, 0x3e, 0xfe, 0xc4, 0x8f, 0xc9, 0x4c, 0x6e,
                                            0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4};
    static const unsigned char as_written[16] = {0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e,
                                                 0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4};
    if (!out || !id)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (memcmp(id, known, sizeof(known)) != 0 && memcmp(id, as_written, sizeof(as_written)) != 0)
        return NVML_ERROR_NOT_FOUND;
    for (size_t i = 0; i < NVML_TABLE_SLOTS_535; i++)
        table.slot[i] = (void *) refuse_export;
    table.slot[NVML_TABLE_SLOT_PROCESSES] = (void *) list_processes;
    table.bytes = sizeof(table);
    *out = &table;
    return NVML_SUCCESS;
}
