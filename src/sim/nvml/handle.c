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

/* The first card that `is` says it of. */
static nvmlReturn_t find(bool (*is)(const struct sim_page *page, const void *key), const void *key,
                         nvmlDevice_t *device) {
    for (unsigned int i = 0; i < nvml_device_count(); i++)
        if (is(nvml_device_at(i)->page, key))
            return nvmlDeviceGetHandleByIndex_v2(i, device);
    return NVML_ERROR_NOT_FOUND;
}

static bool has_uuid(const struct sim_page *page, const void *uuid) {
    return strcasecmp(page->uuid, uuid) == 0;
}

static bool has_uuid_bytes(const struct sim_page *page, const void *bytes) {
    return memcmp(page->uuid_bytes, bytes, sizeof(page->uuid_bytes)) == 0;
}

static bool has_serial(const struct sim_page *page, const void *serial) {
    return strcmp(page->serial, serial) == 0;
}

struct pci_address {
    unsigned int domain, bus, device;
};

static bool has_address(const struct sim_page *page, const void *key) {
    const struct pci_address *a = key;
    return page->pci_domain == a->domain && page->pci_bus == a->bus &&
           page->pci_device == a->device;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    NVML_TRY(nvml_ready());
    if (!uuid || !device)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t r = find(has_uuid, uuid, device);
    return r == NVML_ERROR_NOT_FOUND ? nvml_part_by_uuid(uuid, device) : r;
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
    return find(has_uuid_bytes, uuid->value.bytes, device);
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device) {
    NVML_TRY(nvml_ready());
    if (!serial || !device)
        return NVML_ERROR_INVALID_ARGUMENT;
    return find(has_serial, serial, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *pci_bus_id, nvmlDevice_t *device) {
    NVML_TRY(nvml_ready());
    if (!pci_bus_id || !device)
        return NVML_ERROR_INVALID_ARGUMENT;
    struct pci_address a;
    if (sscanf(pci_bus_id, "%x:%x:%x", &a.domain, &a.bus, &a.device) != 3) {
        a.domain = 0;
        if (sscanf(pci_bus_id, "%x:%x", &a.bus, &a.device) != 2)
            return NVML_ERROR_INVALID_ARGUMENT;
    }
    return find(has_address, &a, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *pci_bus_id, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByPciBusId_v2(pci_bus_id, device);
}
