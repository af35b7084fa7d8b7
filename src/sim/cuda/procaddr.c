/* SPDX-License-Identifier: Apache-2.0 */

/* Names to functions. */

#include <string.h>

#include "sim/cuda/cuda.h"

static const struct cuda_proc *first_of(const char *base) {
    size_t low = 0, high = cuda_nprocs;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(cuda_procs[middle].base, base) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < cuda_nprocs && strcmp(cuda_procs[low].base, base) == 0 ? &cuda_procs[low] : NULL;
}

static bool matches_version(const struct cuda_proc *p, int version, enum cuda_stream_use use) {
    if (version < p->since || (p->until > 0 && version >= p->until))
        return false;
    return p->stream == CUDA_STREAM_ANY || p->stream == use;
}

static void *find_function(const char *symbol, int version, enum cuda_stream_use use,
                           bool *ret_known) {
    const struct cuda_proc *p = first_of(symbol);
    *ret_known = p != NULL;
    for (; p && p < cuda_procs + cuda_nprocs && strcmp(p->base, symbol) == 0; p++)
        if (matches_version(p, version, use))
            return p->function;
    return NULL;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cuda_version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *symbol_status) {
    const cuuint64_t known_flags =
        CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    if (!symbol || !pfn || (flags & ~known_flags))
        return CUDA_ERROR_INVALID_VALUE;
    bool known;
    void *p =
        find_function(symbol, cuda_version,
                      flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM ? CUDA_STREAM_PTDS
                                                                            : CUDA_STREAM_LEGACY,
                      &known);
    *pfn = p;
    if (symbol_status)
        *symbol_status = p       ? CU_GET_PROC_ADDRESS_SUCCESS
                         : known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                 : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_SUCCESS;
}

/* The first form has no other way to say that there is no such function. */
CUresult cuGetProcAddress(const char *symbol, void **pfn, int cuda_version, cuuint64_t flags) {
    CUresult r = cuGetProcAddress_v2(symbol, pfn, cuda_version, flags, NULL);
    return r == CUDA_SUCCESS && !*pfn ? CUDA_ERROR_NOT_FOUND : r;
}
