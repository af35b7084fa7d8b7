/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/card_use.h"

#include <dlfcn.h>

#include "cli/proc_stat.h"

#define NVML_FN(symbol, params, args) typedef nvmlReturn_t symbol##_fn params;
#include "abi/hooks.def"

#define LOOK_UP(library, symbol) symbol##_fn *symbol = (symbol##_fn *) dlsym(library, #symbol)
#define LIST_MAX (CARD_USE_PROCESSES / 2) /* of each of two lists */

/* What a card has in use, less what the driver keeps for itself where it says so. */
static bool read_used(void *nvml, nvmlDevice_t device, uint64_t *ret) {
    LOOK_UP(nvml, nvmlDeviceGetMemoryInfo);
    LOOK_UP(nvml, nvmlDeviceGetMemoryInfo_v2);
    nvmlMemory_v2_t second = {.version = NVML_STRUCT_VERSION_OF(nvmlMemory_v2_t, 2)};
    nvmlMemory_t first;

    if (nvmlDeviceGetMemoryInfo_v2 && nvmlDeviceGetMemoryInfo_v2(device, &second) == NVML_SUCCESS)
        *ret = second.used;
    else if (nvmlDeviceGetMemoryInfo && nvmlDeviceGetMemoryInfo(device, &first) == NVML_SUCCESS)
        *ret = first.used;
    else
        return false;
    return true;
}

typedef nvmlReturn_t list_fn(nvmlDevice_t, unsigned int *, nvmlProcessInfo_t *);

struct listed {
    uint64_t living, all; /* bytes */
    bool complete;
};

static void add_list(list_fn *list, nvmlDevice_t device, struct card_use *use, struct listed *sum) {
    static nvmlProcessInfo_t process[LIST_MAX];
    unsigned int n = LIST_MAX;

    if (!list || list(device, &n, process) != NVML_SUCCESS) {
        sum->complete = false;
        return;
    }
    for (unsigned int i = 0; i < n; i++) {
        use->pids[use->npids] = process[i].pid;
        use->bytes[use->npids++] = 0;
        if (process[i].usedGpuMemory == NVML_VALUE_NOT_AVAILABLE_ULL) {
            sum->complete = false;
            continue;
        }
        use->bytes[use->npids - 1] = process[i].usedGpuMemory;
        sum->all += process[i].usedGpuMemory;
        if (!proc_stat_of(process[i].pid).ending)
            sum->living += process[i].usedGpuMemory;
    }
}

static uint64_t less(uint64_t from, uint64_t bytes) {
    return from > bytes ? from - bytes : 0;
}

bool card_use_read(void *nvml, nvmlDevice_t device, struct card_use *ret) {
    LOOK_UP(nvml, nvmlDeviceGetComputeRunningProcesses_v3);
    LOOK_UP(nvml, nvmlDeviceGetGraphicsRunningProcesses_v3);
    struct listed sum = {.complete = true};
    uint64_t before, later;

    ret->npids = 0;
    if (!read_used(nvml, device, &before))
        return false;
    add_list(nvmlDeviceGetComputeRunningProcesses_v3, device, ret, &sum);
    add_list(nvmlDeviceGetGraphicsRunningProcesses_v3, device, ret, &sum);
    /* Memory that came or went meanwhile can be in the card's figure or in a process's. */
    if (!read_used(nvml, device, &later))
        return false;
    ret->most = less(before > later ? before : later, sum.living);
    ret->least = sum.complete ? less(before < later ? before : later, sum.all) : 0;
    return true;
}

bool card_use_read_uuid(void *nvml, const char *uuid, struct card_use *ret) {
    LOOK_UP(nvml, nvmlDeviceGetHandleByUUID);
    nvmlDevice_t device;

    return nvmlDeviceGetHandleByUUID && nvmlDeviceGetHandleByUUID(uuid, &device) == NVML_SUCCESS &&
           card_use_read(nvml, device, ret);
}
