/* SPDX-License-Identifier: Apache-2.0 */

/* Launches of built-in kernels: what they compute is computed here, how long they take is for the
 * daemon to serve. */

#include "sim/cuda/launch.h"

#include <stdlib.h>
#include <string.h>

#include "sim/cuda/memory.h"
#include "sim/cuda/module.h"
#include "sim/cuda/stream.h"
#include "sim/cuda/worker.h"

#define LAUNCH_NS 2000u

/* Ends of a list of extra launch options. */
#define EXTRA_END ((void *) 0)
#define EXTRA_POINTER ((void *) 1)
#define EXTRA_SIZE ((void *) 2)

struct call {
    enum module_builtin builtin;
    uint64_t threads;
    union {
        uint64_t word;
        int32_t integer;
        float real;
    } arg[4];
};

static uint64_t busy_ns(CUstream s, uint64_t bytes) {
    /* megabytes a second are bytes a microsecond */
    uint64_t rate = cuda_device[s->context->device].page->memory_mbps;
    return LAUNCH_NS + (uint64_t) ((double) bytes * 1000.0 / (double) rate);
}

CUresult launch_busy(CUstream stream, size_t bytes) {
    return stream_submit(stream, SIM_KERNEL, 0, busy_ns(stream, bytes));
}

/* -- what the built-ins do ------------------------------------------------------------------- */

static size_t saxpy_count(const struct call *c) {
    int32_t n = c->arg[0].integer;
    if (n <= 0)
        return 0;
    return c->threads < (uint64_t) n ? (size_t) c->threads : (size_t) n;
}

static bool addresses_ok(const struct call *c) {
    switch (c->builtin) {
    case BUILTIN_SAXPY:
        return memory_covers(c->arg[2].word, saxpy_count(c) * 4) &&
               memory_covers(c->arg[3].word, saxpy_count(c) * 4);
    case BUILTIN_MEMSET:
        return memory_covers(c->arg[0].word, c->arg[2].word);
    default:
        return true;
    }
}

static uint64_t duration(CUstream s, const struct call *c) {
    switch (c->builtin) {
    case BUILTIN_SAXPY:
        return busy_ns(s, saxpy_count(c) * 12);
    case BUILTIN_MEMSET:
        return busy_ns(s, c->arg[2].word);
    default:
        return c->arg[0].word;
    }
}

static void compute(void *arg) {
    const struct call *c = arg;
    if (c->builtin == BUILTIN_SAXPY) {
        float a = c->arg[1].real;
        const float *x = (const float *) (uintptr_t) c->arg[2].word;
        float *y = (float *) (uintptr_t) c->arg[3].word;
        for (size_t i = 0, n = saxpy_count(c); i < n; i++)
            y[i] += a * x[i];
    } else if (c->builtin == BUILTIN_MEMSET) {
        memset((void *) (uintptr_t) c->arg[0].word, c->arg[1].integer, c->arg[2].word);
    }
}

/* -- arguments ------------------------------------------------------------------------------- */

/* From a list of addresses. */
static bool take_params(struct call *c, const struct builtin *b, void **params) {
    for (unsigned int i = 0; i < b->nparams; i++) {
        if (!params[i])
            return false;
        memcpy(&c->arg[i], params[i], b->size[i]);
    }
    return true;
}

/* From one buffer, each argument at its natural alignment. */
static bool take_extra(struct call *c, const struct builtin *b, void **extra) {
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

static bool take_arguments(struct call *c, void **params, void **extra) {
    const struct builtin *b = &builtins[c->builtin];
    if (params && extra)
        return false;
    if (params)
        return take_params(c, b, params);
    return extra && take_extra(c, b, extra);
}

static CUresult launch(CUfunction f, const unsigned int grid[3], const unsigned int block[3],
                       CUstream stream, void **params, void **extra) {
    CUstream s;
    CUresult r = stream_enter(stream, &s);
    if (r != CUDA_SUCCESS)
        return r;
    if (!f || f->tag != TAG_FUNCTION)
        return CUDA_ERROR_INVALID_HANDLE;
    uint64_t blocks = (uint64_t) grid[0] * grid[1] * grid[2];
    uint64_t threads = (uint64_t) block[0] * block[1] * block[2];
    if (blocks == 0 || threads == 0 || threads > 1024 || block[2] > 64 || grid[1] > 65535 ||
        grid[2] > 65535)
        return CUDA_ERROR_INVALID_VALUE;
    struct call c = {.builtin = f->builtin, .threads = blocks * threads};
    if (!take_arguments(&c, params, extra))
        return CUDA_ERROR_INVALID_VALUE;
    if (!addresses_ok(&c)) {
        /* As on the card: the launch succeeds, and whoever comes next learns of the accident. */
        s->context->error = CUDA_ERROR_ILLEGAL_ADDRESS;
        return CUDA_SUCCESS;
    }
    r = stream_submit(s, SIM_KERNEL, 0, duration(s, &c));
    if (r != CUDA_SUCCESS || c.builtin == BUILTIN_SPIN)
        return r;
    return worker_do(s, compute, &c, sizeof(c));
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
    CUresult r = cuda_enter();
    if (r != CUDA_SUCCESS)
        return r;
    if (!config)
        return CUDA_ERROR_INVALID_VALUE;
    return cuLaunchKernel(f, config->gridDimX, config->gridDimY, config->gridDimZ,
                          config->blockDimX, config->blockDimY, config->blockDimZ,
                          config->sharedMemBytes, config->hStream, kernel_params, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int grid_dim_x, unsigned int grid_dim_y,
                                   unsigned int grid_dim_z, unsigned int block_dim_x,
                                   unsigned int block_dim_y, unsigned int block_dim_z,
                                   unsigned int shared_mem_bytes, CUstream stream,
                                   void **kernel_params) {
    return cuLaunchKernel(f, grid_dim_x, grid_dim_y, grid_dim_z, block_dim_x, block_dim_y,
                          block_dim_z, shared_mem_bytes, stream, kernel_params, NULL);
}
