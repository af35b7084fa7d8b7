/* SPDX-License-Identifier: Apache-2.0 */

/* The driver API on a simulated machine of two A100s: memory of every kind, copies and fills,
 * kernels, streams, events, host functions. Exits with 0 if all is as it should be. */

#include <pthread.h>
#include <string.h>

#include "check.h"

#define MIB ((size_t) 1 << 20)
#define GIB ((size_t) 1 << 30)

static size_t free_now(void) {
    size_t f, t;
    OK(cuMemGetInfo_v2(&f, &t));
    return f;
}

static void before_init(void) {
    int n;
    CUcontext ctx;
    EXPECT(cuDeviceGetCount(&n), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT(cuCtxGetCurrent(&ctx), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT(cuInit(1), CUDA_ERROR_INVALID_VALUE);
    OK(cuDriverGetVersion(&n));
    REQUIRE(n >= 12000);
}

static void enumeration(void) {
    int n, value;
    char name[100];
    size_t bytes;
    CUuuid uuid, other;
    CUdevice device;
    OK(cuDeviceGetCount(&n));
    REQUIRE(n == 2);
    EXPECT(cuDeviceGet(&device, 2), CUDA_ERROR_INVALID_DEVICE);
    OK(cuDeviceGet(&device, 1));
    OK(cuDeviceGetName(name, sizeof(name), device));
    REQUIRE(strcmp(name, "NVIDIA A100-SXM4-80GB") == 0);
    OK(cuDeviceTotalMem_v2(&bytes, device));
    REQUIRE(bytes == 80 * GIB);
    OK(cuDeviceGetUuid_v2(&uuid, 0));
    OK(cuDeviceGetUuid_v2(&other, 1));
    REQUIRE(memcmp(&uuid, &other, sizeof(uuid)) != 0);
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
    REQUIRE(value == 108);
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
    REQUIRE(value == 8);
}

/* What deviceQuery prints of an A100. */
static void attributes(void) {
    static const struct {
        CUdevice_attribute attribute;
        int value;
    } want[] = {
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH, 131072},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH, 131072},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT, 65536},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH, 16384},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS, 2048},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS, 2046},
        {CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE, 30 << 20},
        {CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE, 134213632},
        {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
        {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING, 100},
        {CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT, 1},
        {CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID, 0x20b210de},
    };
    int value;
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        OK(cuDeviceGetAttribute(&value, want[i].attribute, 0));
        REQUIRE(value == want[i].value);
    }
}

