/* SPDX-License-Identifier: Apache-2.0 */

/* Names and numbers of a device. */

#include <stdio.h>
#include <string.h>

#include "sim/nvml/nvml.h"

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length) {
    NVML_GIVE_STRING(device, name, length, device->page->name);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
    NVML_GIVE_STRING(device, uuid, length, device->page->uuid);
}

nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned int length) {
    NVML_GIVE_STRING(device, serial, length, device->page->serial);
}

nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *version, unsigned int length) {
    NVML_GIVE_STRING(device, version, length, device->page->vbios);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) {
    NVML_GIVE(device, index, device->index);
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor_number) {
    NVML_GIVE(device, minor_number, atomic_load(&device->page->number));
}

nvmlReturn_t nvmlDeviceGetBoardId(nvmlDevice_t device, unsigned int *board_id) {
    NVML_GIVE(device, board_id, device->page->pci_bus << 8);
}

nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, nvmlBrandType_t *type) {
    NVML_GIVE(device, type, (nvmlBrandType_t) device->page->brand);
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t *arch) {
    NVML_GIVE(device, arch, device->page->architecture);
}

nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t device, unsigned int *num_cores) {
    NVML_GIVE(device, num_cores, device->page->cores);
}

nvmlReturn_t nvmlDeviceGetMemoryBusWidth(nvmlDevice_t device, unsigned int *bus_width) {
    NVML_GIVE(device, bus_width, device->page->bus_bits);
}

nvmlReturn_t nvmlDeviceGetMultiGpuBoard(nvmlDevice_t device, unsigned int *multi_gpu_bool) {
    NVML_GIVE(device, multi_gpu_bool, 0);
}

nvmlReturn_t nvmlDeviceGetBusType(nvmlDevice_t device, nvmlBusType_t *type) {
    NVML_GIVE(device, type, 2); /* PCI Express */
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    NVML_TRY(nvml_enter(device));
    if (!major || !minor)
        return NVML_ERROR_INVALID_ARGUMENT;
    *major = (int) device->page->cc_major;
    *minor = (int) device->page->cc_minor;
    return NVML_SUCCESS;
}

void nvml_pci_texts(nvmlPciInfo_t *info) {
    (void) snprintf(info->busIdLegacy, sizeof(info->busIdLegacy), "%04X:%02X:%02X.0",
                    info->domain & 0xffff, info->bus & 0xff, info->device & 0x1f);
    (void) snprintf(info->busId, sizeof(info->busId), "%08X:%02X:%02X.0", info->domain,
                    info->bus & 0xff, info->device & 0x1f);
}

/* The first two versions end before busId, and the very first before the subsystem. */
static nvmlReturn_t pci_info(nvmlDevice_t device, nvmlPciInfo_t *pci, size_t size) {
    NVML_TRY(nvml_enter(device));
    if (!pci)
        return NVML_ERROR_INVALID_ARGUMENT;
    const struct sim_page *p = device->page;
    nvmlPciInfo_t info = {
        .domain = p->pci_domain,
        .bus = p->pci_bus,
        .device = p->pci_device,
        .pciDeviceId = p->pci_id,
        .pciSubSystemId = p->pci_subsystem,
    };
    nvml_pci_texts(&info);
    memcpy(pci, &info, size);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    return pci_info(device, pci, offsetof(nvmlPciInfo_t, pciSubSystemId));
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    return pci_info(device, pci, offsetof(nvmlPciInfo_t, busId));
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    return pci_info(device, pci, sizeof(*pci));
}

nvmlReturn_t nvmlDeviceGetDisplayMode(nvmlDevice_t device, nvmlEnableState_t *display) {
    NVML_GIVE(device, display, NVML_FEATURE_DISABLED);
}

nvmlReturn_t nvmlDeviceGetDisplayActive(nvmlDevice_t device, nvmlEnableState_t *is_active) {
    NVML_GIVE(device, is_active, NVML_FEATURE_DISABLED);
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned int *curr_link_gen) {
    NVML_GIVE(device, curr_link_gen, device->page->pcie_gen);
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned int *max_link_gen) {
    NVML_GIVE(device, max_link_gen, device->page->pcie_gen);
}

nvmlReturn_t nvmlDeviceGetGpuMaxPcieLinkGeneration(nvmlDevice_t device,
                                                   unsigned int *max_link_gen_device) {
    NVML_GIVE(device, max_link_gen_device, device->page->pcie_gen);
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned int *curr_link_width) {
    NVML_GIVE(device, curr_link_width, device->page->pcie_width);
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned int *max_link_width) {
    NVML_GIVE(device, max_link_width, device->page->pcie_width);
}
