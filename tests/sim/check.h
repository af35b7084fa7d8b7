/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the test programs share: the driver's functions as hooks.def declares them, and an end with
 * a message for whatever does not go as expected. */

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "abi/cuda.h"

#define CUDA_FN(base, symbol, since, until, stream, params, args) CUresult symbol params;
#include "abi/hooks.def"

#define EXPECT(call, want)                                                                         \
    do {                                                                                           \
        CUresult _got = (call);                                                                    \
        if (_got != (want)) {                                                                      \
            (void) fprintf(stderr, "%s:%d: %s is %d, not %d\n", __FILE__, __LINE__, #call,         \
                           (int) _got, (int) (want));                                              \
            exit(EXIT_FAILURE);                                                                    \
        }                                                                                          \
    } while (0)

#define OK(call) EXPECT(call, CUDA_SUCCESS)

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void) fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);       \
            exit(EXIT_FAILURE);                                                                    \
        }                                                                                          \
    } while (0)

static const char check_module[] = "ALIQUOT SIMULATED MODULE 1\n"
                                   "kernel saxpy saxpy\n"
                                   "kernel fill memset\n"
                                   "kernel spin spin\n"
                                   "kernel condition condition\n"
                                   "kernel countdown countdown\n";

static inline unsigned long long check_now_ns(void) {
    struct timespec ts;
    (void) clock_gettime(CLOCK_MONOTONIC, &ts);
    return (unsigned long long) ts.tv_sec * 1000000000ull + (unsigned long long) ts.tv_nsec;
}

static inline size_t check_free(void) {
    size_t f, t;
    OK(cuMemGetInfo_v2(&f, &t));
    return f;
}

/* A primary context on a device, current. */
static inline CUcontext check_start(int device) {
    CUcontext ctx;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&ctx, device));
    OK(cuCtxSetCurrent(ctx));
    return ctx;
}

static inline CUfunction check_function(const char *name) {
    CUmodule module;
    CUfunction function;
    OK(cuModuleLoadData(&module, check_module));
    OK(cuModuleGetFunction(&function, module, name));
    return function;
}

static inline void check_spin(CUfunction spin, unsigned long long ns, CUstream stream) {
    void *params[] = {&ns};
    OK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}
