/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "sim/cuda/cuda.h"

struct CUarray_st {
    enum cuda_tag tag;
    struct CUarray_st *next;
    CUcontext context;
    CUmipmappedArray parent; /* of a level; it owns the memory */
    CUDA_ARRAY3D_DESCRIPTOR desc;
    size_t row, height, depth; /* bytes, rows, slices or layers: at least 1 */
    size_t bytes;
    char *data;
};

bool array_is_mipmap(CUmipmappedArray mipmap);

/* All arrays of a context that ends. */
void array_release_context(CUcontext ctx);
