/* SPDX-License-Identifier: Apache-2.0 */

/* Start of the driver, and contexts: what a context itself costs is booked like an allocation, and
 * all that was allocated in it goes with it. */

#include "intercept/charge.h"

CUresult cuInit(unsigned int flags) {
    CUresult r = driver.cuInit(flags);

    /* Here rather than at the first allocation, which is timed more often. */
    if (r == CUDA_SUCCESS)
        (void) share_claim();
    return r;
}

static uint64_t context_cost(const struct charge *charge) {
    if (!charge->share || !charge->share->limits || charge->device < 0)
        return 0;
    return limits_context(charge->share->limits, (unsigned int) charge->device);
}

static bool begin(struct charge *charge, CUdevice dev) {
    charge_on_device(charge, dev);
    return charge_reserve(charge, context_cost(charge));
}

static CUresult settle(struct charge *charge, CUresult r, CUcontext *ctx) {
    uint64_t key = r == CUDA_SUCCESS ? (uint64_t) (uintptr_t) *ctx : 0;

    return charge_settle(charge, r, ENTRY_CONTEXT, key, key);
}

CUresult cuCtxCreate(CUcontext *ctx, unsigned int flags, CUdevice dev) {
    struct charge charge;

    if (!begin(&charge, dev))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return settle(&charge, driver.cuCtxCreate(ctx, flags, dev), ctx);
}

CUresult cuCtxCreate_v2(CUcontext *ctx, unsigned int flags, CUdevice dev) {
    struct charge charge;

    if (!begin(&charge, dev))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return settle(&charge, driver.cuCtxCreate_v2(ctx, flags, dev), ctx);
}

CUresult cuCtxCreate_v3(CUcontext *ctx, CUexecAffinityParam *params_array, int num_params,
                        unsigned int flags, CUdevice dev) {
    struct charge charge;

    if (!begin(&charge, dev))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return settle(&charge, driver.cuCtxCreate_v3(ctx, params_array, num_params, flags, dev), ctx);
}

CUresult cuCtxCreate_v4(CUcontext *ctx, CUctxCreateParams *ctx_create_params, unsigned int flags,
                        CUdevice dev) {
    struct charge charge;

    if (!begin(&charge, dev))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return settle(&charge, driver.cuCtxCreate_v4(ctx, ctx_create_params, flags, dev), ctx);
}

CUresult cuCtxDestroy_v2(CUcontext ctx) {
    struct context_end end;

    context_end_begin(&end, (uint64_t) (uintptr_t) ctx);
    return context_end_settle(&end, driver.cuCtxDestroy_v2(ctx));
}

CUresult cuCtxDestroy(CUcontext ctx) {
    struct context_end end;

    context_end_begin(&end, (uint64_t) (uintptr_t) ctx);
    return context_end_settle(&end, driver.cuCtxDestroy(ctx));
}

/* The primary context of a device, shared by everybody in the process: it costs once, when it comes
 * to life. */

static bool primary_active(CUdevice dev) {
    unsigned int flags;
    int active = 0;

    return driver.cuDevicePrimaryCtxGetState(dev, &flags, &active) == CUDA_SUCCESS && active;
}

static uint64_t *primary_of(struct share *share, CUdevice dev) {
    return share && dev >= 0 && dev < ORDINALS_MAX ? &share->primary[dev] : NULL;
}

/* Two threads may both find the context not active; the second to come back must not pay again. */
static bool already_booked(struct share *share, uint64_t context) {
    bool found;

    lock_take(&share->table_lock);
    found = table_find(&share->table, ENTRY_CONTEXT, context) != NULL;
    lock_drop(&share->table_lock);
    return found;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice dev) {
    struct charge charge;
    uint64_t *primary;
    CUresult r;

    charge_on_device(&charge, dev);
    if (!charge.share || primary_active(dev))
        return driver.cuDevicePrimaryCtxRetain(ctx, dev);
    if (!charge_reserve(&charge, context_cost(&charge)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = driver.cuDevicePrimaryCtxRetain(ctx, dev);
    if (r != CUDA_SUCCESS)
        return charge_settle(&charge, r, ENTRY_CONTEXT, 0, 0);
    if (already_booked(charge.share, (uint64_t) (uintptr_t) *ctx)) {
        (void) charge_settle(&charge, CUDA_ERROR_UNKNOWN, ENTRY_CONTEXT, 0, 0);
        return r;
    }
    primary = primary_of(charge.share, dev);
    if (primary)
        __atomic_store_n(primary, (uint64_t) (uintptr_t) *ctx, __ATOMIC_RELEASE);
    return settle(&charge, r, ctx);
}

/* A release ends the context only if it was the last; a reset always does. */
static CUresult primary_gone(CUdevice dev, CUresult r) {
    uint64_t *primary = r == CUDA_SUCCESS ? primary_of(share_claim(), dev) : NULL;
    struct context_end end;

    if (primary && !primary_active(dev)) {
        context_end_begin(&end, __atomic_exchange_n(primary, 0, __ATOMIC_ACQ_REL));
        return context_end_settle(&end, r);
    }
    return r;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev) {
    return primary_gone(dev, driver.cuDevicePrimaryCtxRelease(dev));
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
    return primary_gone(dev, driver.cuDevicePrimaryCtxRelease_v2(dev));
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev) {
    return primary_gone(dev, driver.cuDevicePrimaryCtxReset(dev));
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
    return primary_gone(dev, driver.cuDevicePrimaryCtxReset_v2(dev));
}
