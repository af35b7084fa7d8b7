/* SPDX-License-Identifier: Apache-2.0 */

/* Guests of a hypervisor with vGPUs: their mode and their licence. */

#include <time.h>

#include "sim/nvml/nvml.h"

nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device,
                                             nvmlGpuVirtualizationMode_t *virtual_mode) {
    NVML_GIVE(device, virtual_mode,
              nvml_client()->host->vgpu ? NVML_GPU_VIRTUALIZATION_MODE_VGPU
                                        : NVML_GPU_VIRTUALIZATION_MODE_NONE);
}

static nvmlGridLicenseExpiry_t expiry_of(const struct sim_page *page) {
    nvmlGridLicenseExpiry_t e = {.status = NVML_GRID_LICENSE_EXPIRY_NOT_AVAILABLE};
    time_t when = (time_t) atomic_load(&page->licence_end);
    struct tm at;
    if (when == 0 || !gmtime_r(&when, &at))
        return e;
    return (nvmlGridLicenseExpiry_t){.year = (unsigned int) at.tm_year + 1900,
                                     .month = (unsigned short) (at.tm_mon + 1),
                                     .day = (unsigned short) at.tm_mday,
                                     .hour = (unsigned short) at.tm_hour,
                                     .min = (unsigned short) at.tm_min,
                                     .sec = (unsigned short) at.tm_sec,
                                     .status = NVML_GRID_LICENSE_EXPIRY_VALID};
}

nvmlReturn_t nvmlDeviceGetGridLicensableFeatures_v4(nvmlDevice_t device,
                                                    nvmlGridLicensableFeatures_t *features) {
    NVML_TRY(nvml_enter(device));
    if (!features)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!nvml_client()->host->vgpu)
        return NVML_ERROR_NOT_SUPPORTED;
    *features = (nvmlGridLicensableFeatures_t){
        .isGridLicenseSupported = 1,
        .licensableFeaturesCount = 1,
        .gridLicensableFeatures = {
            {.featureCode = NVML_GRID_LICENSE_FEATURE_CODE_COMPUTE,
             .featureState = atomic_load(&device->page->licence) == SIM_LICENSED,
             .productName = "NVIDIA Virtual Compute Server",
             .featureEnabled = 1,
             .licenseExpiry = expiry_of(device->page)}}};
    return NVML_SUCCESS;
}
