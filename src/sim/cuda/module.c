/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/cuda/module.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/cuda/capture.h"
#include "sim/cuda/library.h"
#include "sim/list.h"

#define HEADER "ALIQUOT SIMULATED MODULE 1\n"
#define MODULE_IMAGE_MAX ((size_t) 1 << 30)
#define IMAGE_GRANULARITY ((size_t) 2 << 20)

const struct builtin builtins[BUILTIN_COUNT] = {
    [BUILTIN_SAXPY] = {"saxpy", 4, {4, 4, 8, 8}},
    [BUILTIN_MEMSET] = {"memset", 3, {8, 4, 8}},
    [BUILTIN_SPIN] = {"spin", 1, {8}},
    [BUILTIN_CONDITION] = {"condition", 2, {8, 4}},
    [BUILTIN_COUNTDOWN] = {"countdown", 2, {8, 8}},
    [BUILTIN_TIMED] = {"", 0, {0}},
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

static bool parse_kernel(const char *name, const char *builtin, CUmodule module) {
    if (module->nkernels == MODULE_KERNELS_MAX)
        return false;
    struct CUfunc_st *f = &module->kernel[module->nkernels];
    unsigned int i = 0;
    while (i < BUILTIN_TIMED && strcmp(builtins[i].name, builtin) != 0)
        i++;
    if (i == BUILTIN_TIMED)
        return false;
    memcpy(f->own_name, name, MODULE_NAME_MAX);
    f->name = f->own_name;
    f->tag = TAG_FUNCTION;
    f->module = module;
    f->builtin = (enum module_builtin) i;
    module->nkernels++;
    return true;
}

static bool parse_bytes(const char *word, size_t *ret) {
    size_t n = 0;
    for (; *word; word++)
        if (*word < '0' || *word > '9' || __builtin_mul_overflow(n, 10u, &n) ||
            __builtin_add_overflow(n, (size_t) (*word - '0'), &n))
            return false;
    return !__builtin_add_overflow(*ret, n, ret);
}

/* Reads only as far as the text makes sense: its length is not known. */
static bool parse_module(const char *at, CUmodule module) {
    while (*at) {
        char word[MODULE_NAME_MAX], first[MODULE_NAME_MAX], second[MODULE_NAME_MAX];
        if (!take_word(&at, ' ', word))
            return false;
        if (strcmp(word, "kernel") == 0) {
            if (!take_word(&at, ' ', first) || !take_word(&at, '\n', second) ||
                !parse_kernel(first, second, module))
                return false;
        } else if (strcmp(word, "device") != 0 || !take_word(&at, '\n', first) ||
                   !parse_bytes(first, &module->device_bytes)) {
            return false;
        }
    }
    return true;
}

static CUmodule modules, free_modules;
static CUfunction free_functions;

static CUmodule module_new(CUcontext ctx) {
    (void) pthread_mutex_lock(&cuda_lock);
    CUmodule m;
    CUDA_REUSE_OBJECT(m, free_modules, next);
    if (m) {
        memset(m, 0, sizeof(*m));
        m->tag = TAG_MODULE;
        m->context = ctx;
        LIST_PUSH(modules, m, next);
    }
    (void) pthread_mutex_unlock(&cuda_lock);
    return m;
}

/* Its memory is kept: the program may still pass handles of its functions. */
static void module_free(CUmodule m) {
    (void) pthread_mutex_lock(&cuda_lock);
    for (CUmodule *p = &modules; *p; p = &(*p)->next)
        if (*p == m) {
            *p = m->next;
            break;
        }
    m->tag = TAG_FREE;
    for (unsigned int i = 0; i < m->nkernels; i++) {
        m->kernel[i].tag = TAG_FREE;
        free(m->kernel[i].legacy);
        m->kernel[i].legacy = NULL;
    }
    while (m->timed) {
        CUfunction f = m->timed;
        m->timed = f->next;
        f->tag = TAG_FREE;
        free(f->legacy);
        f->legacy = NULL;
        LIST_PUSH(free_functions, f, next);
    }
    free(m->image);
    m->image = NULL;
    LIST_PUSH(free_modules, m, next);
    (void) pthread_mutex_unlock(&cuda_lock);
}

void module_unload(CUmodule m) {
    if (m->context && m->device_bytes > 0)
        cuda_give(m->context->device, m->device_bytes);
    module_free(m);
}

void module_release_context(CUcontext ctx) {
    CUmodule next;
    for (CUmodule m = modules; m; m = next) {
        next = m->next;
        if (m->context == ctx)
            module_unload(m);
    }
}

/* -- foreign code ---------------------------------------------------------------------------- */

/* The length of what may be PTX, a cubin or a fat binary; 0 for anything else. */
static size_t length_of(const void *image) {
    const unsigned char *p = image;
    uint64_t at;
    uint16_t size, count;
    uint32_t magic;
    if (*p == '.' || *p == '/' || *p == '\n' || *p == ' ' || *p == '\t')
        return strlen(image);
    memcpy(&magic, p, sizeof(magic));
    if (magic == 0x464c457f) { /* ELF: the section headers come last */
        memcpy(&at, p + 40, sizeof(at));
        memcpy(&size, p + 58, sizeof(size));
        memcpy(&count, p + 60, sizeof(count));
        return at < MODULE_IMAGE_MAX ? (size_t) at + (size_t) size * count : 0;
    }
    if (magic == 0x466243b1) { /* a wrapper that points to it */
        memcpy(&image, p + 8, sizeof(image));
        p = image;
        memcpy(&magic, p, sizeof(magic));
    }
    if (magic != 0xba55ed50)
        return 0;
    memcpy(&size, p + 6, sizeof(size));
    memcpy(&at, p + 8, sizeof(at));
    return at < MODULE_IMAGE_MAX ? (size_t) at + size : 0;
}

/* A kernel leaves its name in PTX and in a cubin; in a fat binary it may be compressed. */
static bool has_kernel(const struct CUmod_st *m, const char *name) {
    uint32_t magic;
    memcpy(&magic, m->image, m->image_bytes < 4 ? 1 : 4);
    if (m->image_bytes >= 4 && magic == 0xba55ed50)
        return true;
    size_t n = strlen(name);
    const char *p = m->image, *end = p + m->image_bytes;
    while (n > 0 && (size_t) (end - p) >= n) {
        p = memchr(p, name[0], (size_t) (end - p) - n + 1);
        if (!p)
            return false;
        char behind = p[n];
        bool word = !(behind >= 'a' && behind <= 'z') && !(behind >= 'A' && behind <= 'Z') &&
                    !(behind >= '0' && behind <= '9') && behind != '_' && behind != '$';
        if (memcmp(p, name, n) == 0 && word)
            return true;
        p++;
    }
    return false;
}

static CUresult keep_image(CUmodule m, const void *image) {
    if (!cuda_client.host || !cuda_client.host->timing_only)
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    uint32_t magic = 0;
    size_t n = length_of(image);
    if (n == 0)
        return CUDA_ERROR_INVALID_IMAGE;
    memcpy(&magic, image, n < 4 ? 1 : 4);
    if (magic == 0x466243b1)
        memcpy(&image, (const char *) image + 8, sizeof(image));
    m->image = malloc(n + 1);
    if (!m->image)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(m->image, image, n);
    ((char *) m->image)[n] = '\0';
    m->image_bytes = n;
    m->device_bytes = (n + IMAGE_GRANULARITY - 1) / IMAGE_GRANULARITY * IMAGE_GRANULARITY;
    return CUDA_SUCCESS;
}

/* With the lock: one that was used before, or a new one, with a copy of the name; NULL: no memory.
 */
static CUfunction timed_new(CUmodule m, const char *name) {
    CUfunction f;
    CUDA_REUSE_NAMED(f, free_functions, next, name);
    if (!f)
        return NULL;
    *f = (struct CUfunc_st){.tag = TAG_FUNCTION,
                            .module = m,
                            .next = m->timed,
                            .builtin = BUILTIN_TIMED,
                            .name = f->name};
    m->timed = f;
    return f;
}

static CUresult timed_function(CUmodule m, const char *name, CUfunction *ret) {
    CUfunction f;
    (void) pthread_mutex_lock(&cuda_lock);
    for (f = m->timed; f && strcmp(f->name, name) != 0; f = f->next)
        ;
    bool known = f || has_kernel(m, name);
    if (!f && known)
        f = timed_new(m, name);
    (void) pthread_mutex_unlock(&cuda_lock);
    if (!f)
        return known ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_NOT_FOUND;
    *ret = f;
    return CUDA_SUCCESS;
}

/* -- loading --------------------------------------------------------------------------------- */

CUresult module_load(CUcontext ctx, const void *image, CUmodule *ret) {
    CUmodule m = module_new(ctx);
    if (!m)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult r;
    if (strncmp(image, HEADER, strlen(HEADER)) != 0)
        r = keep_image(m, image);
    else
        r = parse_module((const char *) image + strlen(HEADER), m) ? CUDA_SUCCESS
                                                                   : CUDA_ERROR_INVALID_IMAGE;
    if (r == CUDA_SUCCESS && ctx && m->device_bytes > 0)
        r = cuda_take(ctx->device, m->device_bytes);
    if (r != CUDA_SUCCESS) {
        module_free(m);
        return r;
    }
    *ret = m;
    return CUDA_SUCCESS;
}

CUresult module_function(CUmodule m, const char *name, CUfunction *ret) {
    for (unsigned int i = 0; i < m->nkernels; i++)
        if (strcmp(m->kernel[i].name, name) == 0) {
            *ret = &m->kernel[i];
            return CUDA_SUCCESS;
        }
    return m->image ? timed_function(m, name, ret) : CUDA_ERROR_NOT_FOUND;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    CUcontext ctx;
    CUDA_TRY(capture_enter_context(&ctx));
    if (!module || !image)
        return CUDA_ERROR_INVALID_VALUE;
    return module_load(ctx, image, module);
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

CUresult module_read_file(const char *name, char **ret) {
    FILE *f = fopen(name, "re");
    if (!f)
        return CUDA_ERROR_FILE_NOT_FOUND;
    long size = fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
    bool fits = size > 0 && (size_t) size <= MODULE_IMAGE_MAX && fseek(f, 0, SEEK_SET) == 0;
    char *text = fits ? calloc(1, (size_t) size + 64) : NULL; /* headers are looked at in full */
    bool whole = text && fread(text, 1, (size_t) size, f) == (size_t) size;
    (void) fclose(f);
    if (!whole) {
        free(text);
        return fits ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_IMAGE;
    }
    *ret = text;
    return CUDA_SUCCESS;
}

CUresult cuModuleLoad(CUmodule *module, const char *fname) {
    CUcontext ctx;
    CUDA_TRY(cuda_enter_context(&ctx));
    if (!module || !fname)
        return CUDA_ERROR_INVALID_VALUE;
    char *text;
    CUDA_TRY(module_read_file(fname, &text));
    CUresult r = cuModuleLoadData(module, text);
    free(text);
    return r;
}

static CUresult enter_module(CUmodule module) {
    CUcontext ctx;
    CUDA_TRY(cuda_enter_context(&ctx));
    return module && module->tag == TAG_MODULE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuModuleUnload(CUmodule module) {
    CUresult r = enter_module(module);
    if (r == CUDA_SUCCESS)
        module_unload(module);
    return r;
}

CUresult cuModuleGetFunction(CUfunction *func, CUmodule module, const char *name) {
    CUDA_TRY(enter_module(module));
    if (!func || !name)
        return CUDA_ERROR_INVALID_VALUE;
    return module_function(module, name, func);
}

CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule mod) {
    CUDA_TRY(enter_module(mod));
    CUDA_RETURN_VALUE(count, mod->nkernels);
}

CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int num_functions,
                                    CUmodule mod) {
    CUDA_TRY(enter_module(mod));
    if (!functions)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned int i = 0; i < num_functions && i < mod->nkernels; i++)
        functions[i] = &mod->kernel[i];
    return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule module, const char *name) {
    (void) dptr;
    (void) bytes;
    CUDA_TRY(enter_module(module));
    return name ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_VALUE; /* there are none */
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode) {
    CUDA_TRY(cuda_enter());
    if (!mode)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = 1; /* eager */
    return CUDA_SUCCESS;
}

