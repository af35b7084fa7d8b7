/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/cuda/module.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADER "ALIQUOT SIMULATED MODULE 1\n"
#define FILE_MAX 65536

const struct builtin builtins[BUILTIN_COUNT] = {
    [BUILTIN_SAXPY] = {"saxpy", 4, {4, 4, 8, 8}},
    [BUILTIN_MEMSET] = {"memset", 3, {8, 4, 8}},
    [BUILTIN_SPIN] = {"spin", 1, {8}},
};

/* A word of up to MODULE_NAME_MAX - 1 characters, ended by `end`. Moves *at behind the end. */
static bool take_word(const char **at, char end, char ret[MODULE_NAME_MAX]) {
    size_t n = 0;
    const char *p = *at;
    while (n < MODULE_NAME_MAX - 1 && p[n] > ' ')
        n++;
    if (n == 0 || p[n] != end)
        return false;
    memcpy(ret, p, n);
    ret[n] = '\0';
    *at = p + n + 1;
    return true;
}

/* Reads only as far as the text makes sense: its length is not known. */
static bool parse(const char *at, CUmodule module) {
    while (*at) {
        char word[MODULE_NAME_MAX], builtin[MODULE_NAME_MAX];
        if (module->nkernels == MODULE_KERNELS_MAX)
            return false;
        struct CUfunc_st *f = &module->kernel[module->nkernels];
        if (!take_word(&at, ' ', word) || strcmp(word, "kernel") != 0 ||
            !take_word(&at, ' ', f->name) || !take_word(&at, '\n', builtin))
            return false;
        unsigned int i = 0;
        while (i < BUILTIN_COUNT && strcmp(builtins[i].name, builtin) != 0)
            i++;
        if (i == BUILTIN_COUNT)
            return false;
        f->tag = TAG_FUNCTION;
        f->module = module;
        f->builtin = (enum module_builtin) i;
        module->nkernels++;
    }
    return true;
}

static CUmodule modules, free_modules;

static CUmodule module_new(CUcontext ctx) {
    (void) pthread_mutex_lock(&cuda_lock);
    CUmodule m = free_modules;
    if (m)
        free_modules = m->next;
    else
        m = malloc(sizeof(*m));
    if (m) {
        memset(m, 0, sizeof(*m));
        m->tag = TAG_MODULE;
        m->context = ctx;
        m->next = modules;
        modules = m;
    }
    (void) pthread_mutex_unlock(&cuda_lock);
    return m;
}

/* Its memory is kept: its functions may still be asked for. */
static void module_free(CUmodule m) {
    (void) pthread_mutex_lock(&cuda_lock);
    for (CUmodule *p = &modules; *p; p = &(*p)->next)
        if (*p == m) {
            *p = m->next;
            break;
        }
    m->tag = TAG_FREE;
    for (unsigned int i = 0; i < m->nkernels; i++)
        m->kernel[i].tag = TAG_FREE;
    m->next = free_modules;
    free_modules = m;
    (void) pthread_mutex_unlock(&cuda_lock);
}

void module_release_context(CUcontext ctx) {
    CUmodule next;
    for (CUmodule m = modules; m; m = next) {
        next = m->next;
        if (m->context == ctx)
            module_free(m);
    }
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    CUcontext ctx;
    CUresult r = cuda_enter_context(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (!module || !image)
        return CUDA_ERROR_INVALID_VALUE;
    if (strncmp(image, HEADER, strlen(HEADER)) != 0)
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    CUmodule m = module_new(ctx);
    if (!m)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!parse((const char *) image + strlen(HEADER), m)) {
        module_free(m);
        return CUDA_ERROR_INVALID_IMAGE;
    }
    *module = m;
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int num_options,
                            CUjit_option *options, void **option_values) {
    (void) num_options; /* they concern the compiler */
    (void) options;
    (void) option_values;
    return cuModuleLoadData(module, image);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *fat_cubin) {
    return cuModuleLoadData(module, fat_cubin);
}

