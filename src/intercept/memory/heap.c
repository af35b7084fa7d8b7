/* SPDX-License-Identifier: Apache-2.0 */

/* Memory that a context takes for its kernels' heap, output and stacks. The sizes that a context
 * begins with are part of what it costs; what a program asks for beyond is booked here, when it
 * asks, as the driver takes it then. */

#include "intercept/memory/charge.h"

static uint64_t times(uint64_t a, uint64_t b) {
    uint64_t product;

    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

/* Every thread that fits on the device has a stack. */
static uint64_t threads_of(void) {
    int processors = 0, threads = 0;
    CUdevice device;

    if (driver.cuCtxGetDevice(&device) != CUDA_SUCCESS ||
        driver.cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                    device) != CUDA_SUCCESS ||
        driver.cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
                                    device) != CUDA_SUCCESS ||
        processors < 0 || threads < 0)
        return 1;
    return (uint64_t) processors * (uint64_t) threads;
}

/* What a limit of `value` takes on the device; 0: of the others, which take little. */
static uint64_t cost_of(CUlimit limit, size_t value) {
    switch (limit) {
    case CU_LIMIT_STACK_SIZE:
        return times(value, threads_of());
    case CU_LIMIT_PRINTF_FIFO_SIZE:
    case CU_LIMIT_MALLOC_HEAP_SIZE:
        return value;
    default:
        return 0;
    }
}

static uint64_t cost_now(CUlimit limit) {
    size_t value = 0;

    return driver.cuCtxGetLimit(&value, limit) == CUDA_SUCCESS ? cost_of(limit, value) : 0;
}

static uint64_t key_of(uint64_t context, CUlimit limit) {
    return context * 16 + (uint64_t) limit;
}

/* Enters the change; what shrinks below what the context began with was never booked. */
static void enter(struct charge *charge, uint64_t key, uint64_t before, uint64_t after) {
    uint64_t less = before > after ? before - after : 0;
    struct share *share = charge->share;
    struct entry *found;

    lock_take(&share->table_lock);
    found = table_find(&share->table, ENTRY_HEAP, key);
    if (found) {
        less = less < found->bytes ? less : found->bytes;
        found->bytes += charge->bytes - less;
        table_unpromise(&share->table);
    }
    lock_drop(&share->table_lock);
    if (found)
        share_refund(share, charge->device, less, BOOKED);
    else
        (void) charge_settle(charge, CUDA_SUCCESS, ENTRY_HEAP, key, charge->context);
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
    struct charge charge;
    uint64_t before, want;
    CUresult r;

    charge_on_current(&charge);
    if (!charge.share || (cost_of(limit, value) == 0 && cost_now(limit) == 0))
        return driver.cuCtxSetLimit(limit, value);
    before = cost_now(limit);
    want = cost_of(limit, value);
    if (!charge_reserve(&charge, want > before ? want - before : 0))
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = driver.cuCtxSetLimit(limit, value);
    if (r == CUDA_SUCCESS)
        enter(&charge, key_of(charge.context, limit), before, want);
    else
        (void) charge_settle(&charge, r, ENTRY_HEAP, 0, 0);
    return r;
}
