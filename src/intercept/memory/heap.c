/* SPDX-License-Identifier: Apache-2.0 */

/* Memory that a context takes for its kernels' heap, output and stacks. The sizes that a context
 * begins with are part of what it costs; what a program sets beyond is booked here, when it is
 * set, as the driver takes it then. */

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

static size_t value_now(CUlimit limit) {
    size_t value = 0;

    return driver.cuCtxGetLimit(&value, limit) == CUDA_SUCCESS ? value : 0;
}

static uint64_t key_of(uint64_t context, CUlimit limit) {
    return context * 16 + (uint64_t) limit;
}

/* With the lock of the books. A context that is ending may have had the same address. */
static struct entry *find_booked(struct share *share, uint64_t key) {
    struct entry *found = allocations_find(books_allocations(share), ENTRY_HEAP, key);

    return found && !found->ending ? found : NULL;
}

static uint64_t less(uint64_t from, uint64_t bytes) {
    return from > bytes ? from - bytes : 0;
}

/* What is booked for a limit, and the value that the context began with, which costs nothing more
 * (refs of the entry; all that contexts begin with are far below 4 GiB). */
struct booked {
    uint64_t bytes;
    uint32_t began;
};

static struct booked booked_for(const struct charge *charge, CUlimit limit) {
    struct share *share = charge->share;
    struct booked booked = {.bytes = 0};
    const struct entry *found;

    books_lock(share);
    found = find_booked(share, key_of(charge->context, limit));
    if (found)
        booked = (struct booked){found->bytes, found->refs};
    books_unlock(share);
    if (!found)
        booked.began = (uint32_t) value_now(limit);
    return booked;
}

/* Enters what is booked now, and gives back what was booked and is not needed. */
static void enter_limit(struct charge *charge, CUlimit limit, const struct booked *now,
                        uint64_t before) {
    uint64_t key = key_of(charge->context, limit);
    struct share *share = charge->share;
    struct entry *found;

    books_lock(share);
    found = find_booked(share, key);
    if (found) {
        found->bytes = now->bytes;
        allocations_unreserve(books_allocations(share));
    }
    books_unlock(share);
    if (found) {
        books_refund(share, charge->device, less(before, now->bytes), BOOKED);
        return;
    }
    (void) charge_settle(charge, CUDA_SUCCESS, ENTRY_HEAP, key, charge->context);
    books_lock(share);
    found = find_booked(share, key);
    if (found)
        found->refs = now->began;
    books_unlock(share);
}

/* With the limits' lock. */
static CUresult set_booked(struct charge *charge, CUlimit limit, size_t value) {
    struct booked now = booked_for(charge, limit);
    uint64_t before = now.bytes;
    CUresult r;

    now.bytes = less(cost_of(limit, value), cost_of(limit, now.began));
    if (!charge_reserve(charge, less(now.bytes, before)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = driver.cuCtxSetLimit(limit, value);
    if (r == CUDA_SUCCESS)
        enter_limit(charge, limit, &now, before);
    else
        (void) charge_settle(charge, r, ENTRY_HEAP, 0, 0);
    return r;
}

static bool takes_memory(CUlimit limit) {
    return cost_of(limit, 1) > 0;
}

/* One at a time: what a change takes is known from what the limit was before. */
CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
    struct charge charge;
    CUresult r;

    charge_on_current(&charge);
    if (!charge.share || !takes_memory(limit))
        return driver.cuCtxSetLimit(limit, value);
    lock_take(&holdings_of(charge.share)->heap_lock);
    r = set_booked(&charge, limit, value);
    lock_drop(&holdings_of(charge.share)->heap_lock);
    return r;
}
