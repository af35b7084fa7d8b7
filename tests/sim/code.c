/* SPDX-License-Identifier: Apache-2.0 */

/* Modules, libraries, heaps, and the less common ways to launch, on two A100s. With an argument:
 * code that is not the simulator's own, on a machine that runs kernels by time only. */

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

#include "abi/nvml.h"

#define NVML_FN(symbol, params, args) nvmlReturn_t symbol params;
#include "abi/hooks.def"

#define MIB ((size_t) 1 << 20)

static const char with_globals[] = "ALIQUOT SIMULATED MODULE 1\n"
                                   "device 3145728\n"
                                   "kernel saxpy saxpy\n"
                                   "device 1048576\n"
                                   "kernel spin spin\n";

static void modules(void) {
    CUmodule m;
    CUfunction f;
    unsigned int n;
    size_t before = check_free();
    OK(cuModuleLoadData(&m, with_globals));
    REQUIRE(check_free() == before - 4 * MIB);
    OK(cuModuleGetFunctionCount(&n, m));
    REQUIRE(n == 2);
    OK(cuModuleGetFunction(&f, m, "spin"));
    OK(cuModuleUnload(m));
    REQUIRE(check_free() == before);
    EXPECT(cuFuncLoad(f), CUDA_ERROR_INVALID_HANDLE);
    EXPECT(cuModuleLoadData(&m, "ALIQUOT SIMULATED MODULE 1\ndevice 99999999999999999999\n"),
           CUDA_ERROR_INVALID_IMAGE);
    EXPECT(cuModuleLoadData(&m, "ALIQUOT SIMULATED MODULE 1\ndevice 1099511627776\n"),
           CUDA_ERROR_OUT_OF_MEMORY);
    REQUIRE(check_free() == before);
}

static void libraries(void) {
    CUlibrary library, same;
    CUkernel kernel, list[2];
    CUfunction f, again;
    CUmodule m;
    CUcontext made, primary;
    const char *name;
    unsigned int n;
    unsigned long long ns = 1000;
    void *params[] = {&ns};
    size_t before = check_free();
    OK(cuCtxGetCurrent(&primary));
    OK(cuLibraryLoadData(&library, with_globals, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernelCount(&n, library));
    REQUIRE(n == 2);
    OK(cuLibraryEnumerateKernels(list, 2, library));
    OK(cuLibraryGetKernel(&kernel, library, "spin"));
    EXPECT(cuLibraryGetKernel(&kernel, library, "none"), CUDA_ERROR_NOT_FOUND);
    REQUIRE(kernel == list[1] && check_free() == before); /* loaded nowhere yet */
    OK(cuKernelGetName(&name, kernel));
    REQUIRE(strcmp(name, "spin") == 0);
    OK(cuKernelGetLibrary(&same, kernel));
    OK(cuKernelGetFunction(&f, kernel));
    OK(cuKernelGetFunction(&again, kernel));
    OK(cuLibraryGetModule(&m, library));
    REQUIRE(same == library && f == again && check_free() == before - 4 * MIB);
    /* A kernel may stand for the function in a launch, in every context. */
    OK(cuLaunchKernel((CUfunction) kernel, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    OK(cuCtxCreate_v2(&made, 0, 0));
    OK(cuLaunchKernel((CUfunction) kernel, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    OK(cuCtxSynchronize());
    OK(cuCtxDestroy_v2(made)); /* with its module */
    OK(cuCtxSetCurrent(primary));
    REQUIRE(check_free() == before - 4 * MIB);
    OK(cuLibraryUnload(library));
    REQUIRE(check_free() == before);
    EXPECT(cuKernelGetFunction(&f, kernel), CUDA_ERROR_INVALID_HANDLE);
    EXPECT(cuLibraryUnload(library), CUDA_ERROR_INVALID_HANDLE);
}

static void heaps(void) {
    CUcontext made, primary;
    size_t value, before = check_free(), inside;
    OK(cuCtxGetCurrent(&primary));
    OK(cuCtxCreate_v2(&made, 0, 0));
    inside = check_free();
    OK(cuCtxGetLimit(&value, CU_LIMIT_MALLOC_HEAP_SIZE));
    OK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, value + 100 * MIB));
    REQUIRE(check_free() == inside - 100 * MIB);
    OK(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 11 * MIB));
    REQUIRE(check_free() == inside - 110 * MIB);
    OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048));
    REQUIRE(check_free() == inside - 110 * MIB - (size_t) 1024 * 108 * 2048);
    OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 512));
    EXPECT(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, (size_t) 1 << 40), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, value));
    REQUIRE(check_free() == inside - 10 * MIB);
    OK(cuCtxDestroy_v2(made));
    OK(cuCtxSetCurrent(primary));
    REQUIRE(check_free() == before);
}

