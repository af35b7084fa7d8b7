/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What is known of a model of GPU by its name alone. */

#include <stdint.h>

/* Bytes of a UUID as NVML prints it, with the final 0. The longest is that of a MIG instance of
 * drivers before R470: "MIG-GPU-<UUID of the card>/<GPU instance id>/<compute instance id>". */
#define GPU_UUID_MAX 64

/* Annotations of GPU objects and Nodes. Of the first two, each new text is an order. */
#define GPU_SET_HEALTHY "elasticgpu.io/set-healthy"
#define GPU_RESET "elasticgpu.io/reset"
#define GPU_MAINTENANCE "elasticgpu.io/maintenance" /* "cordon", "drain" or "release" */

/* Dense FP16 TFLOPS of the tensor cores (without them: of the CUDA cores) as in the vendor's data
 * sheet, of a card that NVML names so; 0: not in the table. */
uint32_t gpu_model_tflops(const char *name);
