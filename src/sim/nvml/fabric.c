/* SPDX-License-Identifier: Apache-2.0 */

/* NVLink domains over several machines. */

#include <string.h>

#include "sim/nvml/nvml.h"

nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *info) {
    NVML_TRY(nvml_enter(device));
    if (device->page->architecture < NVML_DEVICE_ARCH_HOPPER)
        return NVML_ERROR_NOT_SUPPORTED;
    if (!info)
        return NVML_ERROR_INVALID_ARGUMENT;
    *info = (nvmlGpuFabricInfo_t){.status = NVML_SUCCESS,
                                  .cliqueId = device->page->clique,
                                  .state = (nvmlGpuFabricState_t) device->page->fabric_state};
    memcpy(info->clusterUuid, device->page->cluster, sizeof(info->clusterUuid));
    return NVML_SUCCESS;
}
