/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Return the result of `call` from the calling function, unless it is CUDA_SUCCESS or NVML_SUCCESS,
 * which both are 0. */
#define CUDA_TRY(call) ABI_TRY(CUresult, call)
#define NVML_TRY(call) ABI_TRY(nvmlReturn_t, call)

#define ABI_TRY(type, call)                                                                        \
    do {                                                                                           \
        type _r = (call);                                                                          \
        if (_r != 0)                                                                               \
            return _r;                                                                             \
    } while (0)