/* What programs compiled with CUDA 13 call. */
static void contexts_with_parameters(CUcontext primary) {
    CUctxCreateParams params = {NULL, 0, NULL};
    CUcontext made, current;
    OK(cuCtxCreate_v4(&made, &params, 0, 1));
    OK(cuCtxGetCurrent(&current));
    REQUIRE(current == made);
    OK(cuCtxDestroy_v2(made));
    OK(cuCtxCreate_v4(&made, NULL, 0, 0));
    OK(cuCtxDestroy_v2(made));
    params.numExecAffinityParams = 1;
    params.execAffinityParams = (CUexecAffinityParam *) &params;
    EXPECT(cuCtxCreate_v4(&made, &params, 0, 0), CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
    params.cigParams = (CUctxCigParam *) &params;
    EXPECT(cuCtxCreate_v4(&made, &params, 0, 0), CUDA_ERROR_INVALID_VALUE);
    params = (CUctxCreateParams){.cigParams = params.cigParams};
    EXPECT(cuCtxCreate_v4(&made, &params, 0, 0), CUDA_ERROR_NOT_SUPPORTED);
    OK(cuCtxSetCurrent(primary));
}

static void contexts(CUcontext primary) {
    CUcontext made, current;
    size_t before = free_now();
    OK(cuCtxCreate_v2(&made, 0, 0));
    OK(cuCtxGetCurrent(&current));
    REQUIRE(current == made);
    REQUIRE(free_now() < before); /* a context costs */
    CUdeviceptr p;
    OK(cuMemAlloc_v2(&p, GIB));
    OK(cuCtxDestroy_v2(made));
    OK(cuCtxGetCurrent(&current));
    REQUIRE(current == primary);
    REQUIRE(free_now() == before); /* and takes its memory with it */
    EXPECT(cuCtxSetCurrent(made), CUDA_ERROR_INVALID_CONTEXT);
}

static void linear(void) {
    CUdeviceptr p, q;
    size_t pitch, before = free_now();
    EXPECT(cuMemAlloc_v2(&p, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAlloc_v2(&p, before));
    REQUIRE(free_now() == 0);
    EXPECT(cuMemAlloc_v2(&q, 1), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(cuMemFree_v2(p + 1), CUDA_ERROR_INVALID_VALUE);
    /* Neither costs memory of this machine: it has less. */
    OK(cuMemsetD8_v2(p, 0, before));
    OK(cuMemsetD32_v2(p, 0x12345678, before / 4));
    unsigned int word;
    OK(cuMemcpyDtoH_v2(&word, p + before / 2, 4));
    REQUIRE(word == 0x12345678);
    OK(cuMemsetD8_v2(p + 1, 7, before - 1));
    OK(cuMemcpyDtoH_v2(&word, p + before - 4, 4));
    REQUIRE(word == 0x07070707);
    OK(cuMemcpyDtoH_v2(&word, p, 4));
    REQUIRE(word == 0x07070778);
    OK(cuMemsetD8_v2(p, 0, before));
    OK(cuMemcpyDtoH_v2(&word, p + before - 4, 4));
    REQUIRE(word == 0);
    EXPECT(cuMemcpyDtoH_v2(&word, p + before - 3, 4), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree_v2(p));
    EXPECT(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree_v2(0));
    OK(cuMemAllocPitch_v2(&p, &pitch, 1000, 10, 4));
    REQUIRE(pitch == 1024 && free_now() == before - 10 * pitch);
    OK(cuMemFree_v2(p));
    REQUIRE(free_now() == before);
}

/* By where it is, so that there can be more of it than the card has. */
static void managed(void) {
    size_t before = free_now();
    CUdeviceptr p, q, big;
    int n;
    OK(cuMemAllocManaged(&p, 64 * MIB, CU_MEM_ATTACH_GLOBAL));
    *(int *) (uintptr_t) p = 42; /* the program's too */
    OK(cuMemcpyDtoH_v2(&n, p, sizeof(n)));
    REQUIRE(n == 42 && free_now() == before);
    OK(cuMemPrefetchAsync(p, 16 * MIB, 0, NULL));
    REQUIRE(free_now() == before - 16 * MIB);
    OK(cuMemRangeGetAttribute(&n, sizeof(n), CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, p, 1));
    REQUIRE(n == 0);
    OK(cuMemsetD8_v2(p, 1, 64 * MIB));
    REQUIRE(free_now() == before - 64 * MIB);
    OK(cuMemPrefetchAsync(p, 64 * MIB, -1, NULL));
    REQUIRE(free_now() == before);
    EXPECT(cuMemPrefetchAsync(p, 65 * MIB, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    CUdeviceptr ranges[] = {p, p + 8 * MIB, p + 16 * MIB};
    size_t sizes[] = {8 * MIB, 8 * MIB, 4 * MIB}, at[] = {0, 2};
    CUmemLocation where[] = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, {CU_MEM_LOCATION_TYPE_HOST, 0}};
    OK(cuMemPrefetchBatchAsync(ranges, sizes, 3, where, at, 2, 0, NULL));
    REQUIRE(free_now() == before - 12 * MIB); /* 16 came, 4 left */
    OK(cuMemDiscardAndPrefetchBatchAsync(ranges, sizes, 3, &where[1], at, 1, 0, NULL));
    REQUIRE(free_now() == before);
    at[0] = 1;
    EXPECT(cuMemPrefetchBatchAsync(ranges, sizes, 3, where, at, 2, 0, NULL),
           CUDA_ERROR_INVALID_VALUE);
    /* Memory that prefers the host stays there. */
    OK(cuMemAllocManaged(&big, 120 * GIB, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemAdvise(big, 120 * GIB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, -1));
    OK(cuMemAdvise(big, 120 * GIB, CU_MEM_ADVISE_SET_ACCESSED_BY, 0));
    OK(cuMemRangeGetAttribute(&n, sizeof(n), CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, big, 1));
    REQUIRE(n == 0);
    OK(cuMemsetD8_v2(big, 0, 120 * GIB));
    REQUIRE(free_now() == before);
    OK(cuMemAdvise(big, 120 * GIB, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, 0));
    OK(cuMemsetD8_v2(big, 0, 120 * GIB)); /* what fits */
    REQUIRE(free_now() == 0);
    /* Whatever else needs the card takes its place: what was used last stays longest. */
    OK(cuMemPrefetchAsync(p, 64 * MIB, 0, NULL));
    OK(cuMemAlloc_v2(&q, GIB));
    REQUIRE(free_now() == 0);
    OK(cuMemFree_v2(big));
    REQUIRE(free_now() == before - GIB - 64 * MIB);
    OK(cuMemFree_v2(q));
    EXPECT(cuMemAdvise(q, 1, CU_MEM_ADVISE_SET_READ_MOSTLY, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree_v2(p));
    REQUIRE(free_now() == before);
}

static void pools(void) {
    CUmemoryPool pool;
    CUdeviceptr p, q;
    uint64_t value;
    size_t before = free_now();
    OK(cuMemAllocAsync(&p, GIB, NULL));
    REQUIRE(free_now() == before - GIB);
    OK(cuMemFreeAsync(p, NULL));
    REQUIRE(free_now() == before); /* nothing is kept by default */
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    value = 512 * MIB;
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
    OK(cuMemAllocAsync(&p, GIB, NULL));
    OK(cuMemFreeAsync(p, NULL));
    REQUIRE(free_now() == before - 512 * MIB);
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &value));
    REQUIRE(value == 512 * MIB);
    OK(cuMemAllocAsync(&p, 256 * MIB, NULL));
    OK(cuMemAllocAsync(&q, 512 * MIB, NULL));
    REQUIRE(free_now() == before - 768 * MIB);
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value));
    REQUIRE(value == 768 * MIB);
    OK(cuMemFreeAsync(p, NULL));
    OK(cuMemFree_v2(q));
    OK(cuMemPoolTrimTo(pool, 0));
    REQUIRE(free_now() == before);
    value = 0;
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
}

static void virtual_memory(void) {
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle, again;
    CUdeviceptr p;
    size_t grain, before = free_now();
    OK(cuMemGetAllocationGranularity(&grain, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    REQUIRE(grain == 2 * MIB);
    OK(cuMemAddressReserve(&p, 4 * grain, 0, 0, 0));
    REQUIRE(p % grain == 0);
    EXPECT(cuMemCreate(&handle, grain + 1, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemCreate(&handle, 2 * grain, &prop, 0));
    REQUIRE(free_now() == before - 2 * grain);
    EXPECT(cuMemsetD8_v2(p, 1, 1), CUDA_ERROR_INVALID_VALUE); /* not mapped */
    OK(cuMemMap(p, 2 * grain, 0, handle, 0));
    OK(cuMemMap(p + 2 * grain, 2 * grain, 0, handle, 0)); /* the same memory once more */
    EXPECT(cuMemMap(p, grain, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemsetD8_v2(p, 1, 1), CUDA_ERROR_INVALID_VALUE); /* not accessible */
    OK(cuMemSetAccess(p, 4 * grain, &access, 1));
    OK(cuMemsetD8_v2(p, 9, 2 * grain));
    unsigned char byte;
    OK(cuMemcpyDtoH_v2(&byte, p + 4 * grain - 1, 1));
    REQUIRE(byte == 9);
    OK(cuMemRelease(handle));
    OK(cuMemUnmap(p, 2 * grain));
    REQUIRE(free_now() == before - 2 * grain); /* still mapped once */
    OK(cuMemRetainAllocationHandle(&again, (void *) (uintptr_t) (p + 3 * grain)));
    OK(cuMemUnmap(p + 2 * grain, 2 * grain));
    REQUIRE(free_now() == before - 2 * grain); /* still held */
    OK(cuMemRelease(again));
    REQUIRE(free_now() == before);
    EXPECT(cuMemRelease(again), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAddressFree(p, 4 * grain));
}

static void arrays(void) {
    size_t before = free_now();
    CUDA_ARRAY_DESCRIPTOR desc = {64, 32, CU_AD_FORMAT_FLOAT, 1};
    CUarray array, level;
    OK(cuArrayCreate_v2(&array, &desc));
    REQUIRE(free_now() == before - 64 * 32 * 4);
    float in[32][64], out[32][64];
    for (int y = 0; y < 32; y++)
        for (int x = 0; x < 64; x++)
            in[y][x] = (float) (y * 64 + x);
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = in,
                          .srcPitch = 256,
                          .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                          .dstArray = array,
                          .WidthInBytes = 256,
                          .Height = 32};
    OK(cuMemcpy2D_v2(&copy));
    copy = (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                           .srcArray = array,
                           .srcXInBytes = 4,
                           .srcY = 1,
                           .dstMemoryType = CU_MEMORYTYPE_HOST,
                           .dstHost = out,
                           .dstPitch = 256,
                           .WidthInBytes = 252,
                           .Height = 31};
    OK(cuMemcpy2D_v2(&copy));
    REQUIRE(out[0][0] == 65.0f && out[30][62] == in[31][63]);
    copy.Height = 32;
    EXPECT(cuMemcpy2D_v2(&copy), CUDA_ERROR_INVALID_VALUE);
    OK(cuArrayDestroy(array));
    EXPECT(cuArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);
    CUDA_ARRAY3D_DESCRIPTOR deep = {
        .Width = 16, .Height = 16, .Format = CU_AD_FORMAT_HALF, .NumChannels = 4};
    CUDA_ARRAY_MEMORY_REQUIREMENTS req;
    CUmipmappedArray mipmap;
    OK(cuMipmappedArrayCreate(&mipmap, &deep, 3));
    OK(cuMipmappedArrayGetMemoryRequirements(&req, mipmap, 0));
    REQUIRE(req.size == (256 + 64 + 16) * 8 && free_now() == before - req.size);
    OK(cuMipmappedArrayGetLevel(&level, mipmap, 2));
    EXPECT(cuMipmappedArrayGetLevel(&level, mipmap, 3), CUDA_ERROR_INVALID_VALUE);
    OK(cuMipmappedArrayDestroy(mipmap));
    REQUIRE(free_now() == before);
}

static void textures(void) {
    CUDA_RESOURCE_DESC linear = {.resType = CU_RESOURCE_TYPE_LINEAR}, back;
    CUDA_TEXTURE_DESC sampling = {.addressing = {1, 1, 1}};
    CUtexObject object;
    CUsurfObject surface;
    CUdeviceptr p;
    OK(cuMemAlloc_v2(&p, 1024));
    linear.res.linear.devPtr = p;
    linear.res.linear.sizeInBytes = 1025;
    EXPECT(cuTexObjectCreate(&object, &linear, &sampling, NULL), CUDA_ERROR_INVALID_VALUE);
    linear.res.linear.sizeInBytes = 1024;
    OK(cuTexObjectCreate(&object, &linear, &sampling, NULL));
    OK(cuTexObjectGetResourceDesc(&back, object));
    REQUIRE(back.res.linear.devPtr == p);
    EXPECT(cuSurfObjectDestroy(object), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuSurfObjectCreate(&surface, &linear), CUDA_ERROR_INVALID_VALUE);
    OK(cuTexObjectDestroy(object));
    EXPECT(cuTexObjectDestroy(object), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree_v2(p));
}

static void kernels(void) {
    enum { N = 10000 };
    CUmodule module;
    EXPECT(cuModuleLoadData(&module, ".version 8.0\n.target sm_80\n"),
           CUDA_ERROR_NO_BINARY_FOR_GPU);
    EXPECT(cuModuleLoadData(&module, "\177ELF\2\1\1"), CUDA_ERROR_NO_BINARY_FOR_GPU);
    CUfunction saxpy = check_function("saxpy"), none, fill = check_function("fill");
    OK(cuModuleLoadData(&module, check_module));
    EXPECT(cuModuleGetFunction(&none, module, "sgemm"), CUDA_ERROR_NOT_FOUND);
    static float x[N], y[N];
    for (int i = 0; i < N; i++) {
        x[i] = (float) i;
        y[i] = 1;
    }
    CUdeviceptr dx, dy;
    OK(cuMemAlloc_v2(&dx, sizeof(x)));
    OK(cuMemAlloc_v2(&dy, sizeof(y)));
    OK(cuMemcpyHtoD_v2(dx, x, sizeof(x)));
    OK(cuMemcpyHtoD_v2(dy, y, sizeof(y)));
    int n = N;
    float a = 2;
    void *params[] = {&n, &a, &dx, &dy};
    OK(cuLaunchKernel(saxpy, 39, 1, 1, 256, 1, 1, 0, NULL, params, NULL)); /* 9984 threads */
    OK(cuMemcpyDtoH_v2(y, dy, sizeof(y)));
    REQUIRE(y[0] == 1 && y[9983] == 2 * 9983.0f + 1 && y[9984] == 1);
    int value = 3;
    size_t bytes = sizeof(y);
    struct __attribute__((packed)) {
        CUdeviceptr p;
        int value;
        int pad;
        size_t bytes;
    } buffer = {dy, value, 0, bytes};
    size_t size = sizeof(buffer);
    void *extra[] = {(void *) 1, &buffer, (void *) 2, &size, NULL};
    OK(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
    OK(cuMemcpyDtoH_v2(y, dy, sizeof(y)));
    REQUIRE(((unsigned char *) y)[bytes - 1] == 3);
    EXPECT(cuLaunchKernel(saxpy, 1, 1, 1, 2048, 1, 1, 0, NULL, params, NULL),
           CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree_v2(dx));
    OK(cuMemFree_v2(dy));
}

static void illegal_address(void) {
    CUcontext made;
    OK(cuCtxCreate_v2(&made, 0, 0));
    int n = 100;
    float a = 1;
    CUdeviceptr nowhere = 4096;
    void *params[] = {&n, &a, &nowhere, &nowhere};
    OK(cuLaunchKernel(check_function("saxpy"), 1, 1, 1, 128, 1, 1, 0, NULL, params, NULL));
    EXPECT(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT(cuMemAlloc_v2(&nowhere, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
    OK(cuCtxDestroy_v2(made));
    OK(cuCtxSynchronize()); /* the other context is as it was */
    OK(cuCtxSynchronize_v2(NULL));
}

static void streams_and_events(void) {
    CUfunction spin = check_function("spin");
    CUstream a, b, free_stream;
    CUevent begin, end;
    float ms;
    OK(cuStreamCreate(&a, CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&b, CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&free_stream, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&begin, 0));
    OK(cuEventCreate(&end, 0));
    OK(cuEventRecord(begin, a));
    check_spin(spin, 200000000, a);
    EXPECT(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
    OK(cuStreamQuery(b));
    OK(cuStreamQuery(free_stream));
    OK(cuEventRecord(end, a));
    EXPECT(cuEventQuery(end), CUDA_ERROR_NOT_READY);
    EXPECT(cuEventElapsedTime(&ms, begin, end), CUDA_ERROR_NOT_READY);
    OK(cuStreamWaitEvent(b, end, 0));
    EXPECT(cuStreamQuery(b), CUDA_ERROR_NOT_READY);
    OK(cuStreamSynchronize(b)); /* so it waited for the spin in a */
    OK(cuEventElapsedTime(&ms, begin, end));
    REQUIRE(ms >= 200.0f && ms < 300.0f);
    /* The legacy stream waits for blocking streams, and they for it. */
    check_spin(spin, 200000000, a);
    OK(cuEventRecord(end, NULL));
    OK(cuStreamQuery(free_stream));
    EXPECT(cuStreamQuery(b), CUDA_SUCCESS);
    check_spin(spin, 1000, b);
    EXPECT(cuStreamQuery(b), CUDA_ERROR_NOT_READY);
    OK(cuCtxSynchronize());
    OK(cuStreamQuery(a));
    OK(cuStreamDestroy_v2(a));
    EXPECT(cuStreamSynchronize(a), CUDA_ERROR_INVALID_HANDLE);
    OK(cuStreamDestroy_v2(b));
    OK(cuStreamDestroy_v2(free_stream));
    OK(cuEventDestroy_v2(begin));
    OK(cuEventDestroy_v2(end));
}

static int sequence[4];
static int steps;

static void step(void *user) {
    sequence[steps++] = (int) (intptr_t) user;
    static const struct timespec moment = {.tv_nsec = 50000000};
    (void) nanosleep(&moment, NULL);
}

static void fill_host(void *user) {
    step((void *) 3);
    memset(user, 0x55, 4);
}

static void host_functions(void) {
    CUstream s;
    CUdeviceptr p;
    unsigned int host = 0, back = 0;
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc_v2(&p, 4));
    OK(cuLaunchHostFunc(s, step, (void *) 1));
    OK(cuLaunchHostFunc(s, step, (void *) 2));
    OK(cuLaunchHostFunc(s, fill_host, &host));
    OK(cuMemcpyHtoDAsync_v2(p, &host, 4, s)); /* needs what the function writes */
    EXPECT(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    OK(cuStreamSynchronize(s));
    REQUIRE(steps == 3 && sequence[0] == 1 && sequence[1] == 2 && sequence[2] == 3);
    OK(cuMemcpyDtoH_v2(&back, p, 4));
    REQUIRE(back == 0x55555555);
    OK(cuMemFree_v2(p));
    OK(cuStreamDestroy_v2(s));
}

/* One stream waits for what another writes, or the program. */
static void values(void) {
    CUstream a, b;
    CUdeviceptr p;
    volatile unsigned int *flag;
    OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc_v2(&p, 16));
    OK(cuMemHostAlloc((void **) (uintptr_t) &flag, 4, 0));
    *flag = 0;
    OK(cuMemsetD8_v2(p, 0, 16));
    OK(cuStreamWaitValue32_v2(a, p, 5, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cuMemsetD8Async(p + 8, 1, 1, a));
    OK(cuStreamWriteValue64_v2(a, p + 8, 7, 0));
    EXPECT(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
    EXPECT(cuStreamWaitValue32_v2(b, p + 2, 5, 0), CUDA_ERROR_INVALID_VALUE);
    check_spin(check_function("spin"), 50000000, b);
    OK(cuStreamWriteValue32_v2(b, p, 6, 0));
    OK(cuStreamWriteValue32_v2(b, (uintptr_t) flag, 1, 0));
    REQUIRE(*flag == 0); /* not before the kernel is over */
    OK(cuStreamSynchronize(b));
    OK(cuStreamSynchronize(a));
    unsigned long long value;
    OK(cuMemcpyDtoH_v2(&value, p + 8, 8));
    REQUIRE(*flag == 1 && value == 7);
    OK(cuStreamWaitValue32_v2(a, (uintptr_t) flag, 2, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuMemcpyDtoH_v2(&value, p, 8)); /* the others do not wait */
    EXPECT(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
    *flag = 2;
    OK(cuStreamSynchronize(a));
    OK(cuMemFree_v2(p));
    OK(cuMemFreeHost((void *) (uintptr_t) flag));
    OK(cuStreamDestroy_v2(a));
    OK(cuStreamDestroy_v2(b));
}

static void per_thread_streams(void) {
    CUfunction spin = check_function("spin");
    unsigned long long ns = 200000000;
    void *params[] = {&ns};
    CUresult (*query)(CUstream);
    CUdriverProcAddressQueryResult status;
    OK(cuGetProcAddress_v2("cuStreamQuery", (void **) &query, 12000,
                           CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status));
    REQUIRE(query == cuStreamQuery_ptsz);
    OK(cuLaunchKernel_ptsz(spin, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    EXPECT(query(NULL), CUDA_ERROR_NOT_READY);
    EXPECT(cuStreamQuery(CU_STREAM_PER_THREAD), CUDA_ERROR_NOT_READY);
    OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    OK(query(NULL));
}

/* More launches than the ring holds, from several threads. */
static void *launch_many(void *arg) {
    CUstream s;
    OK(cuCtxSetCurrent(arg));
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    CUfunction spin = check_function("spin");
    for (int i = 0; i < 5000; i++)
        check_spin(spin, 1000, s);
    OK(cuStreamSynchronize(s));
    OK(cuStreamDestroy_v2(s));
    return NULL;
}

static void many_launches(CUcontext ctx) {
    pthread_t thread[4];
    unsigned long long before = check_now_ns();
    for (int i = 0; i < 4; i++)
        REQUIRE(pthread_create(&thread[i], NULL, launch_many, ctx) == 0);
    for (int i = 0; i < 4; i++)
        REQUIRE(pthread_join(thread[i], NULL) == 0);
    REQUIRE(check_now_ns() - before >= 20000000); /* 20,000 microseconds of one GPU */
}

int main(void) {
    before_init();
    CUcontext primary = check_start(0);
    enumeration();
    attributes();
    contexts(primary);
    contexts_with_parameters(primary);
    linear();
    managed();
    pools();
    virtual_memory();
    arrays();
    textures();
    kernels();
    illegal_address();
    streams_and_events();
    host_functions();
    values();
    per_thread_streams();
    many_launches(primary);
    OK(cuDevicePrimaryCtxRelease_v2(0));
    (void) puts("ok");
    return 0;
}
