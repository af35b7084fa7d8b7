/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Calls of a driver that was opened with dlopen(), with the types of the ABI table. */

#include <dlfcn.h>

#include "abi/cuda.h"
#include "abi/nvml.h"

#define NVML_FN(symbol, params, args) typedef nvmlReturn_t symbol##_fn params;
#define CUDA_FN(base, symbol, since, until, stream, params, args)                                  \
    typedef CUresult symbol##_fn params;
#include "abi/hooks.def"

/* Declares a pointer of that name; NULL where the library has no such symbol. */
#define LOOK_UP(library, symbol) symbol##_fn *symbol = (symbol##_fn *) dlsym(library, #symbol)