/* -- functions ------------------------------------------------------------------------------- */

/* A program may pass a library's kernel as the function. */
static CUresult enter_function(CUfunction *func) {
    CUcontext ctx;
    CUDA_TRY(cuda_enter_context(&ctx));
    if (*func && (*func)->tag == TAG_KERNEL)
        return library_function((CUkernel) *func, func);
    return *func && (*func)->tag == TAG_FUNCTION ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult module_attribute(int *pi, CUfunction_attribute attrib, int device) {
    if (!pi || (int) attrib < 0 || attrib > 20)
        return CUDA_ERROR_INVALID_VALUE;
    const struct sim_page *p = cuda_device[device].page;
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

CUresult cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction func) {
    CUresult r = enter_function(&func);
    return r == CUDA_SUCCESS ? module_attribute(pi, attrib, func->module->context->device) : r;
}

CUresult cuFuncSetAttribute(CUfunction func, CUfunction_attribute attrib, int value) {
    (void) value; /* hints for shared memory, which the built-ins do not use */
    CUDA_TRY(enter_function(&func));
    return attrib == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ||
                   attrib == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuFuncSetCacheConfig(CUfunction func, CUfunc_cache config) {
    (void) config;
    return enter_function(&func);
}

CUresult cuFuncGetModule(CUmodule *module, CUfunction func) {
    CUDA_TRY(enter_function(&func));
    CUDA_RETURN_VALUE(module, func->module);
}

CUresult cuFuncGetName(const char **name, CUfunction func) {
    CUDA_TRY(enter_function(&func));
    CUDA_RETURN_VALUE(name, func->name);
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction func) {
    CUDA_TRY(enter_function(&func));
    CUDA_RETURN_VALUE(state, 1);
}

CUresult cuFuncLoad(CUfunction func) {
    return enter_function(&func);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *num_blocks, CUfunction func,
                                                     int block_size, size_t dynamic_smem_size) {
    (void) dynamic_smem_size;
    CUDA_TRY(enter_function(&func));
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
    CUDA_TRY(enter_function(&func));
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

CUresult
cuOccupancyMaxPotentialBlockSizeWithFlags(int *min_grid_size, int *block_size, CUfunction func,
                                          CUoccupancyB2DSize block_size_to_dynamic_smem_size,
                                          size_t dynamic_smem_size, int block_size_limit,
                                          unsigned int flags) {
    (void) flags;
    return cuOccupancyMaxPotentialBlockSize(min_grid_size, block_size, func,
                                            block_size_to_dynamic_smem_size, dynamic_smem_size,
                                            block_size_limit);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *dynamic_smem_size, CUfunction func,
                                                 int num_blocks, int block_size) {
    CUDA_TRY(enter_function(&func));
    if (!dynamic_smem_size || num_blocks <= 0 || block_size <= 0 || block_size > 1024)
        return CUDA_ERROR_INVALID_VALUE;
    const struct sim_page *p = cuda_device[func->module->context->device].page;
    size_t each = p->shared_per_sm / (unsigned int) num_blocks;
    *dynamic_smem_size = each > 1024 ? each - 1024 : 0; /* what the driver keeps of each */
    return CUDA_SUCCESS;
}
