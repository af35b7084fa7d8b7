/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Modules of the simulator's own format, which is text:
 *
 *     ALIQUOT SIMULATED MODULE 1
 *     kernel NAME BUILTIN
 *     device BYTES
 *     ...
 *
 * `kernel` gives a built-in kernel a name for cuModuleGetFunction. `device` is the memory of the
 * card that the module occupies while it is loaded, as code and globals do. The built-ins, as in
 * CUDA C:
 *
 *     saxpy(int n, float a, const float *x, float *y)   y = a x + y, as far as there are threads
 *     memset(void *p, int value, size_t bytes)
 *     spin(unsigned long long ns)                         holds the GPU for so long
 *     condition(cudaGraphConditionalHandle h, unsigned int value)   sets it
 *     countdown(cudaGraphConditionalHandle h, int *n)               sets it to --*n > 0
 *
 * Anything else, such as PTX or a cubin, is code for another GPU and is refused, unless the machine
 * runs kernels by time only. Then its kernels compute nothing, whatever their arguments, and take
 * TIMED_NS for each wave of blocks that fits on the card. */

#include "sim/cuda/cuda.h"

enum module_builtin {
    BUILTIN_SAXPY,
    BUILTIN_MEMSET,
    BUILTIN_SPIN,
    BUILTIN_CONDITION,
    BUILTIN_COUNTDOWN,
    BUILTIN_TIMED, /* foreign code */
    BUILTIN_COUNT
};

struct builtin {
    const char *name;
    unsigned int nparams;
    size_t size[4];
};

extern const struct builtin builtins[BUILTIN_COUNT];

#define MODULE_NAME_MAX 64 /* in a module of the simulator's own kind */
#define MODULE_KERNELS_MAX 64

#define TIMED_NS 10000u
#define PARAMETERS_MAX 256u /* bytes, of a launch in the oldest style */

/* Arguments of the oldest launch calls (cuParamSet*), collected before the launch. */
struct module_legacy {
    unsigned int block[3];
    size_t size;
    char parameters[PARAMETERS_MAX];
};

struct CUfunc_st {
    enum cuda_tag tag;
    CUmodule module;
    struct CUfunc_st *next; /* BUILTIN_TIMED: of the module */
    enum module_builtin builtin;
    char *name; /* own_name, or allocated; kept until the function is used anew */
    char own_name[MODULE_NAME_MAX];
    struct module_legacy *legacy; /* made when first used */
};

struct CUmod_st {
    enum cuda_tag tag;
    struct CUmod_st *next;
    CUcontext context; /* NULL: of a library, loaded nowhere */
    size_t device_bytes;
    unsigned int nkernels;
    struct CUfunc_st kernel[MODULE_KERNELS_MAX];
    void *image; /* foreign code, ended by a zero byte */
    size_t image_bytes;
    CUfunction timed; /* its functions that the program has looked up */
};

/* Loads into a context, or with NULL only reads. */
CUresult module_load(CUcontext ctx, const void *image, CUmodule *ret);
void module_unload(CUmodule m);
/* The contents of a file; the caller frees them. */
CUresult module_read_file(const char *name, char **ret);
CUresult module_function(CUmodule m, const char *name, CUfunction *ret);
/* Of any kernel on a device. */
CUresult module_attribute(int *pi, CUfunction_attribute attrib, int device);

/* All modules of a context that ends. */
void module_release_context(CUcontext ctx);
