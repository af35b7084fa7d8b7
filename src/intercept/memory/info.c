/* SPDX-License-Identifier: Apache-2.0 */

/* CUDA's queries of memory: in a share, a device is as large as the limit, and used is what the
 * container has booked. Out-pointers that may be NULL for the driver may be NULL here. */

#include "intercept/memory/charge.h"
#include "intercept/memory/view.h"

static void present(struct share *share, int device, uint64_t *free_bytes, uint64_t *total) {
    const struct part part = {.share = share, .devices = device >= 0 ? UINT64_C(1) << device : 0};
    struct figures figures = {.total = *total, .free = *free_bytes};

    if (device < 0 && !share->broken)
        return;
    part_figures(&part, &figures);
    *total = figures.total;
    *free_bytes = figures.free;
}

static CUresult get_info(CUresult (*query)(uint64_t *, uint64_t *), uint64_t *free_bytes,
                         uint64_t *total) {
    struct charge where;
    CUresult r = query(free_bytes, total);

    charge_on_current(&where);
    if (r == CUDA_SUCCESS && where.share)
        present(where.share, where.device, free_bytes, total);
    return r;
}

static CUresult query_wide(uint64_t *free_bytes, uint64_t *total) {
    return driver.cuMemGetInfo_v2(free_bytes, total);
}

static CUresult query_narrow(uint64_t *free_bytes, uint64_t *total) {
    unsigned int narrow_free = 0, narrow_total = 0;
    CUresult r = driver.cuMemGetInfo(&narrow_free, &narrow_total);

    *free_bytes = narrow_free;
    *total = narrow_total;
    return r;
}

static unsigned int narrow(uint64_t bytes) {
    return bytes > UINT32_MAX ? UINT32_MAX : (unsigned int) bytes;
}

#define GET_INFO(symbol, type, query, shown)                                                       \
    CUresult symbol(type *free, type *total) {                                                     \
        uint64_t free_bytes = 0, total_bytes = 0;                                                  \
        CUresult r;                                                                                \
                                                                                                   \
        if (!share_claim())                                                                        \
            return driver.symbol(free, total);                                                     \
        r = get_info(query, &free_bytes, &total_bytes);                                            \
        if (r == CUDA_SUCCESS && free)                                                             \
            *free = shown(free_bytes);                                                             \
        if (r == CUDA_SUCCESS && total)                                                            \
            *total = shown(total_bytes);                                                           \
        return r;                                                                                  \
    }

GET_INFO(cuMemGetInfo_v2, size_t, query_wide, (size_t))
GET_INFO(cuMemGetInfo, unsigned int, query_narrow, narrow)

/* The size that the share shows of a device of `bytes`. */
static uint64_t shown_size(CUdevice dev, uint64_t bytes) {
    struct share *share = share_view();
    uint64_t total, used;

    if (!share)
        return bytes;
    share_figures(share, share->broken ? -1 : share_device(share, dev), bytes, &total, &used);
    return total;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev) {
    CUresult r = driver.cuDeviceTotalMem_v2(bytes, dev);

    if (r == CUDA_SUCCESS && bytes)
        *bytes = shown_size(dev, *bytes);
    return r;
}

CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice dev) {
    CUresult r = driver.cuDeviceTotalMem(bytes, dev);

    if (r == CUDA_SUCCESS && bytes)
        *bytes = narrow(shown_size(dev, *bytes));
    return r;
}
