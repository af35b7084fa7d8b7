/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Return the result of `call` from the calling function, unless it is CUDA_SUCCESS or NVML_SUCCESS,
 * which both are 0. */
#define CUDA_TRY(call) ABI_TRY(CUresult, call)
#define NVML_TRY(call) ABI_TRY(nvmlReturn_t, call)

/* End a function that returns a value through `out`: where that is NULL, by the error for an
 * invalid argument. */
#define CUDA_RETURN_VALUE(out, value) ABI_RETURN_VALUE(out, value, CUDA_ERROR_INVALID_VALUE)
#define NVML_RETURN_VALUE(out, value) ABI_RETURN_VALUE(out, value, NVML_ERROR_INVALID_ARGUMENT)

#define ABI_TRY(type, call)                                                                        \
    do {                                                                                           \
        type _r = (call);                                                                          \
        if (_r != 0)                                                                               \
            return _r;                                                                             \
    } while (0)

#define ABI_RETURN_VALUE(out, value, invalid)                                                      \
    do {                                                                                           \
        if (!(out))                                                                                \
            return invalid;                                                                        \
        *(out) = (value);                                                                          \
        return 0;                                                                                  \
    } while (0)
