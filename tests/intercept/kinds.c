/* SPDX-License-Identifier: Apache-2.0 */

/* Takes memory of every kind and gives it back, and checks after each step what cuMemGetInfo says
 * is free: to the byte, what was asked for (or what the driver says that it needs). Ends with "ok",
 * or with the step that went wrong. */

#include <unistd.h>

#include "books.h"

static void linear(void) {
    size_t before = free_now();
    CUdeviceptr p, q;

    OK(cuMemAlloc_v2(&p, PIECE + 1));
    CHECK(free_now() == before - PIECE - 1);
    REFUSED(cuMemAlloc_v2(&q, total));
    REFUSED(cuMemAlloc_v2(&q, SIZE_MAX));
    CHECK(free_now() == before - PIECE - 1);
    CHECK(cuMemAlloc_v2(&q, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemAlloc_v2(NULL, 100) == CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree_v2(p));
    CHECK(free_now() == before);
    CHECK(cuMemFree_v2(p) != CUDA_SUCCESS);
    CHECK(free_now() == before);
}

static void managed(void) {
    size_t before = free_now();
    CUdeviceptr p;

    OK(cuMemAllocManaged(&p, PIECE, CU_MEM_ATTACH_GLOBAL));
    CHECK(free_now() == before - PIECE);
    REFUSED(cuMemAllocManaged(&p, total, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemFree_v2(p));
    CHECK(free_now() == before);
}

static void pitched(void) {
    size_t before = free_now(), pitch;
    CUdeviceptr p;

    OK(cuMemAllocPitch_v2(&p, &pitch, 1000, 1000, 4));
    CHECK(pitch >= 1000 && free_now() == before - pitch * 1000);
    OK(cuMemFree_v2(p));
    CHECK(free_now() == before);
    REFUSED(cuMemAllocPitch_v2(&p, &pitch, total / 1000, 1001, 4));
    CHECK(free_now() == before);
}

/* What a pool keeps without use makes room for the rows' padding, too. */
static void pitched_beside_a_pool(void) {
    size_t before = free_now(), pitch, rows;
    cuuint64_t keep = UINT64_MAX, nothing = 0;
    CUmemoryPool pool;
    CUdeviceptr p;

    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    OK(cuMemAllocAsync(&p, total / 4, NULL));
    OK(cuMemFreeAsync(p, NULL));
    OK(cuCtxSynchronize());
    CHECK(free_now() <= before - total / 4);
    rows = free_now() / 1000;
    OK(cuMemAllocPitch_v2(&p, &pitch, 1000, rows, 4));
    CHECK(pitch > 1000 && free_now() == before - pitch * rows);
    OK(cuMemFree_v2(p));
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &nothing));
    CHECK(free_now() == before);
}

static void stream_ordered(void) {
    size_t before = free_now();
    CUdeviceptr p, q;
    CUstream stream;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAllocAsync(&p, PIECE, stream));
    OK(cuMemAllocAsync_ptsz(&q, PIECE, NULL));
    CHECK(free_now() == before - 2 * PIECE);
    REFUSED(cuMemAllocAsync(&p, total, stream));
    OK(cuMemFreeAsync(p, stream));
    OK(cuMemFree_v2(q)); /* either way of freeing does */
    OK(cuStreamSynchronize(stream));
    CHECK(free_now() == before);
    OK(cuStreamDestroy_v2(stream));
}

static void pools(void) {
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    size_t before = free_now();
    CUmemoryPool pool, standard;
    CUdeviceptr p;

    OK(cuMemPoolCreate(&pool, &props));
    OK(cuMemAllocFromPoolAsync(&p, PIECE, pool, NULL));
    CHECK(free_now() == before - PIECE);
    REFUSED(cuMemAllocFromPoolAsync(&p, total, pool, NULL));
    OK(cuMemFreeAsync(p, NULL));
    OK(cuCtxSynchronize());
    OK(cuMemPoolDestroy(pool));
    OK(cuDeviceGetDefaultMemPool(&standard, 0));
    OK(cuMemAllocFromPoolAsync_ptsz(&p, PIECE, standard, NULL));
    CHECK(free_now() == before - PIECE);
    OK(cuMemFreeAsync_ptsz(p, NULL));
    OK(cuCtxSynchronize());
    CHECK(free_now() == before);
}

