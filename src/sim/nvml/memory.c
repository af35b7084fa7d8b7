/* SPDX-License-Identifier: Apache-2.0 */

/* Memory, and the processes that use it. */

#include <stdlib.h>
#include <string.h>

#include "sim/nvml/nvml.h"

enum { DETAIL_COMPUTE, DETAIL_GRAPHICS, DETAIL_MPS }; /* nvmlProcessDetailList_t.mode */

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    NVML_TRY(nvml_enter_working(device));
    if (!memory)
        return NVML_ERROR_INVALID_ARGUMENT;
    NVML_TRY(nvml_may_aggregate(device));
    const struct sim_page *p = device->page;
    memory->total = p->memory_total;
    memory->used = atomic_load(&p->memory_used) + p->memory_reserved;
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    NVML_TRY(nvml_enter_working(device));
    NVML_CHECK_VERSION(memory, nvmlMemory_v2_t, 2);
    NVML_TRY(nvml_may_aggregate(device));
    const struct sim_page *p = device->page;
    memory->total = p->memory_total;
    memory->reserved = p->memory_reserved;
    memory->used = atomic_load(&p->memory_used);
    memory->free = memory->total - memory->reserved - memory->used;
    unsigned long long hard, used;
    if (nvml_own_limit(device, &hard, &used)) {
        unsigned long long left = used < hard ? hard - used : 0;
        memory->total = hard;
        memory->reserved = 0;
        memory->used = used;
        memory->free = memory->free < left ? memory->free : left;
    }
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *bar1_memory) {
    NVML_TRY(nvml_enter(device));
    if (!bar1_memory)
        return NVML_ERROR_INVALID_ARGUMENT;
    unsigned long long total = 1ull << 28;
    while (total < device->page->memory_total)
        total <<= 1;
    *bar1_memory = (nvmlBAR1Memory_t){
        .bar1Total = total, .bar1Free = total - (1ull << 20), .bar1Used = 1ull << 20};
    return NVML_SUCCESS;
}

/* The clients of MPS on a device, or its other processes. The caller frees `*ret`. */
static nvmlReturn_t fetch_processes(nvmlDevice_t device, bool mps, struct sim_process **ret,
                                    unsigned int *ret_count) {
    struct nvml_list list;
    NVML_TRY(nvml_request_list(device, SIM_PROCESSES, 0, sizeof(**ret), SIM_LIST_MAX, &list));
    *ret = list.entries;
    *ret_count = 0;
    for (unsigned int i = 0; i < list.count; i++)
        if (((*ret)[i].part & SIM_OF_MPS) == (mps ? SIM_OF_MPS : 0))
            (*ret)[(*ret_count)++] = (*ret)[i];
    return NVML_SUCCESS;
}

/* NVML's sizing protocol: *count is the capacity on input, and the number of entries on output. */
static nvmlReturn_t list_processes(nvmlDevice_t device, bool mps, unsigned int *count, void *infos,
                                   size_t entry_size) {
    NVML_TRY(nvml_enter(device));
    if (!count || (*count > 0 && !infos))
        return NVML_ERROR_INVALID_ARGUMENT;
    struct sim_process *list;
    unsigned int n;
    NVML_TRY(fetch_processes(device, mps, &list, &n));
    nvmlReturn_t r = n > *count ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
    for (unsigned int i = 0; r == NVML_SUCCESS && i < n; i++) {
        bool part = list[i].part & SIM_PART;
        nvmlProcessInfo_v2_t info = {
            .pid = list[i].pid,
            .usedGpuMemory = list[i].bytes,
            .gpuInstanceId = part ? list[i].part >> 8 & 0xff : NVML_NO_INSTANCE,
            .computeInstanceId = part ? list[i].part & 0xff : NVML_NO_INSTANCE};
        memcpy((char *) infos + i * entry_size, &info, entry_size); /* v1 is the beginning of v2 */
    }
    *count = n;
    free(list);
    return r;
}

static nvmlReturn_t list_none(nvmlDevice_t device, unsigned int *count) {
    NVML_TRY(nvml_enter(device));
    NVML_RETURN_VALUE(count, 0);
}

/* Each version of a list has entries of its own. */
#define LIST_PARAMETERS(entry) nvmlDevice_t device, unsigned int *info_count, entry *infos

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(LIST_PARAMETERS(nvmlProcessInfo_v1_t)) {
    return list_processes(device, false, info_count, infos, sizeof(*infos));
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(LIST_PARAMETERS(nvmlProcessInfo_v2_t)) {
    return list_processes(device, false, info_count, infos, sizeof(*infos));
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(LIST_PARAMETERS(nvmlProcessInfo_t)) {
    return list_processes(device, false, info_count, infos, sizeof(*infos));
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(LIST_PARAMETERS(nvmlProcessInfo_v1_t)) {
    (void) infos;
    return list_none(device, info_count);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(LIST_PARAMETERS(nvmlProcessInfo_v2_t)) {
    (void) infos;
    return list_none(device, info_count);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(LIST_PARAMETERS(nvmlProcessInfo_t)) {
    (void) infos;
    return list_none(device, info_count);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses(LIST_PARAMETERS(nvmlProcessInfo_v1_t)) {
    return list_processes(device, true, info_count, infos, sizeof(*infos));
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(LIST_PARAMETERS(nvmlProcessInfo_v2_t)) {
    return list_processes(device, true, info_count, infos, sizeof(*infos));
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(LIST_PARAMETERS(nvmlProcessInfo_t)) {
    return list_processes(device, true, info_count, infos, sizeof(*infos));
}

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                   nvmlProcessDetailList_t *plist) {
    NVML_TRY(nvml_enter(device));
    NVML_CHECK_VERSION(plist, nvmlProcessDetailList_t, 1);
    struct sim_process *list;
    unsigned int n;
    nvmlReturn_t r = fetch_processes(device, plist->mode == DETAIL_MPS, &list, &n);
    if (r != NVML_SUCCESS)
        return r;
    if (plist->mode == DETAIL_GRAPHICS)
        n = 0; /* there are none */
    if (n > plist->numProcArrayEntries || (n > 0 && !plist->procArray))
        r = NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned int i = 0; r == NVML_SUCCESS && i < n; i++)
        plist->procArray[i] = (nvmlProcessDetail_v1_t){
            .pid = list[i].pid,
            .usedGpuMemory = list[i].bytes,
            .gpuInstanceId = list[i].part & SIM_PART ? list[i].part >> 8 & 0xff : NVML_NO_INSTANCE,
            .computeInstanceId = list[i].part & SIM_PART ? list[i].part & 0xff : NVML_NO_INSTANCE};
    plist->numProcArrayEntries = n;
    free(list);
    return r;
}
