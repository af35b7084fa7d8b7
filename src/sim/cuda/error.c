/* SPDX-License-Identifier: Apache-2.0 */

/* Names and descriptions of errors. The descriptions are short forms of our own. */

#include <string.h>

#include "sim/cuda/cuda.h"

struct text {
    CUresult code;
    const char *name;
};

#define CUDA_ERROR(name, value) {(CUresult) (value), #name},
static const struct text texts[] = {
#include "abi/cuda-errors.def"
};
#undef CUDA_ERROR

static const struct {
    CUresult code;
    const char *text;
} descriptions[] = {
    {CUDA_SUCCESS, "no error"},
    {CUDA_ERROR_INVALID_VALUE, "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "initialization error"},
    {CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable"},
    {CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"},
    {CUDA_ERROR_INVALID_CONTEXT, "invalid device context"},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"},
    {CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"},
    {CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"},
    {CUDA_ERROR_NOT_SUPPORTED, "operation not supported"},
    {CUDA_ERROR_UNKNOWN, "unknown error"},
};

static const struct text *find_text(CUresult error) {
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (texts[i].code == error)
            return &texts[i];
    return NULL;
}

CUresult cuGetErrorName(CUresult error, const char **str) {
    if (!str)
        return CUDA_ERROR_INVALID_VALUE;
    const struct text *t = find_text(error);
    *str = t ? t->name : NULL;
    return t ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **str) {
    if (!str)
        return CUDA_ERROR_INVALID_VALUE;
    const struct text *t = find_text(error);
    *str = t ? t->name : NULL;
    for (size_t i = 0; i < sizeof(descriptions) / sizeof(descriptions[0]); i++)
        if (descriptions[i].code == error)
            *str = descriptions[i].text;
    return t ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
