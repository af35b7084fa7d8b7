/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/os/pci.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"

#define NVIDIA 0x10deu
#define CLASS_VGA 0x0300u /* base class and subclass */
#define CLASS_3D 0x0302u
#define CONFIG_SIZE 256
#define ENTRY_MAX 4096 /* of PCI Express */

/* PCI Local Bus Specification 3.0, 6.1 and 6.7. */
#define STATUS_BYTE 0x06
#define STATUS_CAPABILITIES 0x10
#define CAPABILITIES 0x34
#define VENDOR_SPECIFIC 0x09

/* The capability: id, next, length, "VF", then records of id, length (with these two bytes), data.
 */
#define RECORDS 5
#define RECORD_HOST 0
#define HOST_TEXT (PCI_VGPU_TEXT - 1)

static int read_entry(const char *dir, const char *device, const char *name, struct buf *ret) {
    char path[512];

    (void) snprintf(path, sizeof(path), "%s/%s/%s", dir, device, name);
    return file_read(path, ENTRY_MAX, ret, NULL);
}

static uint32_t read_number(const char *dir, const char *device, const char *name) {
    _cleanup_buf_ struct buf text = BUF_INIT(64 << 10);
    uint32_t number;

    if (read_entry(dir, device, name, &text) < 0)
        return UINT32_MAX;
    return sscanf(buf_str(&text), "0x%8" SCNx32, &number) == 1 ? number : UINT32_MAX;
}

/* Where the vendor-specific capability begins, or 0. */
static unsigned find_capability(const uint8_t config[static CONFIG_SIZE]) {
    unsigned at = config[STATUS_BYTE] & STATUS_CAPABILITIES ? config[CAPABILITIES] : 0;

    for (unsigned hops = 0; at >= 0x40 && at <= CONFIG_SIZE - 3 && hops < 48; hops++) {
        if (config[at] == VENDOR_SPECIFIC)
            return at;
        at = config[at + 1];
    }
    return 0;
}

static void read_vgpu(const uint8_t config[static CONFIG_SIZE], struct pci_facts *ret) {
    unsigned begin = find_capability(config), end, at;

    if (begin == 0)
        return;
    end = begin + config[begin + 2];
    at = begin + RECORDS;
    if (end > CONFIG_SIZE || at > end || config[begin + 3] != 'V' || config[begin + 4] != 'F')
        return;
    ret->vgpu = true;
    while (at + 2 <= end && config[at] != RECORD_HOST && config[at + 1] >= 2)
        at += config[at + 1];
    if (at + 2 + 2 * HOST_TEXT > end || config[at] != RECORD_HOST)
        return;
    memcpy(ret->vgpu_version, config + at + 2, HOST_TEXT);
    memcpy(ret->vgpu_branch, config + at + 2 + HOST_TEXT, HOST_TEXT);
}

static const char *mode_of(uint32_t class) {
    switch (class) {
    case CLASS_VGA:
        return "graphics";
    case CLASS_3D:
        return "compute";
    default:
        return "unknown";
    }
}

void pci_read(const char *dir, struct pci_facts *ret) {
    _cleanup_closedir_ DIR *devices = opendir(dir);
    const struct dirent *entry;
    bool any = false;

    *ret = (struct pci_facts){.mode = "unknown"};
    while (devices && (entry = readdir(devices))) {
        _cleanup_buf_ struct buf config = BUF_INIT(64 << 10);
        uint32_t class;

        if (entry->d_name[0] == '.' || read_number(dir, entry->d_name, "vendor") != NVIDIA)
            continue;
        class = read_number(dir, entry->d_name, "class") >> 8;
        if (class != CLASS_VGA && class != CLASS_3D)
            continue; /* its audio and USB controllers, and NVSwitches */
        if (any && strcmp(ret->mode, mode_of(class)) != 0)
            ret->mode = "unknown";
        else if (!any)
            ret->mode = mode_of(class);
        any = true;
        if (read_entry(dir, entry->d_name, "config", &config) == 0 && config.len >= CONFIG_SIZE)
            read_vgpu((const uint8_t *) config.data, ret);
    }
}
