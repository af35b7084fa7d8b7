/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the kernel's list of PCI devices tells of NVIDIA's. Any thread. */

#include <stdbool.h>

/* vGPU: a virtual function that a hypervisor gives to this machine. Its vendor-specific capability
 * tells which driver the host runs. */
#define PCI_VGPU_TEXT 11 /* ten characters */

struct pci_facts {
    const char *mode; /* of all cards: "compute", "graphics", or "unknown" */
    bool vgpu;        /* at least one device is a vGPU */
    char vgpu_version[PCI_VGPU_TEXT], vgpu_branch[PCI_VGPU_TEXT]; /* "": not told */
};

/* Reads the devices below `dir` (/sys/bus/pci/devices). A device that cannot be read is left out;
 * the whole configuration space (256 bytes) needs CAP_SYS_ADMIN. */
void pci_read(const char *dir, struct pci_facts *ret);
