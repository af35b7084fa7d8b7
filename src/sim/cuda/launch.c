/* SPDX-License-Identifier: Apache-2.0 */

/* Launches of built-in kernels: what they compute is computed here, how long they take is for the
 * daemon to serve. */

#include "sim/cuda/launch.h"

#include <stdlib.h>
#include <string.h>

#include "sim/cuda/capture.h"
#include "sim/cuda/graph.h"
#include "sim/cuda/library.h"
#include "sim/cuda/managed.h"
#include "sim/cuda/memory.h"
#include "sim/cuda/module.h"
#include "sim/cuda/stream.h"
#include "sim/cuda/worker.h"

#define LAUNCH_NS 2000u

/* Ends of a list of extra launch options. */
#define EXTRA_END ((void *) 0)
#define EXTRA_POINTER ((void *) 1)
#define EXTRA_SIZE ((void *) 2)

uint64_t launch_busy_ns(int device, size_t bytes) {
    /* megabytes a second are bytes a microsecond */
    uint64_t rate = cuda_device[device].page->memory_mbps;
    return LAUNCH_NS + (uint64_t) ((double) bytes * 1000.0 / (double) rate);
}

CUresult launch_busy(CUstream stream, size_t bytes) {
    return stream_submit(stream, SIM_KERNEL, 0, launch_busy_ns(stream->context->device, bytes));
}

/* -- the built-in kernels -------------------------------------------------------------------- */

static size_t saxpy_count(const struct launch_call *c) {
    int32_t n = c->arg[0].integer;
    if (n <= 0)
        return 0;
    return c->threads < (uint64_t) n ? (size_t) c->threads : (size_t) n;
}

bool launch_may_run(const struct launch_call *c) {
    switch (c->builtin) {
    case BUILTIN_SAXPY:
        return memory_covers(c->arg[2].word, saxpy_count(c) * 4) &&
               memory_covers(c->arg[3].word, saxpy_count(c) * 4);
    case BUILTIN_MEMSET:
        return memory_covers(c->arg[0].word, c->arg[2].word);
    case BUILTIN_CONDITION:
        return graph_condition_find(c->arg[0].word);
    case BUILTIN_COUNTDOWN:
        return graph_condition_find(c->arg[0].word) && memory_covers(c->arg[1].word, 4);
    default:
        return true;
    }
}

/* Moves the managed memory that it uses to the card. */
static void touch_managed(const struct launch_call *c) {
    if (c->builtin == BUILTIN_SAXPY) {
        managed_touch(c->arg[2].word, saxpy_count(c) * 4, c->device);
        managed_touch(c->arg[3].word, saxpy_count(c) * 4, c->device);
    } else if (c->builtin == BUILTIN_MEMSET) {
        managed_touch(c->arg[0].word, c->arg[2].word, c->device);
    }
}

/* Rounds in which all multiprocessors are full. */
static uint64_t timed_ns(const struct launch_call *c) {
    const struct sim_page *p = cuda_device[c->device].page;
    uint64_t at_once = (uint64_t) p->sm_count * 2048u;
    return LAUNCH_NS + (c->threads + at_once - 1) / at_once * TIMED_NS;
}

uint64_t launch_duration(const struct launch_call *c) {
    switch (c->builtin) {
    case BUILTIN_SAXPY:
        return launch_busy_ns(c->device, saxpy_count(c) * 12);
    case BUILTIN_MEMSET:
        return launch_busy_ns(c->device, c->arg[2].word);
    case BUILTIN_SPIN:
        return c->arg[0].word;
    case BUILTIN_TIMED:
        return timed_ns(c);
    default:
        return LAUNCH_NS;
    }
}

