/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* NVML by dlopen: each function of abi/hooks.def. No driver has all of them: those that it lacks
 * are NULL, but for the few without which there is no work (nvml.c). */

#include "abi/nvml.h"

struct err;

struct nvml {
    const char *(*error_string)(nvmlReturn_t); /* never NULL */
#define NVML_FN(symbol, params, args) nvmlReturn_t(*symbol) params;
#include "abi/hooks.def"
};

/* Loads the library, for the life of the process, and resolves; nothing is called yet. */
int nvml_load(const char *path, struct nvml *ret, struct err *err);
