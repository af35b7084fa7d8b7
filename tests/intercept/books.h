/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* For programs that take memory and check after each step what cuMemGetInfo says is free. */

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

/* Starts CUDA on the first device and notes how large it is; returns the primary context. */
static CUcontext begin(void) {
    CUcontext primary;
    size_t free_bytes;

    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuCtxSetCurrent(primary));
    OK(cuMemGetInfo_v2(&free_bytes, &total));
    CHECK(free_bytes < total); /* the context itself */
    return primary;
}
