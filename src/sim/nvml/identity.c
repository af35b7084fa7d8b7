/* SPDX-License-Identifier: Apache-2.0 */

/* What a device is. */

#include <stdio.h>
#include <string.h>

#include "sim/nvml/nvml.h"

/* Bodies of the many functions that hand out one value of a device's page. */
#define GIVE(device, out, value)                                                                   \
    do {                                                                                           \
        nvmlReturn_t _r = nvml_enter(device);                                                      \
        if (_r != NVML_SUCCESS)                                                                    \
            return _r;                                                                             \
        if (!(out))                                                                                \
            return NVML_ERROR_INVALID_ARGUMENT;                                                    \
        *(out) = (value);                                                                          \
        return NVML_SUCCESS;                                                                       \
    } while (0)

#define GIVE_STRING(device, out, length, text)                                                     \
    do {                                                                                           \
        nvmlReturn_t _r = nvml_enter(device);                                                      \
        return _r == NVML_SUCCESS ? nvml_put_string((out), (length), (text)) : _r;                 \
    } while (0)

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length) {
    GIVE_STRING(device, name, length, device->page->name);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
    GIVE_STRING(device, uuid, length, device->page->uuid);
}

nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned int length) {
    GIVE_STRING(device, serial, length, device->page->serial);
}

nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *version, unsigned int length) {
    GIVE_STRING(device, version, length, "92.00.45.00.03");
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) {
    GIVE(device, index, device->index);
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor_number) {
    GIVE(device, minor_number, device->page->minor);
}

nvmlReturn_t nvmlDeviceGetBoardId(nvmlDevice_t device, unsigned int *board_id) {
    GIVE(device, board_id, device->page->pci_bus << 8);
}

nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, nvmlBrandType_t *type) {
    GIVE(device, type, (nvmlBrandType_t) device->page->brand);
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t *arch) {
    GIVE(device, arch, device->page->architecture);
}

nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t device, unsigned int *num_cores) {
    GIVE(device, num_cores, device->page->cores);
}

nvmlReturn_t nvmlDeviceGetMemoryBusWidth(nvmlDevice_t device, unsigned int *bus_width) {
    GIVE(device, bus_width, device->page->bus_bits);
}

nvmlReturn_t nvmlDeviceGetMultiGpuBoard(nvmlDevice_t device, unsigned int *multi_gpu_bool) {
    GIVE(device, multi_gpu_bool, 0);
}

nvmlReturn_t nvmlDeviceGetBusType(nvmlDevice_t device, nvmlBusType_t *type) {
    GIVE(device, type, 2); /* PCI Express */
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    nvmlReturn_t r = nvml_enter(device);
    if (r != NVML_SUCCESS)
        return r;
    if (!major || !minor)
        return NVML_ERROR_INVALID_ARGUMENT;
    *major = (int) device->page->cc_major;
    *minor = (int) device->page->cc_minor;
    return NVML_SUCCESS;
}

/* The first two versions end before busId, and the very first before the subsystem. */
static nvmlReturn_t pci_info(nvmlDevice_t device, nvmlPciInfo_t *pci, size_t size) {
    nvmlReturn_t r = nvml_enter(device);
    if (r != NVML_SUCCESS)
        return r;
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
    (void) snprintf(info.busIdLegacy, sizeof(info.busIdLegacy), "%04X:%02X:%02X.0",
                    p->pci_domain & 0xffff, p->pci_bus & 0xff, p->pci_device & 0x1f);
    (void) snprintf(info.busId, sizeof(info.busId), "%08X:%02X:%02X.0", p->pci_domain,
                    p->pci_bus & 0xff, p->pci_device & 0x1f);
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

nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int cpu_set_size,
                                      unsigned long *cpu_set) {
    nvmlReturn_t r = nvml_enter(device);
    if (r != NVML_SUCCESS)
        return r;
    if (!cpu_set || cpu_set_size == 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    memset(cpu_set, 0, cpu_set_size * sizeof(*cpu_set));
    cpu_set[0] = ~0ul; /* one NUMA node: every CPU is near */
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int node_set_size,
                                         unsigned long *node_set, nvmlAffinityScope_t scope) {
    (void) scope;
    nvmlReturn_t r = nvml_enter(device);
    if (r != NVML_SUCCESS)
        return r;
    if (!node_set || node_set_size == 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    memset(node_set, 0, node_set_size * sizeof(*node_set));
    node_set[0] = 1;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned int *node) {
    GIVE(device, node, 0);
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t *mode) {
    GIVE(device, mode, NVML_FEATURE_ENABLED);
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t *mode) {
    GIVE(device, mode, NVML_COMPUTEMODE_DEFAULT);
}

nvmlReturn_t nvmlDeviceGetDisplayMode(nvmlDevice_t device, nvmlEnableState_t *display) {
    GIVE(device, display, NVML_FEATURE_DISABLED);
}

nvmlReturn_t nvmlDeviceGetDisplayActive(nvmlDevice_t device, nvmlEnableState_t *is_active) {
    GIVE(device, is_active, NVML_FEATURE_DISABLED);
}

nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device,
                                             nvmlGpuVirtualizationMode_t *virtual_mode) {
    GIVE(device, virtual_mode, NVML_GPU_VIRTUALIZATION_MODE_NONE);
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned int *curr_link_gen) {
    GIVE(device, curr_link_gen, device->page->pcie_gen);
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned int *max_link_gen) {
    GIVE(device, max_link_gen, device->page->pcie_gen);
}

nvmlReturn_t nvmlDeviceGetGpuMaxPcieLinkGeneration(nvmlDevice_t device,
                                                   unsigned int *max_link_gen_device) {
    GIVE(device, max_link_gen_device, device->page->pcie_gen);
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned int *curr_link_width) {
    GIVE(device, curr_link_width, device->page->pcie_width);
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned int *max_link_width) {
    GIVE(device, max_link_width, device->page->pcie_width);
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) {
    GIVE(device, count, 0);
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_mig_device) {
    GIVE(device, is_mig_device, 0);
}

/* Only the big cards of Ampere and later can be divided; the others do not know the question. */
nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current_mode,
                                  unsigned int *pending_mode) {
    nvmlReturn_t r = nvml_enter(device);
    if (r != NVML_SUCCESS)
        return r;
    if (!current_mode || !pending_mode)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (device->page->cc_minor != 0 || device->page->cc_major < 8)
        return NVML_ERROR_NOT_SUPPORTED;
    *current_mode = *pending_mode = 0;
    return NVML_SUCCESS;
}