static void oldest_launches(void) {
    CUfunction fill = check_function("fill");
    CUdeviceptr p;
    unsigned char out[64];
    size_t bytes = sizeof(out);
    OK(cuMemAlloc_v2(&p, sizeof(out)));
    EXPECT(cuLaunch(fill), CUDA_ERROR_INVALID_VALUE); /* no shape */
    OK(cuFuncSetBlockShape(fill, 1, 1, 1));
    OK(cuParamSetv(fill, 0, &p, sizeof(p)));
    OK(cuParamSeti(fill, 8, 0x21));
    OK(cuParamSetv(fill, 16, &bytes, sizeof(bytes)));
    EXPECT(cuParamSetv(fill, 250, &bytes, sizeof(bytes)), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuLaunch(fill), CUDA_ERROR_INVALID_VALUE); /* no size */
    OK(cuParamSetSize(fill, 24));
    OK(cuLaunch(fill));
    OK(cuMemcpyDtoH_v2(out, p, sizeof(out)));
    REQUIRE(out[0] == 0x21 && out[63] == 0x21);
    OK(cuParamSeti(fill, 8, 0x43));
    OK(cuLaunchGridAsync(fill, 2, 2, NULL));
    OK(cuMemcpyDtoH_v2(out, p, sizeof(out)));
    REQUIRE(out[63] == 0x43);
    OK(cuMemFree_v2(p));
}

