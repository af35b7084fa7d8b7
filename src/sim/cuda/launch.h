/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "sim/cuda/cuda.h"

/* Submits the GPU time that it takes to move `bytes` through the card's memory, plus what any
 * launch takes. Without cuda_lock. */
CUresult launch_busy(CUstream stream, size_t bytes);