CUresult cuModuleLoad(CUmodule *module, const char *fname) {
    CUcontext ctx;
    CUresult r = cuda_enter_context(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (!module || !fname)
        return CUDA_ERROR_INVALID_VALUE;
    FILE *f = fopen(fname, "re");
    if (!f)
        return CUDA_ERROR_FILE_NOT_FOUND;
    char *text = calloc(1, FILE_MAX + 1);
    size_t n = text ? fread(text, 1, FILE_MAX, f) : 0;
    (void) fclose(f);
    r = n > 0 ? cuModuleLoadData(module, text) : CUDA_ERROR_INVALID_IMAGE;
    free(text);
    return r;
}

static CUresult enter_module(CUmodule module) {
    CUcontext ctx;
    CUresult r = cuda_enter_context(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    return module && module->tag == TAG_MODULE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuModuleUnload(CUmodule module) {
    CUresult r = enter_module(module);
    if (r == CUDA_SUCCESS)
        module_free(module);
    return r;
}

CUresult cuModuleGetFunction(CUfunction *func, CUmodule module, const char *name) {
    CUresult r = enter_module(module);
    if (r != CUDA_SUCCESS)
        return r;
    if (!func || !name)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned int i = 0; i < module->nkernels; i++)
        if (strcmp(module->kernel[i].name, name) == 0) {
            *func = &module->kernel[i];
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_NOT_FOUND;
}

CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule mod) {
    CUresult r = enter_module(mod);
    if (r != CUDA_SUCCESS)
        return r;
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = mod->nkernels;
    return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int num_functions,
                                    CUmodule mod) {
    CUresult r = enter_module(mod);
    if (r != CUDA_SUCCESS)
        return r;
    if (!functions)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned int i = 0; i < num_functions && i < mod->nkernels; i++)
        functions[i] = &mod->kernel[i];
    return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule module, const char *name) {
    (void) dptr;
    (void) bytes;
    CUresult r = enter_module(module);
    if (r != CUDA_SUCCESS)
        return r;
    return name ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_VALUE; /* there are none */
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode) {
    CUresult r = cuda_enter();
    if (r != CUDA_SUCCESS)
        return r;
    if (!mode)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = 1; /* eager */
    return CUDA_SUCCESS;
}

/* -- functions ------------------------------------------------------------------------------- */

static CUresult enter_function(CUfunction func) {
    CUcontext ctx;
    CUresult r = cuda_enter_context(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    return func && func->tag == TAG_FUNCTION ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction func) {
    CUresult r = enter_function(func);
    if (r != CUDA_SUCCESS)
        return r;
    if (!pi || (int) attrib < 0 || attrib > 20)
        return CUDA_ERROR_INVALID_VALUE;
    const struct sim_page *p = cuda_device[func->module->context->device].page;
    *pi = 0;
    if (attrib == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)
        *pi = 1024;
    else if (attrib == CU_FUNC_ATTRIBUTE_NUM_REGS)
        *pi = 16;
    else if (attrib == CU_FUNC_ATTRIBUTE_PTX_VERSION || attrib == CU_FUNC_ATTRIBUTE_BINARY_VERSION)
        *pi = (int) (p->cc_major * 10 + p->cc_minor);
    else if (attrib == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
        *pi = 49152;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction func, CUfunction_attribute attrib, int value) {
    (void) value; /* hints for shared memory, which the built-ins do not use */
    CUresult r = enter_function(func);
    if (r != CUDA_SUCCESS)
        return r;
    return attrib == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ||
                   attrib == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuFuncSetCacheConfig(CUfunction func, CUfunc_cache config) {
    (void) config;
    return enter_function(func);
}

CUresult cuFuncGetModule(CUmodule *module, CUfunction func) {
    CUresult r = enter_function(func);
    if (r != CUDA_SUCCESS)
        return r;
    if (!module)
        return CUDA_ERROR_INVALID_VALUE;
    *module = func->module;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char **name, CUfunction func) {
    CUresult r = enter_function(func);
    if (r != CUDA_SUCCESS)
        return r;
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    *name = func->name;
    return CUDA_SUCCESS;
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction func) {
    CUresult r = enter_function(func);
    if (r != CUDA_SUCCESS)
        return r;
    if (!state)
        return CUDA_ERROR_INVALID_VALUE;
    *state = 1;
    return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction func) {
    return enter_function(func);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *num_blocks, CUfunction func,
                                                     int block_size, size_t dynamic_smem_size) {
    (void) dynamic_smem_size;
    CUresult r = enter_function(func);
    if (r != CUDA_SUCCESS)
        return r;
    if (!num_blocks || block_size <= 0 || block_size > 1024)
        return CUDA_ERROR_INVALID_VALUE;
    int blocks = 2048 / block_size;
    *num_blocks = blocks > 32 ? 32 : blocks;
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSize(int *min_grid_size, int *block_size, CUfunction func,
                                          CUoccupancyB2DSize block_size_to_dynamic_smem_size,
                                          size_t dynamic_smem_size, int block_size_limit) {
    (void) block_size_to_dynamic_smem_size; /* the built-ins use none */
    (void) dynamic_smem_size;
    CUresult r = enter_function(func);
    if (r != CUDA_SUCCESS)
        return r;
    if (!min_grid_size || !block_size || block_size_limit < 0)
        return CUDA_ERROR_INVALID_VALUE;
    *block_size = block_size_limit > 0 && block_size_limit < 1024 ? block_size_limit : 1024;
    *min_grid_size = (int) cuda_device[func->module->context->device].page->sm_count;
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *num_blocks, CUfunction func,
                                                              int block_size,
                                                              size_t dynamic_smem_size,
                                                              unsigned int flags) {
    (void) flags;
    return cuOccupancyMaxActiveBlocksPerMultiprocessor(num_blocks, func, block_size,
                                                       dynamic_smem_size);
}