static void cooperative(void) {
    unsigned long long ns = 1000;
    void *params[] = {&ns};
    CUfunction spin = check_function("spin");
    OK(cuLaunchCooperativeKernel(spin, 216, 1, 1, 1024, 1, 1, 0, NULL, params));
    EXPECT(cuLaunchCooperativeKernel(spin, 217, 1, 1, 1024, 1, 1, 0, NULL, params),
           CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    /* On both devices, each behind the other. */
    CUcontext first, second;
    CUDA_LAUNCH_PARAMS list[2];
    CUstream s[2];
    OK(cuCtxGetCurrent(&first));
    OK(cuStreamCreate(&s[0], CU_STREAM_NON_BLOCKING));
    OK(cuDevicePrimaryCtxRetain(&second, 1));
    OK(cuCtxSetCurrent(second));
    OK(cuStreamCreate(&s[1], CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 2; i++) {
        OK(cuCtxSetCurrent(i ? second : first));
        list[i] = (CUDA_LAUNCH_PARAMS){.function = check_function("spin"),
                                       .gridDimX = 1,
                                       .gridDimY = 1,
                                       .gridDimZ = 1,
                                       .blockDimX = 1,
                                       .blockDimY = 1,
                                       .blockDimZ = 1,
                                       .hStream = s[i],
                                       .kernelParams = params};
    }
    check_spin(list[1].function, 100000000, s[1]);
    unsigned long long begin = check_now_ns();
    OK(cuLaunchCooperativeKernelMultiDevice(list, 2, 0));
    OK(cuStreamSynchronize(s[0]));
    REQUIRE(check_now_ns() - begin >= 50000000);
    list[1].hStream = s[0];
    EXPECT(cuLaunchCooperativeKernelMultiDevice(list, 2, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuCtxSetCurrent(first));
    OK(cuDevicePrimaryCtxRelease_v2(1));
}

static void *alloc_later(void *arg) {
    CUdeviceptr *p = arg;
    CUcontext ctx;
    OK(cuDevicePrimaryCtxRetain(&ctx, 0)); /* held up until the process goes on */
    OK(cuCtxSetCurrent(ctx));
    OK(cuMemAlloc_v2(p, MIB));
    return p;
}

static void checkpoint(void) {
    CUprocessState state;
    CUcheckpointLockArgs soon = {.timeoutMs = 20};
    CUdeviceptr p, later = 0;
    unsigned char byte;
    pthread_t thread;
    size_t before = check_free();
    int self = getpid();
    OK(cuMemAlloc_v2(&p, 64 * MIB));
    OK(cuMemsetD8_v2(p, 3, 64 * MIB));
    EXPECT(cuCheckpointProcessLock(1, NULL), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT(cuCheckpointProcessUnlock(self, NULL), CUDA_ERROR_ILLEGAL_STATE);
    check_spin(check_function("spin"), 300000000, NULL);
    EXPECT(cuCheckpointProcessLock(self, &soon), CUDA_ERROR_TIMEOUT);
    OK(cuCheckpointProcessLock(self, NULL));
    REQUIRE(pthread_create(&thread, NULL, alloc_later, &later) == 0);
    OK(cuCheckpointProcessCheckpoint(self, NULL));
    OK(cuCheckpointProcessGetState(self, &state));
    REQUIRE(state == CU_PROCESS_STATE_CHECKPOINTED && later == 0);
    EXPECT(cuCheckpointProcessUnlock(self, NULL), CUDA_ERROR_ILLEGAL_STATE);
    nvmlMemory_t memory;
    nvmlDevice_t device;
    REQUIRE(nvmlInit_v2() == NVML_SUCCESS);
    REQUIRE(nvmlDeviceGetHandleByIndex_v2(0, &device) == NVML_SUCCESS);
    REQUIRE(nvmlDeviceGetMemoryInfo(device, &memory) == NVML_SUCCESS);
    REQUIRE(memory.used < 64 * MIB); /* not even the context is there */
    OK(cuCheckpointProcessRestore(self, NULL));
    OK(cuCheckpointProcessUnlock(self, NULL));
    REQUIRE(pthread_join(thread, NULL) == 0);
    REQUIRE(later != 0 && check_free() == before - 65 * MIB);
    OK(cuMemcpyDtoH_v2(&byte, p + 64 * MIB - 1, 1));
    REQUIRE(byte == 3);
    OK(cuMemFree_v2(p));
    OK(cuMemFree_v2(later));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    REQUIRE(nvmlShutdown() == NVML_SUCCESS);
}

static const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
                          ".visible .entry matmul(.param .u64 a)\n{ ret; }\n";

/* As templates of C++ and Numba have them: longer than any bound that one would think of, and equal
 * to the last character. */
static void long_names(void) {
    static char name[2][5000], text[12000];
    CUmodule m;
    CUfunction f[2];
    CUlibrary library;
    CUkernel kernel[2];
    const char *told;
    for (int i = 0; i < 2; i++) {
        memset(name[i], 'k', sizeof(name[i]) - 2);
        name[i][sizeof(name[i]) - 2] = (char) ('a' + i);
    }
    (void) snprintf(text, sizeof(text),
                    ".version 8.0\n.target sm_80\n.visible .entry %s()\n{ ret; }\n"
                    ".visible .entry %s()\n{ ret; }\n",
                    name[0], name[1]);
    for (int round = 0; round < 2; round++) { /* the second uses the functions of the first anew */
        OK(cuModuleLoadData(&m, text));
        OK(cuLibraryLoadData(&library, text, NULL, NULL, 0, NULL, NULL, 0));
        for (int i = 0; i < 2; i++) {
            OK(cuModuleGetFunction(&f[i], m, name[i]));
            OK(cuFuncGetName(&told, f[i]));
            REQUIRE(strcmp(told, name[i]) == 0);
            OK(cuLibraryGetKernel(&kernel[i], library, name[i]));
            OK(cuKernelGetName(&told, kernel[i]));
            REQUIRE(strcmp(told, name[i]) == 0);
            OK(cuLaunchKernel(f[i], 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
            OK(cuLaunchKernel((CUfunction) kernel[i], 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
        }
        REQUIRE(f[0] != f[1] && kernel[0] != kernel[1]);
        OK(cuCtxSynchronize());
        OK(cuLibraryUnload(library));
        OK(cuModuleUnload(m));
    }
}

static void by_time_only(void) {
    CUmodule m;
    CUfunction f, same;
    CUlibrary library;
    CUkernel kernel;
    CUevent a, b;
    float ms;
    size_t before = check_free();
    OK(cuModuleLoadData(&m, ptx));
    REQUIRE(check_free() == before - 2 * MIB);
    EXPECT(cuModuleGetFunction(&f, m, "matmu"), CUDA_ERROR_NOT_FOUND);
    OK(cuModuleGetFunction(&f, m, "matmul"));
    OK(cuModuleGetFunction(&same, m, "matmul"));
    REQUIRE(f == same);
    EXPECT(cuModuleLoadData(&m, "hello"), CUDA_ERROR_INVALID_IMAGE);
    OK(cuEventCreate(&a, 0));
    OK(cuEventCreate(&b, 0));
    CUdeviceptr p = 0;
    void *params[] = {&p};
    OK(cuEventRecord(a, NULL));
    OK(cuLaunchKernel(f, 108 * 2 * 100, 1, 1, 1024, 1, 1, 0, NULL, params, NULL)); /* 100 rounds */
    OK(cuEventRecord(b, NULL));
    OK(cuEventSynchronize(b));
    OK(cuEventElapsedTime(&ms, a, b));
    REQUIRE(ms >= 1.0f && ms < 50.0f);
    OK(cuEventDestroy_v2(a));
    OK(cuEventDestroy_v2(b));
    OK(cuModuleUnload(m));
    REQUIRE(check_free() == before);
    OK(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&kernel, library, "matmul"));
    OK(cuLaunchKernel((CUfunction) kernel, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    OK(cuCtxSynchronize());
    OK(cuLibraryUnload(library));
    REQUIRE(check_free() == before);
}

int main(int argc, char **argv) {
    (void) argv;
    (void) check_start(0);
    if (argc > 1) {
        by_time_only();
        long_names();
    } else {
        modules();
        libraries();
        heaps();
        oldest_launches();
        cooperative();
        checkpoint();
    }
    OK(cuDevicePrimaryCtxRelease_v2(0));
    (void) puts("ok");
    return 0;
}
