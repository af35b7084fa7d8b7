/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/cuda/library.h"

#include <stdlib.h>
#include <string.h>

#include "sim/cuda/capture.h"
#include "sim/list.h"

struct loaded {
    struct loaded *next;
    CUcontext context;
    CUmodule module;
};

struct CUkern_st {
    enum cuda_tag tag;
    struct CUkern_st *next;
    CUlibrary library;
    char *name; /* kept until the kernel is used anew */
};

struct CUlib_st {
    enum cuda_tag tag;
    struct CUlib_st *next;
    const void *code; /* stays the program's: it has to keep it */
    char *text;       /* contents of the file, if it was read from one */
    CUmodule model;   /* loaded nowhere */
    struct loaded *loaded;
    CUkernel kernels;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all here; taken before cuda_lock */
static CUlibrary libraries, free_libraries;
static CUkernel free_kernels;

static CUresult enter_library(CUlibrary l) {
    CUDA_TRY(cuda_enter());
    return l && l->tag == TAG_LIBRARY ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult enter_kernel(CUkernel k) {
    CUDA_TRY(cuda_enter());
    return k && k->tag == TAG_KERNEL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* Owns `text`. */
static CUresult library_new(const void *code, char *text, CUlibrary *ret) {
    CUmodule model;
    CUresult r = module_load(NULL, code, &model);
    if (r != CUDA_SUCCESS) {
        free(text);
        return r;
    }
    (void) pthread_mutex_lock(&lock);
    CUlibrary l;
    CUDA_REUSE_OBJECT(l, free_libraries, next);
    if (l) {
        *l = (struct CUlib_st){
            .tag = TAG_LIBRARY, .next = libraries, .code = code, .text = text, .model = model};
        libraries = l;
    }
    (void) pthread_mutex_unlock(&lock);
    if (!l) {
        module_unload(model);
        free(text);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ret = l;
    return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit_options,
                           void **jit_options_values, unsigned int num_jit_options,
                           CUlibraryOption *library_options, void **library_option_values,
                           unsigned int num_library_options) {
    (void) jit_options; /* they concern the compiler and when to load */
    (void) jit_options_values;
    (void) num_jit_options;
    (void) library_options;
    (void) library_option_values;
    (void) num_library_options;
    CUDA_TRY(cuda_enter());
    return library && code ? library_new(code, NULL, library) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *file_name, CUjit_option *jit_options,
                               void **jit_options_values, unsigned int num_jit_options,
                               CUlibraryOption *library_options, void **library_option_values,
                               unsigned int num_library_options) {
    (void) jit_options;
    (void) jit_options_values;
    (void) num_jit_options;
    (void) library_options;
    (void) library_option_values;
    (void) num_library_options;
    CUresult r = cuda_enter();
    char *text;
    if (r != CUDA_SUCCESS)
        return r;
    if (!library || !file_name)
        return CUDA_ERROR_INVALID_VALUE;
    r = module_read_file(file_name, &text);
    return r == CUDA_SUCCESS ? library_new(text, text, library) : r;
}

CUresult cuLibraryUnload(CUlibrary library) {
    CUDA_TRY(enter_library(library));
    (void) pthread_mutex_lock(&lock);
    CUlibrary *p = &libraries;
    while (*p != library)
        p = &(*p)->next;
    *p = library->next;
    while (library->loaded) {
        struct loaded *i = library->loaded;
        library->loaded = i->next;
        module_unload(i->module);
        free(i);
    }
    while (library->kernels) {
        CUkernel k = library->kernels;
        library->kernels = k->next;
        k->tag = TAG_FREE;
        LIST_PUSH(free_kernels, k, next);
    }
    module_unload(library->model);
    free(library->text);
    library->tag = TAG_FREE;
    LIST_PUSH(free_libraries, library, next);
    (void) pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

void library_release_context(CUcontext ctx) {
    (void) pthread_mutex_lock(&lock);
    for (CUlibrary l = libraries; l; l = l->next)
        for (struct loaded **p = &l->loaded; *p;) {
            struct loaded *i = *p;
            if (i->context != ctx) {
                p = &i->next;
                continue;
            }
            *p = i->next;
            module_unload(i->module);
            free(i);
        }
    (void) pthread_mutex_unlock(&lock);
}

/* With the lock. */
static CUresult load_in_context(CUlibrary l, CUcontext ctx, CUmodule *ret) {
    for (struct loaded *i = l->loaded; i; i = i->next)
        if (i->context == ctx) {
            *ret = i->module;
            return CUDA_SUCCESS;
        }
    CUresult r = capture_unsafe();
    struct loaded *made = r == CUDA_SUCCESS ? calloc(1, sizeof(*made)) : NULL;
    if (!made)
        return r == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : r;
    r = module_load(ctx, l->code, &made->module);
    if (r != CUDA_SUCCESS) {
        free(made);
        return r;
    }
    made->context = ctx;
    LIST_PUSH(l->loaded, made, next);
    *ret = made->module;
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetModule(CUmodule *mod, CUlibrary library) {
    CUcontext ctx;
    CUDA_TRY(enter_library(library));
    CUDA_TRY(cuda_enter_context(&ctx));
    if (!mod)
        return CUDA_ERROR_INVALID_VALUE;
    (void) pthread_mutex_lock(&lock);
    CUresult r = load_in_context(library, ctx, mod);
    (void) pthread_mutex_unlock(&lock);
    return r;
}

/* With the lock: one that was used before, or a new one; NULL: no memory. */
static CUkernel kernel_new(CUlibrary l, const char *name) {
    CUkernel k;
    CUDA_REUSE_NAMED(k, free_kernels, next, name);
    if (!k)
        return NULL;
    *k = (struct CUkern_st){.tag = TAG_KERNEL, .next = l->kernels, .library = l, .name = k->name};
    l->kernels = k;
    return k;
}

/* With the lock. */
static CUresult kernel_of(CUlibrary l, const char *name, CUkernel *ret) {
    CUfunction f;
    CUDA_TRY(module_function(l->model, name, &f));
    CUkernel k = l->kernels;
    while (k && strcmp(k->name, name) != 0)
        k = k->next;
    if (!k)
        k = kernel_new(l, f->name);
    if (!k)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *ret = k;
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
    CUDA_TRY(enter_library(library));
    if (!kernel || !name)
        return CUDA_ERROR_INVALID_VALUE;
    (void) pthread_mutex_lock(&lock);
    CUresult r = kernel_of(library, name, kernel);
    (void) pthread_mutex_unlock(&lock);
    return r;
}

CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary lib) {
    CUresult r = enter_library(lib);
    return r == CUDA_SUCCESS ? cuModuleGetFunctionCount(count, lib->model) : r;
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int num_kernels, CUlibrary lib) {
    CUresult r = enter_library(lib);
    if (r != CUDA_SUCCESS)
        return r;
    if (!kernels)
        return CUDA_ERROR_INVALID_VALUE;
    (void) pthread_mutex_lock(&lock);
    for (unsigned int i = 0; i < num_kernels && i < lib->model->nkernels && r == CUDA_SUCCESS; i++)
        r = kernel_of(lib, lib->model->kernel[i].name, &kernels[i]);
    (void) pthread_mutex_unlock(&lock);
    return r;
}

/* The built-ins use none. */
CUresult cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name) {
    CUDA_TRY(enter_library(library));
    return name && (dptr || bytes) ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLibraryGetManaged(CUdeviceptr *dptr, size_t *bytes, CUlibrary library,
                             const char *name) {
    return cuLibraryGetGlobal(dptr, bytes, library, name);
}

/* -- kernels --------------------------------------------------------------------------------- */

CUresult library_function(CUkernel kernel, CUfunction *ret) {
    CUcontext ctx;
    CUmodule module;
    CUDA_TRY(cuda_enter_context(&ctx));
    (void) pthread_mutex_lock(&lock);
    CUresult r = load_in_context(kernel->library, ctx, &module);
    (void) pthread_mutex_unlock(&lock);
    return r == CUDA_SUCCESS ? module_function(module, kernel->name, ret) : r;
}

CUresult cuKernelGetFunction(CUfunction *func, CUkernel kernel) {
    CUDA_TRY(enter_kernel(kernel));
    return func ? library_function(kernel, func) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuKernelGetLibrary(CUlibrary *lib, CUkernel kernel) {
    CUDA_TRY(enter_kernel(kernel));
    CUDA_RETURN_VALUE(lib, kernel->library);
}

CUresult cuKernelGetName(const char **name, CUkernel func) {
    CUDA_TRY(enter_kernel(func));
    CUDA_RETURN_VALUE(name, func->name);
}

CUresult cuKernelGetAttribute(int *pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev) {
    CUresult r = enter_kernel(kernel);
    if (r == CUDA_SUCCESS)
        r = cuda_enter_device(dev);
    return r == CUDA_SUCCESS ? module_attribute(pi, attrib, dev) : r;
}

CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev) {
    (void) val; /* hints for shared memory, which the built-ins do not use */
    CUDA_TRY(enter_kernel(kernel));
    CUDA_TRY(cuda_enter_device(dev));
    return attrib == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ||
                   attrib == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev) {
    (void) config;
    CUresult r = enter_kernel(kernel);
    return r == CUDA_SUCCESS ? cuda_enter_device(dev) : r;
}
