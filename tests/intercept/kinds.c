/* SPDX-License-Identifier: Apache-2.0 */

/* Takes memory of every kind and gives it back, and checks after each step what cuMemGetInfo says
 * is free: to the byte, what was asked for (or what the driver says that it needs). Ends with "ok",
 * or with the step that went wrong. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/cuda.h"

#define CUDA_FN(base, symbol, since, until, stream, params, args) CUresult symbol params;
#include "abi/hooks.def"

#define MIB ((size_t) 1 << 20)
#define PIECE (8 * MIB)

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void) printf("%s:%d: %s\n", __func__, __LINE__, #condition);                          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define OK(call) CHECK((call) == CUDA_SUCCESS)
#define REFUSED(call) CHECK((call) == CUDA_ERROR_OUT_OF_MEMORY)

static size_t total;

static size_t free_now(void) {
    size_t free_bytes, all;

    OK(cuMemGetInfo_v2(&free_bytes, &all));
    CHECK(all == total);
    return free_bytes;
}

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

int main(void) {
    size_t free_bytes, before;
    CUcontext primary;
    CUdeviceptr p;

    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuCtxSetCurrent(primary));
    OK(cuMemGetInfo_v2(&free_bytes, &total));
    CHECK(free_bytes < total); /* the context itself */
    linear();
    managed();
    pitched();
    stream_ordered();
    pools();
    virtual_memory();
    arrays();
    contexts();
    host_memory();
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
