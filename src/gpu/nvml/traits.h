/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a program can expect of a card, its licence and the NVLink domain that it belongs to, from
 * NVML. Runs in the NVML child. */

#include "gpu/device.h"
#include "gpu/nvml/nvml.h"

/* A card without these figures is as healthy as any: *ret is 0 there. */
void gpu_traits_read(const struct nvml *n, nvmlDevice_t device, struct gpu_traits *ret);
