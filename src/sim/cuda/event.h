/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "sim/cuda/cuda.h"

/* cuEventRecord and cuStreamWaitEvent outside a capture. Without cuda_lock. */
CUresult event_record(CUstream stream, CUevent event);
CUresult event_wait(CUstream stream, CUevent event);

/* An event of another process. */
CUresult event_open(CUcontext ctx, const uint64_t id[2], CUevent *ret);