static void run_builtin(void *arg) {
    const struct launch_call *c = arg;
    if (c->builtin == BUILTIN_SAXPY) {
        float a = c->arg[1].real;
        const float *x = (const float *) (uintptr_t) c->arg[2].word;
        float *y = (float *) (uintptr_t) c->arg[3].word;
        for (size_t i = 0, n = saxpy_count(c); i < n; i++)
            y[i] += a * x[i];
    } else if (c->builtin == BUILTIN_MEMSET) {
        memset((void *) (uintptr_t) c->arg[0].word, c->arg[1].integer, c->arg[2].word);
    } else if (c->builtin == BUILTIN_CONDITION) {
        graph_condition_set(c->arg[0].word, (unsigned int) c->arg[1].integer);
    } else if (c->builtin == BUILTIN_COUNTDOWN) {
        int32_t *n = (int32_t *) (uintptr_t) c->arg[1].word;
        graph_condition_set(c->arg[0].word, --*n > 0);
    }
}

/* -- arguments ------------------------------------------------------------------------------- */

/* From a list of addresses. */
static bool take_params(struct launch_call *c, const struct builtin *b, void **params) {
    for (unsigned int i = 0; i < b->nparams; i++) {
        if (!params[i])
            return false;
        memcpy(&c->arg[i], params[i], b->size[i]);
    }
    return true;
}

/* From one buffer, each argument at its natural alignment. */
static bool take_extra(struct launch_call *c, const struct builtin *b, void **extra) {
    const char *buffer = NULL;
    size_t size = 0, at = 0;
    for (; *extra != EXTRA_END; extra += 2) {
        if (*extra == EXTRA_POINTER)
            buffer = extra[1];
        else if (*extra == EXTRA_SIZE && extra[1])
            size = *(const size_t *) extra[1];
        else
            return false;
    }
    for (unsigned int i = 0; buffer && i < b->nparams; i++) {
        at = (at + b->size[i] - 1) / b->size[i] * b->size[i];
        if (at + b->size[i] > size)
            return false;
        memcpy(&c->arg[i], buffer + at, b->size[i]);
        at += b->size[i];
    }
    return buffer != NULL;
}

static bool take_arguments(struct launch_call *c, void **params, void **extra) {
    const struct builtin *b = &builtins[c->builtin];
    if (c->builtin == BUILTIN_TIMED)
        return true; /* the parameters of foreign code are unknown */
    if (params && extra)
        return false;
    if (params)
        return take_params(c, b, params);
    return extra && take_extra(c, b, extra);
}