static void virtual_memory(void) {
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    size_t before = free_now(), granule, size;
    CUmemGenericAllocationHandle handle, again, other;
    CUdeviceptr at;

    OK(cuMemGetAllocationGranularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    size = 4 * granule;
    OK(cuMemAddressReserve(&at, 2 * size, 0, 0, 0));
    OK(cuMemCreate(&handle, size, &prop, 0));
    OK(cuMemCreate(&other, size, &prop, 0));
    CHECK(free_now() == before - 2 * size);
    REFUSED(cuMemCreate(&again, (total / granule + 1) * granule, &prop, 0));

    /* The memory outlives its handle while it is mapped, and one unmap may undo two maps. */
    OK(cuMemMap(at, size, 0, handle, 0));
    OK(cuMemMap(at + size, size, 0, other, 0));
    OK(cuMemRelease(handle));
    OK(cuMemRelease(other));
    CHECK(free_now() == before - 2 * size);
    OK(cuMemUnmap(at, 2 * size));
    CHECK(free_now() == before);

    /* And a retained handle holds it too. */
    OK(cuMemCreate(&handle, size, &prop, 0));
    OK(cuMemMap(at, size, 0, handle, 0));
    OK(cuMemRetainAllocationHandle(&again, (void *) (uintptr_t) at));
    OK(cuMemRelease(handle));
    OK(cuMemUnmap(at, size));
    CHECK(free_now() == before - size);
    OK(cuMemRelease(again));
    CHECK(free_now() == before);
    OK(cuMemAddressFree(at, 2 * size));
}

static void arrays(void) {
    CUDA_ARRAY_DESCRIPTOR flat = {1024, 1024, CU_AD_FORMAT_FLOAT, 1};
    CUDA_ARRAY3D_DESCRIPTOR deep = {64, 64, 64, CU_AD_FORMAT_UNSIGNED_INT8, 4, 0};
    CUDA_ARRAY_DESCRIPTOR huge = {131072, 65536, CU_AD_FORMAT_FLOAT, 4};
    size_t before = free_now();
    CUmipmappedArray mipmap;
    CUarray a, b;

    OK(cuArrayCreate_v2(&a, &flat));
    CHECK(before - free_now() >= 4 * MIB && before - free_now() < 6 * MIB);
    OK(cuArray3DCreate_v2(&b, &deep));
    CHECK(before - free_now() >= 5 * MIB && before - free_now() < 8 * MIB);
    REFUSED(cuArrayCreate_v2(&a, &huge));
    OK(cuArrayDestroy(a));
    OK(cuArrayDestroy(b));
    CHECK(free_now() == before);
    OK(cuMipmappedArrayCreate(&mipmap, &deep, 3));
    CHECK(before - free_now() > MIB);
    OK(cuMipmappedArrayDestroy(mipmap));
    CHECK(free_now() == before);
}

static void contexts(void) {
    size_t before = free_now(), overhead;
    CUcontext second;
    CUdeviceptr p;

    OK(cuCtxCreate_v2(&second, 0, 0));
    overhead = before - free_now();
    CHECK(overhead > 0);
    OK(cuMemAlloc_v2(&p, PIECE));
    CHECK(free_now() == before - overhead - PIECE);
    OK(cuCtxDestroy_v2(second)); /* and with it what was allocated in it */
    CHECK(free_now() == before);
}

static void host_memory(void) {
    size_t before = free_now();
    void *p, *q;

    OK(cuMemAllocHost_v2(&p, PIECE));
    OK(cuMemHostAlloc(&q, PIECE, 0));
    CHECK(free_now() == before);
    OK(cuMemFreeHost(p));
    OK(cuMemFreeHost(q));
}

static void figures(void) {
    size_t bytes = 0, free_bytes = free_now();
    CUdeviceptr p;

    OK(cuDeviceTotalMem_v2(&bytes, 0));
    CHECK(bytes == total);
    (void) cuMemGetInfo_v2(NULL, NULL); /* need only not crash */
    (void) cuDeviceTotalMem_v2(NULL, 0);
    OK(cuMemAlloc_v2(&p, free_bytes)); /* all there is, to the byte */
    CHECK(free_now() == 0);
    {
        CUdeviceptr q;
        REFUSED(cuMemAlloc_v2(&q, 1));
    }
    OK(cuMemFree_v2(p));
    CHECK(free_now() == free_bytes);
}

/* Sizes near the largest number there is. */
static void overflows(void) {
    static const size_t huge[] = {SIZE_MAX,         SIZE_MAX - 1,           SIZE_MAX - MIB,
                                  (size_t) 1 << 63, ((size_t) 1 << 63) + 1, (size_t) 1 << 62};
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUDA_ARRAY3D_DESCRIPTOR deep = {SIZE_MAX / 2, SIZE_MAX / 2, 4, CU_AD_FORMAT_FLOAT, 4, 0};
    size_t before = free_now(), pitch;
    CUmemGenericAllocationHandle handle;
    CUmipmappedArray mipmap;
    CUdeviceptr p;
    CUarray array;

    for (size_t i = 0; i < sizeof(huge) / sizeof(huge[0]); i++) {
        REFUSED(cuMemAlloc_v2(&p, huge[i]));
        REFUSED(cuMemAllocManaged(&p, huge[i], CU_MEM_ATTACH_GLOBAL));
        REFUSED(cuMemAllocAsync(&p, huge[i], NULL));
        REFUSED(cuMemCreate(&handle, huge[i], &prop, 0));
        REFUSED(cuMemAllocPitch_v2(&p, &pitch, huge[i], 1, 4));
        REFUSED(cuMemAllocPitch_v2(&p, &pitch, huge[i], 3, 4));
        REFUSED(cuMemAllocPitch_v2(&p, &pitch, huge[i], huge[i], 16));
    }
    CHECK(cuArray3DCreate_v2(&array, &deep) != CUDA_SUCCESS);
    CHECK(cuMipmappedArrayCreate(&mipmap, &deep, 40) != CUDA_SUCCESS);
    CHECK(free_now() == before);
}

/* What a context takes for its kernels beyond what it began with. */
static void heaps(void) {
    size_t before = free_now(), heap, stack;
    int processors, threads;

    OK(cuCtxGetLimit(&heap, CU_LIMIT_MALLOC_HEAP_SIZE));
    OK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, heap + PIECE));
    CHECK(free_now() == before - PIECE);
    OK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, heap + 2 * PIECE));
    CHECK(free_now() == before - 2 * PIECE);
    REFUSED(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, total));
    REFUSED(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, total));
    CHECK(free_now() == before - 2 * PIECE);
    OK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, heap));
    CHECK(free_now() == before);

    /* Every thread that fits on the device has a stack. */
    OK(cuCtxGetLimit(&stack, CU_LIMIT_STACK_SIZE));
    OK(cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
    OK(cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 0));
    OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, stack + 1024));
    CHECK(free_now() == before - (size_t) 1024 * (size_t) processors * (size_t) threads);
    OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, stack));
    CHECK(free_now() == before);
}

/* Who asks for a restore that is none keeps what it has, on the books too. */
static void restore_of_nothing(void) {
    size_t before = free_now();
    CUdeviceptr p;

    OK(cuMemAlloc_v2(&p, PIECE));
    CHECK(cuCheckpointProcessRestore(getpid(), NULL) != CUDA_SUCCESS);
    CHECK(free_now() == before - PIECE);
    OK(cuMemFree_v2(p));
    CHECK(free_now() == before);
}

int main(void) {
    CUcontext primary = begin();
    size_t before;
    CUdeviceptr p;

    linear();
    managed();
    pitched();
    pitched_beside_a_pool();
    stream_ordered();
    pools();
    virtual_memory();
    arrays();
    contexts();
    host_memory();
    overflows();
    heaps();
    restore_of_nothing();
    figures();

    /* A reset takes everything in the primary context along, and the context. */
    before = free_now();
    OK(cuMemAlloc_v2(&p, PIECE));
    OK(cuDevicePrimaryCtxReset_v2(0));
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuCtxSetCurrent(primary));
    CHECK(free_now() == before);
    (void) printf("ok total=%zu free=%zu\n", total, before);
    return 0;
}
