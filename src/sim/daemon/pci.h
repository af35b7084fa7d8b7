/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* PCI devices of the simulated cards: addresses, config space, resources. Pure. */

#include "base/buf.h"
#include "sim/proto.h"

#define PCI_CONFIG_BYTES 256u
#define PCI_ADDRESS_CHARS 16u

/* "0000:07:00.0" */
void pci_address(const struct sim_page *page, char ret[static PCI_ADDRESS_CHARS]);

/* 0x030200 (3D controller) of cards without display outputs, 0x030000 of the others. */
uint32_t pci_class(const struct sim_page *page);

/* Header and capabilities, as the kernel gives them to root. The vendor-specific capability of a
 * vGPU names the driver of its host. */
void pci_config(const struct sim_host *host, const struct sim_page *page,
                uint8_t ret[static PCI_CONFIG_BYTES]);

/* The text of sysfs's `resource`: begin, end and flags of each region. */
void pci_resources(const struct sim_page *page, struct buf *out);
