/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The real driver: one typed slot for each of its functions that we hook or call. A slot can be
 * called at any time. Before the driver has been found it holds a function that searches for it;
 * where the driver lacks the function, one that returns the driver's own error for that. */

#include <stdbool.h>
#include <stddef.h>

#include "abi/cuda.h"
#include "abi/nvml.h"

/* The hooks have the driver's names, so that linked programs call them; this declares them all. */
#define EXPORTED __attribute__((visibility("default")))
#define CUDA_HOOK(base, symbol, since, until, stream, params, args) EXPORTED CUresult symbol params;
#define NVML_HOOK(symbol, params, args) EXPORTED nvmlReturn_t symbol params;
#include "abi/hooks.def"

struct driver {
#define CUDA_HOOK(base, symbol, since, until, stream, params, args) CUresult(*symbol) params;
#define CUDA_USE CUDA_HOOK
#define NVML_HOOK(symbol, params, args) nvmlReturn_t(*symbol) params;
#define NVML_USE NVML_HOOK
#include "abi/hooks.def"
};

extern struct driver driver;

/* A row of the table of hooks: names, our functions, and where the driver's function is kept. */
struct hook {
    const char *name;
    void *ours;    /* NULL: a function that we only call */
    void **slot;   /* in `driver` */
    void *unbound; /* what the slot holds while the driver has not been found */
    bool nvml;
};

extern const struct hook hooks[];
extern const size_t hooks_count;

/* The row of a name that we hook, or NULL. */
const struct hook *hook_by_name(const char *name);

/* The row whose driver function is at `address`, or NULL. */
const struct hook *hook_by_address(const void *address);

/* Notes that a program has found the driver's function of this row at `address`, and brings all
 * rows of that library up to date. Where the library is in a link namespace that is not visible
 * here, `lookup` finds its functions; the hooks call the first such library. */
typedef void *driver_lookup_fn(const void *library, const char *name);
void driver_note(const struct hook *hook, void *address, driver_lookup_fn *lookup,
                 const void *library);
