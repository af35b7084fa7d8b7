/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What is known of a model of GPU by its name alone. */

#include <stdint.h>

/* Dense FP16 TFLOPS of the tensor cores (without them: of the CUDA cores) as in the vendor's data
 * sheet, of a card that NVML names so; 0: not in the table. */
uint32_t gpu_model_tflops(const char *name);
