/* SPDX-License-Identifier: Apache-2.0 */

/* Handles of devices, by index, UUID, serial number and PCI address. */

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "sim/nvml/nvml.h"

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *device_count) {
    NVML_TRY(nvml_ready());
    NVML_RETURN_VALUE(device_count, nvml_device_count());
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *device_count) {
    return nvmlDeviceGetCount_v2(device_count);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    NVML_TRY(nvml_ready());
    if (!device || index >= nvml_device_count())
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = nvml_device_at(index);
    nvml_open(*device);
    return nvml_enter(*device);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    NVML_TRY(nvml_ready());
    if (!uuid || !device)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned int i = 0; i < nvml_device_count(); i++)
        if (strcasecmp(nvml_device_at(i)->page->uuid, uuid) == 0)
            return nvmlDeviceGetHandleByIndex_v2(i, device);
    return nvml_part_by_uuid(uuid, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const nvmlUUID_t *uuid, nvmlDevice_t *device) {
    NVML_TRY(nvml_ready());
    if (!uuid || !device)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (uuid->version != NVML_STRUCT_VERSION_OF(nvmlUUID_t, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (uuid->type == NVML_UUID_TYPE_ASCII)
        return memchr(uuid->value.str, 0, sizeof(uuid->value.str))
                   ? nvmlDeviceGetHandleByUUID(uuid->value.str, device)
                   : NVML_ERROR_INVALID_ARGUMENT;
    if (uuid->type != NVML_UUID_TYPE_BINARY)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned int i = 0; i < nvml_device_count(); i++)
        if (memcmp(nvml_device_at(i)->page->uuid_bytes, uuid->value.bytes,
                   sizeof(uuid->value.bytes)) == 0)
            return nvmlDeviceGetHandleByIndex_v2(i, device);
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device) {
    NVML_TRY(nvml_ready());
    if (!serial || !device)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned int i = 0; i < nvml_device_count(); i++)
        if (strcmp(nvml_device_at(i)->page->serial, serial) == 0)
            return nvmlDeviceGetHandleByIndex_v2(i, device);
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *pci_bus_id, nvmlDevice_t *device) {
    NVML_TRY(nvml_ready());
    if (!pci_bus_id || !device)
        return NVML_ERROR_INVALID_ARGUMENT;
    unsigned int domain = 0, bus, dev;
    if (sscanf(pci_bus_id, "%x:%x:%x", &domain, &bus, &dev) != 3) {
        domain = 0;
        if (sscanf(pci_bus_id, "%x:%x", &bus, &dev) != 2)
            return NVML_ERROR_INVALID_ARGUMENT;
    }
    for (unsigned int i = 0; i < nvml_device_count(); i++) {
        const struct sim_page *p = nvml_device_at(i)->page;
        if (p->pci_domain == domain && p->pci_bus == bus && p->pci_device == dev)
            return nvmlDeviceGetHandleByIndex_v2(i, device);
    }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *pci_bus_id, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByPciBusId_v2(pci_bus_id, device);
}
