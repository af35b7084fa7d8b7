/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a CUDA context costs on each card. The driver does not tell it, and it is taken from every
 * container that computes, so it is measured: by making one and looking. */

#include <stdint.h>

/* Makes a context on every card that CUDA shows and reports what this process then holds there; a
 * card that has no room for one is left out. `nvml_library` is the path of libnvidia-ml.so.1;
 * libcuda.so.1 lies beside it. Loads the driver into this process, which should end soon after.
 * -ENOENT or -ENOTSUP when the driver cannot do it. */
int gpu_context_measure(const char *nvml_library,
                        void (*report)(const char *uuid, uint64_t bytes, void *userdata),
                        void *userdata);
