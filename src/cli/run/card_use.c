/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run/card_use.h"

#include "cli/run/driver_calls.h"
#include "cli/run/proc_stat.h"

#define LIST_MAX (CARD_USE_PROCESSES / 3) /* of each of three lists */

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

/* A process that computes and draws is in both lists, each time with all of its memory. Returns
 * whether the driver says how much that is. */
static bool add_process(const nvmlProcessInfo_t *p, struct card_use *use) {
    bool known = p->usedGpuMemory != NVML_VALUE_NOT_AVAILABLE_ULL;
    uint64_t bytes = known ? p->usedGpuMemory : 0;
    size_t i = 0;

    while (i < use->npids && use->pids[i] != p->pid)
        i++;
    if (i == use->npids) {
        use->pids[use->npids++] = p->pid;
        use->bytes[i] = 0;
    }
    if (use->bytes[i] < bytes)
        use->bytes[i] = bytes;
    return known;
}

/* Returns whether the list is complete and says of each process what it holds. */
static bool add_list(list_fn *list, nvmlDevice_t device, struct card_use *use) {
    static nvmlProcessInfo_t process[LIST_MAX];
    unsigned int n = LIST_MAX;
    bool complete = true;

    if (!list || list(device, &n, process) != NVML_SUCCESS)
        return false;
    for (unsigned int i = 0; i < n; i++)
        complete &= add_process(&process[i], use);
    return complete;
}

/* Clients of MPS are in a list of their own, which not every driver and device has. */
static bool add_mps_clients(list_fn *list, nvmlDevice_t device, struct card_use *use) {
    unsigned int n = 0;

    if (!list || list(device, &n, NULL) == NVML_ERROR_NOT_SUPPORTED)
        return true;
    return add_list(list, device, use);
}

static uint64_t subtract(uint64_t from, uint64_t bytes) {
    return from > bytes ? from - bytes : 0;
}

bool card_use_read(void *nvml, nvmlDevice_t device, struct card_use *ret) {
    LOOK_UP(nvml, nvmlDeviceGetComputeRunningProcesses_v3);
    LOOK_UP(nvml, nvmlDeviceGetGraphicsRunningProcesses_v3);
    LOOK_UP(nvml, nvmlDeviceGetMPSComputeRunningProcesses_v3);
    uint64_t before, later, living = 0, all = 0;
    bool complete;

    ret->npids = 0;
    if (!read_used(nvml, device, &before))
        return false;
    complete = add_list(nvmlDeviceGetComputeRunningProcesses_v3, device, ret);
    complete &= add_list(nvmlDeviceGetGraphicsRunningProcesses_v3, device, ret);
    complete &= add_mps_clients(nvmlDeviceGetMPSComputeRunningProcesses_v3, device, ret);
    for (size_t i = 0; i < ret->npids; i++) {
        all += ret->bytes[i];
        living += proc_stat_of(ret->pids[i]).ending ? 0 : ret->bytes[i];
    }
    /* Memory that came or went meanwhile can be in the card's figure or in a process's. */
    if (!read_used(nvml, device, &later))
        return false;
    ret->most = subtract(before > later ? before : later, living);
    ret->least = complete ? subtract(before < later ? before : later, all) : 0;
    return true;
}

bool card_use_read_uuid(void *nvml, const char *uuid, struct card_use *ret) {
    LOOK_UP(nvml, nvmlDeviceGetHandleByUUID);
    nvmlDevice_t device;

    return nvmlDeviceGetHandleByUUID && nvmlDeviceGetHandleByUUID(uuid, &device) == NVML_SUCCESS &&
           card_use_read(nvml, device, ret);
}
