/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The MIG instances of a card in NVML's calls. */

#include <stdbool.h>

#include "gpu/nvml/nvml.h"
#include "gpu/nvml/worker_protocol.h"

/* How many numbers below have to be tried: the most that a card of the model can have. 0: the
 * driver has no MIG. */
unsigned int instance_count(const struct nvml *nvml, nvmlDevice_t card);

/* What the instance of that number is: kind, parent, UUID, model, profile and placement, with the
 * minor number and the PCI address of its card, whose message is `of`. False: there is none with
 * that number. Figures are not read. */
bool instance_read(const struct nvml *n, nvmlDevice_t card, unsigned int number,
                   const struct gpu_message_device *of, struct gpu_message_device *ret,
                   nvmlDevice_t *ret_instance);
