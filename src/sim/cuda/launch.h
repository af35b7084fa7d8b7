/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Launches in two steps, because graphs keep the result of the first: preparing and running. */

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

/* Checks a launch and copies its arguments. */
CUresult launch_prepare(CUfunction f, const unsigned int grid[3], const unsigned int block[3],
                        void **params, void **extra, struct launch_call *ret);

/* True when the kernel may access the memory that its arguments name. */
bool launch_may_run(const struct launch_call *c);

/* GPU time of the kernel in nanoseconds. */
uint64_t launch_duration(const struct launch_call *c);

/* Applies its effects on memory in stream order. Without cuda_lock. */
CUresult launch_compute(CUstream stream, const struct launch_call *c);

/* Nanoseconds to move `bytes` through a card's memory, plus the cost of any launch. */
uint64_t launch_busy_ns(int device, size_t bytes);

/* Submits launch_busy_ns() of GPU time. Without cuda_lock. */
CUresult launch_busy(CUstream stream, size_t bytes);
