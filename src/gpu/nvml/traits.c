/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/nvml/traits.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* A vGPU is licensed with one of its features. What the driver does not report is no licence that
 * was lost. */
static void read_licence(const struct nvml *n, nvmlDevice_t device, struct gpu_traits *ret) {
    nvmlGpuVirtualizationMode_t mode = NVML_GPU_VIRTUALIZATION_MODE_NONE;
    nvmlGridLicensableFeatures_t f = {0};
    bool licensed = false;

    ret->vgpu = n->nvmlDeviceGetVirtualizationMode &&
                n->nvmlDeviceGetVirtualizationMode(device, &mode) == NVML_SUCCESS &&
                mode == NVML_GPU_VIRTUALIZATION_MODE_VGPU;
    if (!ret->vgpu || !n->nvmlDeviceGetGridLicensableFeatures_v4 ||
        n->nvmlDeviceGetGridLicensableFeatures_v4(device, &f) != NVML_SUCCESS ||
        !f.isGridLicenseSupported)
        return;
    for (unsigned int i = 0;
         i < f.licensableFeaturesCount && i < NVML_GRID_LICENSE_FEATURE_MAX_COUNT; i++)
        licensed |= f.gridLicensableFeatures[i].featureState != 0;
    ret->unlicensed = !licensed;
}

/* As GPU feature discovery decides it: cards behind the switches of their own node have no cluster.
 */
static void read_fabric(const struct nvml *n, nvmlDevice_t device, struct gpu_traits *ret) {
    static const unsigned char none[NVML_GPU_FABRIC_UUID_LEN];
    nvmlGpuFabricInfo_t info = {0};

    _Static_assert(sizeof(info.clusterUuid) == sizeof(ret->fabric_cluster), "a UUID");
    if (!n->nvmlDeviceGetGpuFabricInfo ||
        n->nvmlDeviceGetGpuFabricInfo(device, &info) != NVML_SUCCESS ||
        info.state != NVML_GPU_FABRIC_STATE_COMPLETED || info.status != NVML_SUCCESS ||
        memcmp(info.clusterUuid, none, sizeof(none)) == 0)
        return;
    ret->fabric_attached = true;
    ret->fabric_clique = info.cliqueId;
    memcpy(ret->fabric_cluster, info.clusterUuid, sizeof(info.clusterUuid));
}

void gpu_traits_read(const struct nvml *n, nvmlDevice_t device, struct gpu_traits *ret) {
    unsigned int current = 0, pending = 0;
    int cuda = 0, major = 0, minor = 0;

    if (n->nvmlSystemGetCudaDriverVersion_v2 &&
        n->nvmlSystemGetCudaDriverVersion_v2(&cuda) == NVML_SUCCESS && cuda > 0)
        ret->cuda_version = (uint32_t) cuda;
    if (n->nvmlDeviceGetCudaComputeCapability &&
        n->nvmlDeviceGetCudaComputeCapability(device, &major, &minor) == NVML_SUCCESS &&
        major > 0 && minor >= 0) {
        ret->compute_major = (uint32_t) major;
        ret->compute_minor = (uint32_t) minor;
    }
    ret->mig_capable = n->nvmlDeviceGetMigMode &&
                       n->nvmlDeviceGetMigMode(device, &current, &pending) == NVML_SUCCESS;
    read_licence(n, device, ret);
    read_fabric(n, device, ret);
}
