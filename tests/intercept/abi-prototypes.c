/* SPDX-License-Identifier: Apache-2.0 */

/* Compiled with NVIDIA's headers only: every row of our table has the prototype that NVIDIA
 * declares. */

#define __CUDA_API_VERSION_INTERNAL
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <cuda.h>
#include <nvml.h>

/* Declared in a header that the wheels do not have. */
CUresult cuProfilerStart(void);
CUresult cuProfilerStop(void);

#define CUDA_FN(base, symbol, since, until, stream, params, args)                                  \
    _Static_assert(__builtin_types_compatible_p(__typeof__(symbol), CUresult params), #symbol);
#define NVML_FN(symbol, params, args)                                                              \
    _Static_assert(__builtin_types_compatible_p(__typeof__(symbol), nvmlReturn_t params), #symbol);
#include "abi/hooks.def"
