/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Modules of the simulator's own format, which is text:
 *
 *     ALIQUOT SIMULATED MODULE 1
 *     kernel NAME BUILTIN
 *     ...
 *
 * Each line gives a built-in kernel a name for cuModuleGetFunction. The built-ins, as in CUDA C:
 *
 *     saxpy(int n, float a, const float *x, float *y)   y = a x + y, as far as there are threads
 *     memset(void *p, int value, size_t bytes)
 *     spin(unsigned long long ns)                         holds the GPU for so long
 *
 * Anything else, such as PTX or a cubin, is code for a GPU that this one is not. */

#include "sim/cuda/cuda.h"

enum module_builtin { BUILTIN_SAXPY, BUILTIN_MEMSET, BUILTIN_SPIN, BUILTIN_COUNT };

struct builtin {
    const char *name;
    unsigned int nparams;
    size_t size[4];
};

extern const struct builtin builtins[BUILTIN_COUNT];

#define MODULE_NAME_MAX 64
#define MODULE_KERNELS_MAX 64

struct CUfunc_st {
    enum cuda_tag tag;
    CUmodule module;
    enum module_builtin builtin;
    char name[MODULE_NAME_MAX];
};

struct CUmod_st {
    enum cuda_tag tag;
    struct CUmod_st *next;
    CUcontext context;
    unsigned int nkernels;
    struct CUfunc_st kernel[MODULE_KERNELS_MAX];
};

/* All modules of a context that ends. */
void module_release_context(CUcontext ctx);
