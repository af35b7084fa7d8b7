/* SPDX-License-Identifier: Apache-2.0 */

/* What CUDA says about memory: in a share, a device is as large as the limit, and used is what the
 * container has booked. Out-pointers that the driver tolerates being NULL are tolerated here. */

#include "intercept/charge.h"
#include "intercept/pool.h"

/* The container's view of a device with `total` and `free` bytes. */
static void present(struct share *share, int device, uint64_t *free_bytes, uint64_t *total) {
    uint64_t limit = share_limit(share, device), used, left;

    if (share->broken) {
        *total = *free_bytes = 0; /* as much as anybody gets */
        return;
    }
    if (limit == 0)
        return;
    pools_refresh(share);
    used = share_used(share, device);
    left = used < limit ? limit - used : 0;
    if (limit < *total)
        *total = limit;
    if (left < *free_bytes)
        *free_bytes = left;
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
    uint64_t free_bytes, total_bytes;
    size_t driver_free = 0, driver_total = 0;
    struct charge where;
    CUresult r;

    charge_on_current(&where);
    if (!where.share)
        return driver.cuMemGetInfo_v2(free, total);
    r = driver.cuMemGetInfo_v2(&driver_free, &driver_total);
    if (r != CUDA_SUCCESS)
        return r;
    free_bytes = driver_free;
    total_bytes = driver_total;
    present(where.share, where.device, &free_bytes, &total_bytes);
    if (free)
        *free = free_bytes;
    if (total)
        *total = total_bytes;
    return r;
}

static unsigned int narrow(uint64_t bytes) {
    return bytes > UINT32_MAX ? UINT32_MAX : (unsigned int) bytes;
}

CUresult cuMemGetInfo(unsigned int *free, unsigned int *total) {
    unsigned int driver_free = 0, driver_total = 0;
    uint64_t free_bytes, total_bytes;
    struct charge where;
    CUresult r;

    charge_on_current(&where);
    if (!where.share)
        return driver.cuMemGetInfo(free, total);
    r = driver.cuMemGetInfo(&driver_free, &driver_total);
    if (r != CUDA_SUCCESS)
        return r;
    free_bytes = driver_free;
    total_bytes = driver_total;
    present(where.share, where.device, &free_bytes, &total_bytes);
    if (free)
        *free = narrow(free_bytes);
    if (total)
        *total = narrow(total_bytes);
    return r;
}

/* What a device of `bytes` looks like in the share. */
static uint64_t shown(CUdevice dev, uint64_t bytes) {
    struct share *share = share_view();
    uint64_t limit;

    if (!share)
        return bytes;
    if (share->broken)
        return 0;
    limit = share_limit(share, share_device(share, dev));
    return limit && limit < bytes ? limit : bytes;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev) {
    CUresult r = driver.cuDeviceTotalMem_v2(bytes, dev);

    if (r == CUDA_SUCCESS && bytes)
        *bytes = shown(dev, *bytes);
    return r;
}

CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice dev) {
    CUresult r = driver.cuDeviceTotalMem(bytes, dev);

    if (r == CUDA_SUCCESS && bytes)
        *bytes = narrow(shown(dev, *bytes));
    return r;
}
