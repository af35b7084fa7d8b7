/* SPDX-License-Identifier: Apache-2.0 */

/* What CUDA says about memory: in a share, a device is as large as the limit, and used is what the
 * container has booked. Out-pointers that the driver tolerates being NULL are tolerated here. */

#include "intercept/charge.h"

/* The container's view of a device with `total` and `free` bytes. */
static void present(struct share *share, int device, uint64_t *free_bytes, uint64_t *total) {
    uint64_t limit = share_limit(share, device), used, left;

    if (limit == 0)
        return;
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

static uint64_t limit_of(CUdevice dev) {
    struct share *share = share_view();
    int device = share ? share_device(share, dev) : -1;

    return share && device >= 0 ? share_limit(share, device) : 0;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev) {
    CUresult r = driver.cuDeviceTotalMem_v2(bytes, dev);
    uint64_t limit = r == CUDA_SUCCESS ? limit_of(dev) : 0;

    if (limit && bytes && limit < *bytes)
        *bytes = limit;
    return r;
}

CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice dev) {
    CUresult r = driver.cuDeviceTotalMem(bytes, dev);
    uint64_t limit = r == CUDA_SUCCESS ? limit_of(dev) : 0;

    if (limit && bytes && limit < *bytes)
        *bytes = narrow(limit);
    return r;
}
