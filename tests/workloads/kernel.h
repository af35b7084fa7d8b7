/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A kernel that takes as long as it is told, on the first GPU. What fails ends the program. */

#include <stdint.h>

#include "abi/cuda.h"
#include "driver.h"

#define CUDA(name, params) CALL("libcuda.so.1", name, CUresult, params)

#define OK(call)                                                                                   \
    do {                                                                                           \
        CUresult result_ = (call);                                                                 \
        if (result_ != CUDA_SUCCESS) {                                                             \
            (void) printf("error=%d line=%d\n", (int) result_, __LINE__);                          \
            exit(EXIT_FAILURE);                                                                    \
        }                                                                                          \
    } while (0)

static CUfunction load(void) {
    static const char module_text[] = "ALIQUOT SIMULATED MODULE 1\nkernel wait spin\n";
    CUcontext context;
    CUmodule module;
    CUfunction function;
    CUdevice device;

    OK(CUDA(cuInit, (unsigned int) )(0));
    OK(CUDA(cuDeviceGet, (CUdevice *, int) )(&device, 0));
    OK(CUDA(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))(&context, device));
    OK(CUDA(cuCtxSetCurrent, (CUcontext))(context));
    OK(CUDA(cuModuleLoadData, (CUmodule *, const void *) )(&module, module_text));
    OK(CUDA(cuModuleGetFunction, (CUfunction *, CUmodule, const char *) )(&function, module,
                                                                          "wait"));
    return function;
}

static void launch(CUfunction function, uint64_t ns) {
    void *arguments[] = {&ns};

    OK(CUDA(cuLaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                             unsigned, CUstream, void **, void **) )(function, 1, 1, 1, 1, 1, 1, 0,
                                                                     NULL, arguments, NULL));
}
