/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "sim/cuda/cuda.h"

struct fill {
    CUdeviceptr base;
    size_t pitch, width, height; /* bytes, bytes, rows; neither is 0 */
    uint32_t value;
    unsigned int element; /* 1, 2 or 4 bytes */
    bool pages;           /* whole pages in the middle may be remapped */
};

/* Completes the description, and checks that the whole range is memory. */
CUresult fill_prepare(struct fill *f);

/* Executes a prepared fill; for worker_do(). */
void fill_do(void *fill);
