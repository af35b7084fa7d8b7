/* SPDX-License-Identifier: Apache-2.0 */

/* What NVML says about memory: in a share, a device is as large as its limit. The process lists are
 * in nvml_processes.c. */

#include "intercept/nvml.h"
#include "intercept/driver.h"

int nvml_device(struct share *share, nvmlDevice_t device) {
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];

    if (driver.nvmlDeviceGetUUID(device, uuid, sizeof(uuid)) != NVML_SUCCESS)
        return -1;
    uuid[sizeof(uuid) - 1] = '\0';
    return share_device_by_uuid(share, uuid);
}

/* False: the driver's own figures stand. */
static bool present(nvmlDevice_t device, unsigned long long *total, unsigned long long *used) {
    struct share *share = share_view();
    int index = share ? nvml_device(share, device) : -1;
    uint64_t limit = index >= 0 ? share_limit(share, index) : 0, booked;

    if (share && share->broken) {
        *total = *used = 0;
        return true;
    }
    if (limit == 0)
        return false;
    if (limit < *total)
        *total = limit;
    booked = share_used(share, index);
    *used = booked < *total ? booked : *total;
    return true;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    nvmlReturn_t r = driver.nvmlDeviceGetMemoryInfo(device, memory);

    if (r == NVML_SUCCESS && memory && present(device, &memory->total, &memory->used))
        memory->free = memory->total - memory->used;
    return r;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    nvmlReturn_t r = driver.nvmlDeviceGetMemoryInfo_v2(device, memory);

    if (r == NVML_SUCCESS && memory && present(device, &memory->total, &memory->used)) {
        memory->reserved = 0; /* the driver's part of the card is not in the limit */
        memory->free = memory->total - memory->used;
    }
    return r;
}
