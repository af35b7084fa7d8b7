/* SPDX-License-Identifier: Apache-2.0 */

/* Linear, pitched and managed memory. */

#include "intercept/memory/charge.h"
#include "intercept/memory/spill.h"

static CUresult settle_pointer(struct charge *charge, CUresult result, const CUdeviceptr *dptr) {
    return charge_settle(charge, result, ENTRY_POINTER, result == CUDA_SUCCESS ? *dptr : 0,
                         charge->context);
}

/* Where the card is full although the limit has room, memory of the host is tried. */
static CUresult or_spilled(const struct charge *charge, CUresult r, CUdeviceptr *dptr, size_t bytes,
                           unsigned int flags, bool managed) {
    if (r != CUDA_ERROR_OUT_OF_MEMORY || !charge->share)
        return r;
    return spill_allocate(charge, dptr, bytes, flags, managed);
}

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytes) {
    struct charge charge;
    CUresult r = CUDA_ERROR_OUT_OF_MEMORY;

    charge_on_current(&charge);
    if (charge_reserve(&charge, bytes)) {
        r = driver.cuMemAlloc_v2(dptr, bytes);
        r = settle_pointer(&charge, r, dptr);
    }
    return or_spilled(&charge, r, dptr, bytes, CU_MEM_ATTACH_GLOBAL, false);
}

CUresult cuMemAlloc(CUdeviceptr_v1 *dptr, unsigned int bytes) {
    struct charge charge;
    CUdeviceptr wide = 0;
    CUresult r;

    charge_on_current(&charge);
    if (!charge_reserve(&charge, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = driver.cuMemAlloc(dptr, bytes);
    if (r == CUDA_SUCCESS)
        wide = *dptr;
    return settle_pointer(&charge, r, &wide);
}

/* Any part of managed memory can migrate to the card, so that all of it is booked. What does not
 * fit is kept off the card. */
CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytes, unsigned int flags) {
    struct charge charge;
    CUresult r = CUDA_ERROR_OUT_OF_MEMORY;

    charge_on_current(&charge);
    if (charge_reserve(&charge, bytes)) {
        r = driver.cuMemAllocManaged(dptr, bytes, flags);
        r = settle_pointer(&charge, r, dptr);
    }
    return or_spilled(&charge, r, dptr, bytes, flags, true);
}

/* Rows as far apart as a device likes them. */
#define PITCH_OF_SPILLED 512

static CUresult spill_pitched(const struct charge *charge, CUdeviceptr *dptr, size_t *pitch,
                              size_t width, size_t height) {
    size_t row = (width + PITCH_OF_SPILLED - 1) & ~(size_t) (PITCH_OF_SPILLED - 1), bytes;
    CUresult r;

    if (row < width || __builtin_mul_overflow(row, height, &bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = or_spilled(charge, CUDA_ERROR_OUT_OF_MEMORY, dptr, bytes, CU_MEM_ATTACH_GLOBAL, false);
    if (r == CUDA_SUCCESS)
        *pitch = row;
    return r;
}

/* Only the driver knows the pitch: width * height are booked before the call, and the rest after
 * it. */
CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pitch, size_t width, size_t height,
                            unsigned int element_bytes) {
    struct charge charge;
    uint64_t least, actual;
    CUresult r;

    charge_on_current(&charge);
    if (__builtin_mul_overflow(width, height, &least))
        least = UINT64_MAX;
    if (!charge_reserve(&charge, least))
        return spill_pitched(&charge, dptr, pitch, width, height);
    r = driver.cuMemAllocPitch_v2(dptr, pitch, width, height, element_bytes);
    if (r == CUDA_SUCCESS) {
        if (__builtin_mul_overflow(*pitch, height, &actual) || actual < least)
            actual = least;
        if (!charge_add(&charge, actual - least)) {
            (void) driver.cuMemFree_v2(*dptr);
            r = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    return settle_pointer(&charge, r, dptr);
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *dptr, unsigned int *pitch, unsigned int width,
                         unsigned int height, unsigned int element_bytes) {
    struct charge charge;
    CUdeviceptr wide = 0;
    uint64_t least = (uint64_t) width * height, actual;
    CUresult r;

    charge_on_current(&charge);
    if (!charge_reserve(&charge, least))
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = driver.cuMemAllocPitch(dptr, pitch, width, height, element_bytes);
    if (r == CUDA_SUCCESS) {
        wide = *dptr;
        actual = (uint64_t) *pitch * height;
        if (actual > least && !charge_add(&charge, actual - least)) {
            (void) driver.cuMemFree(*dptr);
            r = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    return settle_pointer(&charge, r, &wide);
}

CUresult cuMemFree_v2(CUdeviceptr dptr) {
    struct refund refund;

    refund_begin_pointer(&refund, dptr);
    return refund_settle(&refund, driver.cuMemFree_v2(dptr));
}

CUresult cuMemFree(CUdeviceptr_v1 dptr) {
    struct refund refund;

    refund_begin_pointer(&refund, dptr);
    return refund_settle(&refund, driver.cuMemFree(dptr));
}
