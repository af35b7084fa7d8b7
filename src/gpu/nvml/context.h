/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The memory of a CUDA context on each card, which every container with CUDA needs. The driver does
 * not report it, so it is measured with a context. */

#include <stdint.h>

struct err;

/* Creates a context on every visible card and reports the memory of this process there; omits cards
 * without room for one. `nvml_library` is the path of libnvidia-ml.so.1; libcuda.so.1 lies beside
 * it. Loads the driver into this process, which should end soon after. -ENOENT or -ENOTSUP when the
 * driver cannot do it. */
int gpu_context_measure(const char *nvml_library,
                        void (*report)(const char *uuid, uint64_t bytes, void *userdata),
                        void *userdata);

/* Creates a context on the first visible device. Loads CUDA into this process, which should end
 * soon after. -EIO: it cannot be done, and the text says why. */
int gpu_context_probe(const char *nvml_library, struct err *err);