CUresult launch_prepare(CUfunction f, const unsigned int grid[3], const unsigned int block[3],
                        void **params, void **extra, struct launch_call *ret) {
    if (f && f->tag == TAG_KERNEL) {
        CUDA_TRY(library_function((CUkernel) f, &f));
    }
    if (!f || f->tag != TAG_FUNCTION)
        return CUDA_ERROR_INVALID_HANDLE;
    uint64_t blocks = (uint64_t) grid[0] * grid[1] * grid[2];
    uint64_t threads = (uint64_t) block[0] * block[1] * block[2];
    if (blocks == 0 || threads == 0 || threads > 1024 || block[2] > 64 || grid[1] > 65535 ||
        grid[2] > 65535)
        return CUDA_ERROR_INVALID_VALUE;
    *ret = (struct launch_call){
        .builtin = f->builtin, .device = f->module->context->device, .threads = blocks * threads};
    return take_arguments(ret, params, extra) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult launch_compute(CUstream stream, const struct launch_call *c) {
    if (c->builtin == BUILTIN_SPIN || c->builtin == BUILTIN_TIMED)
        return CUDA_SUCCESS;
    touch_managed(c);
    return worker_do(stream, run_builtin, c, sizeof(*c));
}

static CUresult launch(CUfunction f, const unsigned int grid[3], const unsigned int block[3],
                       CUstream stream, void **params, void **extra) {
    CUstream s;
    struct launch_call c;
    CUDA_TRY(stream_enter_work(stream, &s));
    if (s->capture)
        return capture_kernel(s, f, grid, block, params, extra);
    CUDA_TRY(launch_prepare(f, grid, block, params, extra, &c));
    if (!launch_may_run(&c)) {
        /* As on a card: the launch succeeds, and the next call returns the error. */
        s->context->error = CUDA_ERROR_ILLEGAL_ADDRESS;
        return CUDA_SUCCESS;
    }
    CUresult r = stream_submit(s, SIM_KERNEL, 0, launch_duration(&c));
    return r == CUDA_SUCCESS ? launch_compute(s, &c) : r;
}

/* -- the functions --------------------------------------------------------------------------- */

CUresult cuLaunchKernel(CUfunction f, unsigned int grid_dim_x, unsigned int grid_dim_y,
                        unsigned int grid_dim_z, unsigned int block_dim_x, unsigned int block_dim_y,
                        unsigned int block_dim_z, unsigned int shared_mem_bytes, CUstream stream,
                        void **kernel_params, void **extra) {
    (void) shared_mem_bytes;
    const unsigned int grid[3] = {grid_dim_x, grid_dim_y, grid_dim_z};
    const unsigned int block[3] = {block_dim_x, block_dim_y, block_dim_z};
    return launch(f, grid, block, stream, kernel_params, extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernel_params,
                          void **extra) {
    CUDA_TRY(cuda_enter());
    if (!config)
        return CUDA_ERROR_INVALID_VALUE;
    return cuLaunchKernel(f, config->gridDimX, config->gridDimY, config->gridDimZ,
                          config->blockDimX, config->blockDimY, config->blockDimZ,
                          config->sharedMemBytes, config->hStream, kernel_params, extra);
}

/* All blocks of a cooperative kernel are on the card at the same time, or it does not start. */
static CUresult check_cooperative(const unsigned int grid[3], const unsigned int block[3]) {
    CUcontext ctx;
    CUDA_TRY(cuda_enter_context(&ctx));
    uint64_t threads = (uint64_t) block[0] * block[1] * block[2];
    uint64_t blocks = (uint64_t) grid[0] * grid[1] * grid[2];
    uint64_t fit = threads > 0 ? 2048 / threads : 0;
    if (threads == 0 || threads > 1024)
        return CUDA_ERROR_INVALID_VALUE;
    return blocks <= cuda_device[ctx->device].page->sm_count * (fit < 32 ? fit : 32)
               ? CUDA_SUCCESS
               : CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int grid_dim_x, unsigned int grid_dim_y,
                                   unsigned int grid_dim_z, unsigned int block_dim_x,
                                   unsigned int block_dim_y, unsigned int block_dim_z,
                                   unsigned int shared_mem_bytes, CUstream stream,
                                   void **kernel_params) {
    (void) shared_mem_bytes;
    const unsigned int grid[3] = {grid_dim_x, grid_dim_y, grid_dim_z};
    const unsigned int block[3] = {block_dim_x, block_dim_y, block_dim_z};
    CUresult r = check_cooperative(grid, block);
    return r == CUDA_SUCCESS ? launch(f, grid, block, stream, kernel_params, NULL) : r;
}

/* Every stream of the list waits for all the others. */
static CUresult wait_for_streams(const CUDA_LAUNCH_PARAMS *list, unsigned int n) {
    CUresult r = CUDA_SUCCESS;
    for (unsigned int i = 0; i < n; i++)
        for (unsigned int k = 0; k < n && r == CUDA_SUCCESS; k++)
            if (i != k && list[i].hStream->queue != list[k].hStream->queue)
                r = stream_submit(list[i].hStream, SIM_WAIT, list[k].hStream->queue,
                                  list[k].hStream->last);
    return r;
}

/* One kernel on each of several devices, in streams of the program's own. */
static CUresult check_devices(const CUDA_LAUNCH_PARAMS *list, unsigned int n) {
    uint64_t seen = 0;
    for (unsigned int i = 0; i < n; i++) {
        CUstream s = list[i].hStream;
        if (!s || s == CU_STREAM_LEGACY || s == CU_STREAM_PER_THREAD || s->tag != TAG_STREAM)
            return CUDA_ERROR_INVALID_VALUE;
        if (s->capture)
            return capture_refuse(s);
        uint64_t bit = 1ull << s->context->device;
        CUfunction f = list[i].function;
        if ((seen & bit) || !f || f->tag != TAG_FUNCTION || f->module->context != s->context)
            return CUDA_ERROR_INVALID_VALUE;
        seen |= bit;
    }
    return CUDA_SUCCESS;
}

CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launch_params_list,
                                              unsigned int num_devices, unsigned int flags) {
    const CUDA_LAUNCH_PARAMS *list = launch_params_list;
    CUcontext ctx;
    CUDA_TRY(cuda_enter_context(&ctx));
    if (!list || num_devices == 0 || num_devices > (unsigned int) cuda_ndevices || flags > 3)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = check_devices(list, num_devices);
    if (r == CUDA_SUCCESS && !(flags & 1))
        r = wait_for_streams(list, num_devices);
    for (unsigned int i = 0; i < num_devices && r == CUDA_SUCCESS; i++) {
        const CUDA_LAUNCH_PARAMS *p = &list[i];
        const unsigned int grid[3] = {p->gridDimX, p->gridDimY, p->gridDimZ};
        const unsigned int block[3] = {p->blockDimX, p->blockDimY, p->blockDimZ};
        r = check_cooperative(grid, block);
        if (r == CUDA_SUCCESS)
            r = launch(p->function, grid, block, p->hStream, p->kernelParams, NULL);
    }
    return r == CUDA_SUCCESS && !(flags & 2) ? wait_for_streams(list, num_devices) : r;
}

/* -- the oldest style: a function is prepared piece by piece ---------------------------------- */

static CUresult enter_legacy(CUfunction f, struct module_legacy **ret) {
    CUcontext ctx;
    CUDA_TRY(cuda_enter_context(&ctx));
    if (!f || f->tag != TAG_FUNCTION)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!f->legacy)
        f->legacy = calloc(1, sizeof(*f->legacy));
    *ret = f->legacy;
    return f->legacy ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuFuncSetBlockShape(CUfunction func, int x, int y, int z) {
    struct module_legacy *l;
    CUDA_TRY(enter_legacy(func, &l));
    if (x <= 0 || y <= 0 || z <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    l->block[0] = (unsigned int) x;
    l->block[1] = (unsigned int) y;
    l->block[2] = (unsigned int) z;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetSharedSize(CUfunction func, unsigned int bytes) {
    (void) bytes; /* the built-ins use none */
    struct module_legacy *l;
    return enter_legacy(func, &l);
}

CUresult cuParamSetSize(CUfunction func, unsigned int numbytes) {
    struct module_legacy *l;
    CUDA_TRY(enter_legacy(func, &l));
    if (numbytes > PARAMETERS_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    l->size = numbytes;
    return CUDA_SUCCESS;
}

CUresult cuParamSetv(CUfunction func, int offset, void *ptr, unsigned int numbytes) {
    struct module_legacy *l;
    CUDA_TRY(enter_legacy(func, &l));
    if (offset < 0 || !ptr || numbytes > PARAMETERS_MAX ||
        (unsigned int) offset > PARAMETERS_MAX - numbytes)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(l->parameters + offset, ptr, numbytes);
    return CUDA_SUCCESS;
}

CUresult cuParamSeti(CUfunction func, int offset, unsigned int value) {
    return cuParamSetv(func, offset, &value, sizeof(value));
}

CUresult cuParamSetf(CUfunction func, int offset, float value) {
    return cuParamSetv(func, offset, &value, sizeof(value));
}

CUresult cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream stream) {
    struct module_legacy *l;
    CUDA_TRY(enter_legacy(f, &l));
    if (grid_width <= 0 || grid_height <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    const unsigned int grid[3] = {(unsigned int) grid_width, (unsigned int) grid_height, 1};
    void *extra[] = {EXTRA_POINTER, l->parameters, EXTRA_SIZE, &l->size, EXTRA_END};
    return launch(f, grid, l->block, stream, NULL, extra);
}

CUresult cuLaunchGrid(CUfunction f, int grid_width, int grid_height) {
    return cuLaunchGridAsync(f, grid_width, grid_height, NULL);
}

CUresult cuLaunch(CUfunction f) {
    return cuLaunchGrid(f, 1, 1);
}
