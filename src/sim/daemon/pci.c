/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/daemon/pci.h"

#include <stdio.h>
#include <string.h>

#define REVISION 0xa1u
#define CLASS_3D 0x030200u
#define CLASS_VGA 0x030000u

/* Where the capabilities are, and their ids. */
#define AT_POWER 0x60u
#define AT_MSI 0x68u
#define AT_EXPRESS 0x78u
#define AT_VENDOR 0xb4u
#define ID_POWER 0x01u
#define ID_MSI 0x05u
#define ID_VENDOR 0x09u
#define ID_EXPRESS 0x10u
#define VENDOR_BYTES 0x14u
#define VGPU_BYTES 27u        /* with "VF" and one record, */
#define VGPU_RECORD_BYTES 22u /* of two texts */

#define REGISTERS_BYTES 0x1000000ull
#define SMALL_APERTURE_BYTES 0x2000000ull
#define REGIONS 13u
#define FLAGS_MEMORY 0x40200ull
#define FLAGS_MEMORY_64_PREFETCH 0x14220cull

struct region {
    uint64_t begin, size, flags;
};

void pci_address(const struct sim_page *page, char ret[static PCI_ADDRESS_CHARS]) {
    (void) snprintf(ret, PCI_ADDRESS_CHARS, "%04x:%02x:%02x.0", page->pci_domain & 0xffff,
                    page->pci_bus & 0xff, page->pci_device & 0x1f);
}

uint32_t pci_class(const struct sim_page *page) {
    return page->passive ? CLASS_3D : CLASS_VGA;
}

/* The registers, the memory and a small aperture are the regions 0, 1 and 3: a region of 64 bits
 * has the number behind it, too. Each card has its own terabyte. */
static void regions_of(const struct sim_page *p, struct region ret[static REGIONS]) {
    uint64_t memory = 1ull << 28, base = ((uint64_t) p->minor + 1) << 40;
    while (memory < p->memory_total)
        memory <<= 1;
    memset(ret, 0, REGIONS * sizeof(*ret));
    ret[0] =
        (struct region){0x90000000ull + p->minor * REGISTERS_BYTES, REGISTERS_BYTES, FLAGS_MEMORY};
    ret[1] = (struct region){base, memory, FLAGS_MEMORY_64_PREFETCH};
    ret[3] = (struct region){base + memory, SMALL_APERTURE_BYTES, FLAGS_MEMORY_64_PREFETCH};
}

void pci_resources(const struct sim_page *page, struct buf *out) {
    struct region regions[REGIONS];
    regions_of(page, regions);
    for (size_t i = 0; i < REGIONS; i++) {
        const struct region *r = &regions[i];
        buf_printf(out, "0x%016llx 0x%016llx 0x%016llx\n", (unsigned long long) r->begin,
                   (unsigned long long) (r->size ? r->begin + r->size - 1 : 0),
                   (unsigned long long) r->flags);
    }
}

static void put(uint8_t *at, uint64_t value, unsigned int bytes) {
    for (unsigned int i = 0; i < bytes; i++)
        at[i] = (uint8_t) (value >> (8 * i));
}

static void put_capability(uint8_t *config, uint8_t at, uint8_t id, uint8_t next) {
    config[at] = id;
    config[at + 1] = next;
}

static void put_vendor(const struct sim_host *host, uint8_t *at) {
    if (!host->vgpu) {
        at[2] = VENDOR_BYTES;
        at[3] = 0x01;
        return;
    }
    at[2] = VGPU_BYTES;
    at[3] = 'V';
    at[4] = 'F';
    at[5] = 0; /* the record's id */
    at[6] = VGPU_RECORD_BYTES;
    memcpy(at + 7, host->host_driver, 10);
    memcpy(at + 17, host->host_branch, 10);
}

void pci_config(const struct sim_host *host, const struct sim_page *page,
                uint8_t ret[static PCI_CONFIG_BYTES]) {
    struct region regions[REGIONS];
    regions_of(page, regions);
    memset(ret, 0, PCI_CONFIG_BYTES);
    put(ret + 0x00, page->pci_id, 4); /* device and vendor */
    put(ret + 0x04, 0x0406, 2);       /* memory, bus master, no INTx */
    put(ret + 0x06, 0x0010, 2);       /* has capabilities */
    ret[0x08] = REVISION;
    put(ret + 0x09, pci_class(page), 3);
    put(ret + 0x10, regions[0].begin, 4);
    put(ret + 0x14, regions[1].begin | 0xc, 8);
    put(ret + 0x1c, regions[3].begin | 0xc, 8);
    put(ret + 0x2c, page->pci_subsystem, 4);
    ret[0x34] = AT_POWER;
    put_capability(ret, AT_POWER, ID_POWER, AT_MSI);
    put_capability(ret, AT_MSI, ID_MSI, AT_EXPRESS);
    put_capability(ret, AT_EXPRESS, ID_EXPRESS, AT_VENDOR);
    put_capability(ret, AT_VENDOR, ID_VENDOR, 0);
    put_vendor(host, ret + AT_VENDOR);
}
