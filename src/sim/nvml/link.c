/* SPDX-License-Identifier: Apache-2.0 */

/* NVLink, and where devices are: to each other, to CPUs and to memory. */

#include <stdio.h>
#include <string.h>

#include "sim/nvml/nvml.h"

#define WORD_BITS (8 * sizeof(unsigned long))
/* NVSwitches, by what they are on the bus: those of A100 and of Hopper. */
#define SWITCH_A100 0x1af110deu
#define SWITCH_HOPPER 0x22a310deu
#define SWITCH_FIRST_BUS 0xc4u

/* -- NVLink ---------------------------------------------------------------------------------- */

/* The model has links, and `link` is one of them. Programs count to the most that any card has and
 * take NOT_SUPPORTED for those beyond this one's. */
static nvmlReturn_t enter_link(nvmlDevice_t device, unsigned int link, const void *out) {
    NVML_TRY(nvml_enter(device));
    if (!out || link >= SIM_MAX_LINKS)
        return NVML_ERROR_INVALID_ARGUMENT;
    return link < device->page->nvlink_max ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

/* Something is at its other end, and it is up. */
static bool is_active(nvmlDevice_t device, unsigned int link) {
    return link < device->page->nvlinks && !(atomic_load(&device->page->links_down) >> link & 1);
}

/* The same, and it is active. */
static nvmlReturn_t enter_active_link(nvmlDevice_t device, unsigned int link, const void *out) {
    nvmlReturn_t r = enter_link(device, link, out);
    return r == NVML_SUCCESS && !is_active(device, link) ? NVML_ERROR_NOT_SUPPORTED : r;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link,
                                      nvmlEnableState_t *state) {
    nvmlReturn_t r = enter_link(device, link, state);
    if (r == NVML_SUCCESS)
        *state = is_active(device, link) ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    return r;
}

nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link,
                                        unsigned int *version) {
    nvmlReturn_t r = enter_link(device, link, version);
    if (r == NVML_SUCCESS)
        *version = device->page->nvlink_version;
    return r;
}

nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned int link,
                                           nvmlNvLinkCapability_t capability,
                                           unsigned int *cap_result) {
    NVML_TRY(enter_active_link(device, link, cap_result));
    if ((unsigned int) capability > NVML_NVLINK_CAP_VALID)
        return NVML_ERROR_INVALID_ARGUMENT;
    *cap_result = capability != NVML_NVLINK_CAP_SLI_BRIDGE;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned int link,
                                             nvmlNvLinkErrorCounter_t counter,
                                             unsigned long long *counter_value) {
    NVML_TRY(enter_active_link(device, link, counter_value));
    if ((unsigned int) counter > NVML_NVLINK_ERROR_DL_ECC_DATA)
        return NVML_ERROR_INVALID_ARGUMENT;
    *counter_value = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link,
                                                 nvmlIntNvLinkDeviceType_t *nv_link_device_type) {
    nvmlReturn_t r = enter_active_link(device, link, nv_link_device_type);
    if (r == NVML_SUCCESS)
        *nv_link_device_type = device->page->nvlink_peer[link] & SIM_LINK_SWITCH
                                   ? NVML_NVLINK_DEVICE_TYPE_SWITCH
                                   : NVML_NVLINK_DEVICE_TYPE_GPU;
    return r;
}

static nvmlReturn_t remote_pci_info(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci,
                                    size_t size) {
    NVML_TRY(enter_active_link(device, link, pci));
    uint8_t peer = device->page->nvlink_peer[link];
    nvmlPciInfo_t info = {0};
    if (peer & SIM_LINK_SWITCH) {
        info.bus = SWITCH_FIRST_BUS + (peer & ~SIM_LINK_SWITCH);
        info.pciDeviceId = device->page->cc_major < 9 ? SWITCH_A100 : SWITCH_HOPPER;
    } else {
        const struct sim_position *at = &nvml_client()->host->position[peer];
        info.domain = at->pci_domain;
        info.bus = at->pci_bus;
        info.device = at->pci_device;
        info.pciDeviceId = at->pci_id;
    }
    nvml_pci_texts(&info);
    memcpy(pci, &info, size);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t device, unsigned int link,
                                              nvmlPciInfo_t *pci) {
    return remote_pci_info(device, link, pci, offsetof(nvmlPciInfo_t, busId));
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link,
                                                 nvmlPciInfo_t *pci) {
    return remote_pci_info(device, link, pci, sizeof(*pci));
}

/* -- between devices ------------------------------------------------------------------------- */

static nvmlReturn_t enter_pair(nvmlDevice_t a, nvmlDevice_t b, const void *out) {
    nvmlReturn_t r = nvml_enter(a);
    if (r == NVML_SUCCESS)
        r = nvml_enter(b);
    if (r == NVML_SUCCESS && !out)
        return NVML_ERROR_INVALID_ARGUMENT;
    return r;
}

static nvmlGpuTopologyLevel_t level_between(nvmlDevice_t a, nvmlDevice_t b) {
    return (nvmlGpuTopologyLevel_t) nvml_client()->host->level[a->page->parent][b->page->parent];
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device1, nvmlDevice_t device2,
                                                 nvmlGpuTopologyLevel_t *path_info) {
    NVML_TRY(enter_pair(device1, device2, path_info));
    if (device1 == device2)
        return NVML_ERROR_INVALID_ARGUMENT;
    *path_info = level_between(device1, device2);
    return NVML_SUCCESS;
}

