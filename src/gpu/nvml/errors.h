/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Memory errors, repairs of the memory, links and recovery action of a card, from NVML, and figures
 * that NVML has as fields only, too. Runs in the NVML child. */

#include <stdint.h>

#include "gpu/device.h"
#include "gpu/nvml/nvml.h"

/* What the driver does not report is all bits set, as in struct gpu_errors. Of the sample the
 * temperature of the memory, the replays of PCIe and the energy are written. */
void gpu_errors_read(const struct nvml *nvml, nvmlDevice_t card, struct gpu_errors *ret,
                     uint32_t *ret_recovery_action, struct gpu_sample *ret_sample);
