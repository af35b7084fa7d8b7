/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The GPUs that can be simulated, by the names and figures of NVIDIA's data sheets. */

#include <stddef.h>
#include <stdint.h>

struct sim_model {
    const char *name;  /* as nvmlDeviceGetName answers */
    const char *alias; /* short name for the command line */
    uint64_t memory;   /* bytes */
    uint32_t context_mib;
    uint16_t cc_major, cc_minor;
    uint16_t sm_count, cores_per_sm;
    uint16_t sm_mhz, memory_mhz, bus_bits;
    uint16_t l2_mib, shared_kib;
    uint16_t watts, idle_watts;
    uint32_t memory_gbps;
    uint16_t pci_device, pci_subdevice;
    uint8_t architecture, brand; /* NVML's numbers */
    uint8_t pcie_gen, ecc;
    uint8_t nvlinks, nvlink_version;
    const char *vbios; /* of a card of that model; its first two numbers are the chip's */
};

/* By full name or alias, letter case ignored; NULL name means the default. NULL when unknown. */
const struct sim_model *model_find(const char *name);

/* The i-th model, or NULL behind the last. */
const struct sim_model *model_at(size_t i);
