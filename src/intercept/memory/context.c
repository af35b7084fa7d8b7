/* SPDX-License-Identifier: Apache-2.0 */

/* Start of the driver, and contexts: the cost of a context itself is booked like an allocation, and
 * all that was allocated in it is freed with it. */

#include "intercept/compute/throttle.h"
#include "intercept/compute/timeslice.h"
#include "intercept/memory/charge.h"

CUresult cuInit(unsigned int flags) {
    CUresult r = driver.cuInit(flags);
    struct share *share;

    /* Here rather than at the first allocation, which is timed more often. */
    share = r == CUDA_SUCCESS ? share_claim() : NULL;
    if (share && share->denied)
        return CUDA_ERROR_NOT_PERMITTED;
    if (share && share->limits)
        timeslice_begin(share->limits, share->ndevices);
    return r;
}

static uint64_t context_cost(const struct charge *charge) {
    if (!charge->share || !charge->share->limits || charge->device < 0)
        return 0;
    return limits_context(charge->share->limits, (unsigned int) charge->device);
}

static bool reserve_context(struct charge *charge, CUdevice dev) {
    charge_on_device(charge, dev);
    return charge_reserve(charge, context_cost(charge));
}

static CUresult settle_context(struct charge *charge, CUresult r, CUcontext *ctx) {
    uint64_t key = r == CUDA_SUCCESS ? (uint64_t) (uintptr_t) *ctx : 0;

    return charge_settle(charge, r, ENTRY_CONTEXT, key, key);
}

CUresult cuCtxCreate(CUcontext *ctx, unsigned int flags, CUdevice dev) {
    struct charge charge;

    if (!reserve_context(&charge, dev))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return settle_context(&charge, driver.cuCtxCreate(ctx, flags, dev), ctx);
}

CUresult cuCtxCreate_v2(CUcontext *ctx, unsigned int flags, CUdevice dev) {
    struct charge charge;

    if (!reserve_context(&charge, dev))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return settle_context(&charge, driver.cuCtxCreate_v2(ctx, flags, dev), ctx);
}

CUresult cuCtxCreate_v3(CUcontext *ctx, CUexecAffinityParam *params_array, int num_params,
                        unsigned int flags, CUdevice dev) {
    struct charge charge;

    if (!reserve_context(&charge, dev))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return settle_context(&charge, driver.cuCtxCreate_v3(ctx, params_array, num_params, flags, dev),
                          ctx);
}

CUresult cuCtxCreate_v4(CUcontext *ctx, CUctxCreateParams *ctx_create_params, unsigned int flags,
                        CUdevice dev) {
    struct charge charge;

    if (!reserve_context(&charge, dev))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return settle_context(&charge, driver.cuCtxCreate_v4(ctx, ctx_create_params, flags, dev), ctx);
}

static CUresult end_context(CUcontext ctx, CUresult (*destroy)(CUcontext ctx)) {
    uint64_t context = (uint64_t) (uintptr_t) ctx;
    struct context_end end;
    CUresult r;

    throttle_context_ends(context);
    context_end_begin(&end, context);
    r = destroy(ctx);
    throttle_context_ended(context, r == CUDA_SUCCESS);
    context_end_settle(&end, r == CUDA_SUCCESS);
    return r;
}

CUresult cuCtxDestroy_v2(CUcontext ctx) {
    return end_context(ctx, driver.cuCtxDestroy_v2);
}

CUresult cuCtxDestroy(CUcontext ctx) {
    return end_context(ctx, driver.cuCtxDestroy);
}

/* Legacy: a created context lives until it was detached as often as it was created and attached. */

CUresult cuCtxAttach(CUcontext *ctx, unsigned int flags) {
    CUresult r = driver.cuCtxAttach(ctx, flags);
    struct share *share = r == CUDA_SUCCESS ? share_claim() : NULL;

    if (share)
        (void) books_ref(share, ENTRY_CONTEXT, (uint64_t) (uintptr_t) *ctx);
    return r;
}

CUresult cuCtxDetach(CUcontext ctx) {
    uint64_t context = (uint64_t) (uintptr_t) ctx;
    struct share *share = share_claim();

    if (!share || books_unref(share, ENTRY_CONTEXT, context) != 1)
        return driver.cuCtxDetach(ctx);
    return end_context(ctx, driver.cuCtxDetach);
}

/* The primary context of a device, shared by all users in the process: it costs once, when it is
 * made. The driver is called under a lock here, so that the context does not come or go between the
 * query of its state and the end of the call. */

static bool primary_active(CUdevice dev) {
    unsigned int flags;
    int active = 0;

    return driver.cuDevicePrimaryCtxGetState(dev, &flags, &active) == CUDA_SUCCESS && active;
}

static CUresult retain_booked(struct charge *charge, CUcontext *ctx, CUdevice dev) {
    CUresult r;

    if (primary_active(dev))
        return driver.cuDevicePrimaryCtxRetain(ctx, dev);
    if (!charge_reserve(charge, context_cost(charge)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = driver.cuDevicePrimaryCtxRetain(ctx, dev);
    if (r == CUDA_SUCCESS)
        holdings_of(charge->share)->contexts.primary[dev] = (uint64_t) (uintptr_t) *ctx;
    return settle_context(charge, r, ctx);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice dev) {
    struct charge charge;
    struct lock *lock;
    CUresult r;

    charge_on_device(&charge, dev);
    if (!charge.share || dev < 0 || dev >= ORDINALS_MAX)
        return driver.cuDevicePrimaryCtxRetain(ctx, dev);
    lock = &holdings_of(charge.share)->contexts.lock[dev];
    lock_take(lock);
    r = retain_booked(&charge, ctx, dev);
    lock_drop(lock);
    return r;
}

/* A release ends the context only if it was the last; a reset always does. */
static CUresult leave_primary(CUdevice dev, CUresult (*leave)(CUdevice dev)) {
    struct share *share = share_claim();
    struct contexts *contexts;
    struct context_end end;
    uint64_t context;
    bool ended;
    CUresult r;

    if (!share || dev < 0 || dev >= ORDINALS_MAX)
        return leave(dev);
    contexts = &holdings_of(share)->contexts;
    lock_take(&contexts->lock[dev]);
    context = contexts->primary[dev];
    throttle_context_ends(context);
    context_end_begin(&end, context);
    r = leave(dev);
    ended = r == CUDA_SUCCESS && context && !primary_active(dev);
    throttle_context_ended(context, ended);
    if (ended)
        contexts->primary[dev] = 0;
    context_end_settle(&end, ended);
    lock_drop(&contexts->lock[dev]);
    return r;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev) {
    return leave_primary(dev, driver.cuDevicePrimaryCtxRelease);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
    return leave_primary(dev, driver.cuDevicePrimaryCtxRelease_v2);
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev) {
    return leave_primary(dev, driver.cuDevicePrimaryCtxReset);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
    return leave_primary(dev, driver.cuDevicePrimaryCtxReset_v2);
}
