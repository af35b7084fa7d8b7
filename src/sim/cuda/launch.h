/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Launches in two steps, because graphs keep the first one: what is to run, and running it. */

#include "sim/cuda/module.h"

struct launch_call {
    enum module_builtin builtin;
    int device;
    uint64_t threads;
    union {
        uint64_t word;
        int32_t integer;
        float real;
    } arg[4];
};

/* Checks a launch and takes its arguments over. */
CUresult launch_prepare(CUfunction f, const unsigned int grid[3], const unsigned int block[3],
                        void **params, void **extra, struct launch_call *ret);

/* May the kernel touch what its arguments name? */
bool launch_may_run(const struct launch_call *c);

/* Nanoseconds of the GPU that it takes. */
uint64_t launch_duration(const struct launch_call *c);

/* What it does to memory, in its place in the stream. Without cuda_lock. */
CUresult launch_compute(CUstream stream, const struct launch_call *c);

/* Nanoseconds that it takes to move `bytes` through a card's memory, plus what any launch takes. */
uint64_t launch_busy_ns(int device, size_t bytes);

/* Submits so much GPU time. Without cuda_lock. */
CUresult launch_busy(CUstream stream, size_t bytes);
