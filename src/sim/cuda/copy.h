/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "sim/cuda/cuda.h"

/* A box of bytes from one place to another; a line is a box of one row. */
struct copy {
    const char *src;
    char *dst;
    size_t src_pitch, src_slice; /* bytes from row to row, from slice to slice */
    size_t dst_pitch, dst_slice;
    size_t width, height, depth; /* bytes, rows, slices */
};

/* Checks a copy described in the driver's form. */
CUresult copy_prepare(const CUDA_MEMCPY3D *params, struct copy *ret);

/* Executes a prepared copy; for worker_do(). */
void copy_do(void *copy);

/* Executes it in stream order, or, if `wait`, before returning. The addresses are valid. */
CUresult copy_submit(const struct copy *c, CUstream stream, bool wait);