/* NVML's sizing protocol for lists of devices: without room, how many there are. */
static void add_device(nvmlDevice_t device, unsigned int room, unsigned int *n,
                       nvmlDevice_t *list) {
    if (list && *n < room)
        list[*n] = device;
    (*n)++;
}

nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, nvmlGpuTopologyLevel_t level,
                                              unsigned int *count, nvmlDevice_t *device_array) {
    NVML_TRY(nvml_enter(device));
    if (!count || (*count > 0 && !device_array))
        return NVML_ERROR_INVALID_ARGUMENT;
    unsigned int room = *count, n = 0;
    for (unsigned int i = 0; i < nvml_device_count(); i++) {
        nvmlDevice_t other = nvml_device_at(i);
        if (other != device && level_between(device, other) == level)
            add_device(other, room, &n, device_array);
    }
    *count = n;
    return room > 0 && n > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetTopologyGpuSet(unsigned int cpu_number, unsigned int *count,
                                         nvmlDevice_t *device_array) {
    NVML_TRY(nvml_ready());
    if (!count || (*count > 0 && !device_array))
        return NVML_ERROR_INVALID_ARGUMENT;
    const struct sim_host *host = nvml_client()->host;
    unsigned int room = *count, n = 0;
    for (unsigned int i = 0; i < nvml_device_count(); i++) {
        nvmlDevice_t device = nvml_device_at(i);
        if (host->cpus_per_node == 0 || cpu_number / host->cpus_per_node == device->page->numa)
            add_device(device, room, &n, device_array);
    }
    *count = n;
    return room > 0 && n > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

static bool share_link(const struct sim_page *a, const struct sim_page *b) {
    for (uint32_t i = 0; i < a->nvlinks; i++)
        if (a->nvlink_peer[i] == b->minor || (a->nvlink_peer[i] & SIM_LINK_SWITCH && b->nvlinks))
            return true;
    return false;
}

/* Cards for games cannot reach each other's memory; atomics need NVLink. */
nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device1, nvmlDevice_t device2,
                                    nvmlGpuP2PCapsIndex_t p2p_index,
                                    nvmlGpuP2PStatus_t *p2p_status) {
    NVML_TRY(enter_pair(device1, device2, p2p_status));
    if ((unsigned int) p2p_index >= NVML_P2P_CAPS_INDEX_UNKNOWN || device1 == device2)
        return NVML_ERROR_INVALID_ARGUMENT;
    const struct sim_page *a = device1->page, *b = device2->page;
    bool able = a->passive && b->passive;
    bool nvlink = share_link(a, b);
    if (p2p_index == NVML_P2P_CAPS_INDEX_NVLINK || p2p_index == NVML_P2P_CAPS_INDEX_ATOMICS)
        *p2p_status = nvlink ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_NOT_SUPPORTED;
    else
        *p2p_status = able || nvlink ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_CHIPSET_NOT_SUPPORED;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t device1, nvmlDevice_t device2, int *on_same_board) {
    nvmlReturn_t r = enter_pair(device1, device2, on_same_board);
    if (r == NVML_SUCCESS)
        *on_same_board = device1->page->parent == device2->page->parent;
    return r;
}

/* -- to CPUs and memory ---------------------------------------------------------------------- */

nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int cpu_set_size,
                                      unsigned long *cpu_set) {
    NVML_TRY(nvml_enter(device));
    if (!cpu_set || cpu_set_size == 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    uint32_t each = nvml_client()->host->cpus_per_node;
    memset(cpu_set, 0, cpu_set_size * sizeof(*cpu_set));
    if (each == 0)
        cpu_set[0] = ~0ul; /* every CPU is near */
    for (uint32_t i = device->page->numa * each; i < (device->page->numa + 1) * each; i++)
        if (i / WORD_BITS < cpu_set_size)
            cpu_set[i / WORD_BITS] |= 1ul << i % WORD_BITS;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned int cpu_set_size,
                                                 unsigned long *cpu_set,
                                                 nvmlAffinityScope_t scope) {
    return scope > NVML_AFFINITY_SCOPE_SOCKET
               ? NVML_ERROR_INVALID_ARGUMENT
               : nvmlDeviceGetCpuAffinity(device, cpu_set_size, cpu_set);
}

nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int node_set_size,
                                         unsigned long *node_set, nvmlAffinityScope_t scope) {
    NVML_TRY(nvml_enter(device));
    if (!node_set || node_set_size == 0 || scope > NVML_AFFINITY_SCOPE_SOCKET)
        return NVML_ERROR_INVALID_ARGUMENT;
    memset(node_set, 0, node_set_size * sizeof(*node_set));
    node_set[0] = 1ul << device->page->numa;
    return NVML_SUCCESS;
}

/* Only cards with memory on a NUMA node of their own, as Grace, have one: none of these. */
nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned int *node) {
    (void) node;
    nvmlReturn_t r = nvml_enter(device);
    return r == NVML_SUCCESS ? NVML_ERROR_NOT_SUPPORTED : r;
}
