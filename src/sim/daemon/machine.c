/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/daemon/machine.h"

#include <stdio.h>

#include "base/units.h"

#define PCI_BUSES 32u /* cards of one domain */
#define LEASE_S 86400u

/* splitmix64's output function: spreads a counter over 64 bits. */
static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

static uint64_t hash_text(const char *text, uint64_t h) {
    for (; *text; text++)
        h = mix(h ^ (uint8_t) *text);
    return h;
}

static void describe_identity(struct sim_page *p, const char *seed) {
    uint64_t hi = hash_text(seed, 0x616c6971756f74ull + p->minor);
    uint64_t lo = mix(hi);
    hi = (hi & ~0xf000ull) | 0x4000ull; /* the shape of a random UUID */
    lo = (lo >> 2) | (1ull << 63);
    for (int i = 0; i < 8; i++) {
        p->uuid_bytes[i] = (uint8_t) (hi >> (56 - 8 * i));
        p->uuid_bytes[8 + i] = (uint8_t) (lo >> (56 - 8 * i));
    }
    (void) snprintf(p->uuid, sizeof(p->uuid), "GPU-%08x-%04x-%04x-%04x-%012llx",
                    (unsigned) (hi >> 32), (unsigned) (hi >> 16) & 0xffff, (unsigned) hi & 0xffff,
                    (unsigned) (lo >> 48), (unsigned long long) (lo & 0xffffffffffffull));
    (void) snprintf(p->serial, sizeof(p->serial), "%013llu",
                    (unsigned long long) (mix(lo) % 10000000000000ull));
}

void machine_describe(struct sim_page *p, uint32_t minor, const struct sim_model *m,
                      const char *seed) {
    p->magic = SIM_MAGIC;
    p->minor = minor;
    atomic_store(&p->number, minor);
    (void) snprintf(p->name, sizeof(p->name), "%s", m->name);
    describe_identity(p, seed);
    p->memory_total = m->memory;
    p->context_bytes = m->context_mib * MIB;
    p->cc_major = m->cc_major;
    p->cc_minor = m->cc_minor;
    p->sm_count = m->sm_count;
    p->cores = (uint32_t) m->sm_count * m->cores_per_sm;
    p->sm_clock_mhz = m->sm_mhz;
    p->memory_clock_mhz = m->memory_mhz;
    p->bus_bits = m->bus_bits;
    p->l2_bytes = (uint32_t) m->l2_mib << 20;
    p->shared_per_sm = (uint32_t) m->shared_kib << 10;
    p->power_limit_mw = m->watts * 1000u;
    p->power_idle_mw = m->idle_watts * 1000u;
    p->memory_mbps = m->memory_gbps * 1000u;
    p->pci_domain = minor / PCI_BUSES;
    p->pci_bus = 0x07 + minor % PCI_BUSES * 4u;
    p->pci_id = (uint32_t) m->pci_device << 16 | 0x10de;
    p->pci_subsystem = (uint32_t) m->pci_subdevice << 16 | 0x10de;
    p->architecture = m->architecture;
    p->brand = m->brand;
    p->pcie_gen = m->pcie_gen;
    p->pcie_width = 16;
    p->ecc = m->ecc;
    (void) snprintf(p->vbios, sizeof(p->vbios), "%s", m->vbios);
    p->passive = m->brand != 15;
    p->nvlink_version = m->nvlink_version;
    p->nvlink_max = m->nvlinks;
    p->parent = minor;
    p->setting[SIM_SETTING_PERSISTENCE] = 1;
    p->setting[SIM_SETTING_POWER_LIMIT] = p->power_limit_mw;
}

void machine_license(struct sim_page *page, enum sim_licence licence, uint64_t now) {
    const uint64_t ends[] = {
        [SIM_LICENSED] = now + LEASE_S, [SIM_UNLICENSED] = 0, [SIM_LICENCE_EXPIRED] = now};
    atomic_store(&page->licence_end, ends[licence]);
    atomic_store(&page->licence, licence);
}
