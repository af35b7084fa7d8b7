/* SPDX-License-Identifier: Apache-2.0 */

/* A CUDA driver whose functions do nothing, for measuring what a hook adds to a call: all rows of
 * the ABI table succeed at once, and the few that must answer something are below. */

#include <stdint.h>
#include <string.h>

#include "abi/cuda.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#define EXPORTED __attribute__((visibility("default")))
#define CUDA_FN(base, symbol, since, until, stream, params, args)                                  \
    EXPORTED __attribute__((weak)) CUresult symbol params;                                         \
    CUresult symbol params {                                                                       \
        return CUDA_SUCCESS;                                                                       \
    }
#define cuMemAlloc_v2 unused_cuMemAlloc_v2
#define cuCtxGetCurrent unused_cuCtxGetCurrent
#define cuCtxGetDevice unused_cuCtxGetDevice
#define cuDeviceGetUuid_v2 unused_cuDeviceGetUuid_v2
#include "abi/hooks.def"
#undef cuMemAlloc_v2
#undef cuCtxGetCurrent
#undef cuCtxGetDevice
#undef cuDeviceGetUuid_v2

EXPORTED CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytes) {
    static CUdeviceptr next = 0x7f0000000000;

    *dptr = next += 512;
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuCtxGetCurrent(CUcontext *ctx) {
    *ctx = (CUcontext) (uintptr_t) 0x1000;
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuCtxGetDevice(CUdevice *device) {
    *device = 0;
    return CUDA_SUCCESS;
}

/* GPU-01010101-0101-0101-0101-010101010101 */
EXPORTED CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev) {
    memset(uuid->bytes, 1, sizeof(uuid->bytes));
    return CUDA_SUCCESS;
}
