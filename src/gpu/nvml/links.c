/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/nvml/links.h"

#include <stdbool.h>
#include <string.h>

#define WORD_BITS (8 * sizeof(unsigned long))
#define NUMA_NODES 64
#define NVLINKS_MAX 36 /* of one card, of any model to date */
#define SCOPE_NODE 0   /* NVML_AFFINITY_SCOPE_NODE */

struct reader {
    const struct nvml *nvml;
    uint32_t count;
    nvmlDevice_t devices[GPU_CARDS_MAX]; /* NULL: has no handle */
    nvmlPciInfo_t pci[GPU_CARDS_MAX];
    uint8_t switched[GPU_CARDS_MAX]; /* NVLinks that end at a switch */
    struct gpu_links *links;
    void (*reading)(uint32_t index, void *userdata);
    void *userdata;
};

static int32_t numa_of(const struct nvml *n, nvmlDevice_t device) {
    unsigned long set[NUMA_NODES / WORD_BITS] = {0};
    if (!n->nvmlDeviceGetMemoryAffinity ||
        n->nvmlDeviceGetMemoryAffinity(device, NUMA_NODES / WORD_BITS, set, SCOPE_NODE) !=
            NVML_SUCCESS)
        return -1;
    for (unsigned i = 0; i < NUMA_NODES; i++)
        if (set[i / WORD_BITS] >> i % WORD_BITS & 1)
            return (int32_t) i;
    return -1;
}

static void open_cards(struct reader *r) {
    for (uint32_t i = 0; i < r->count; i++) {
        r->reading(i, r->userdata);
        if (r->nvml->nvmlDeviceGetHandleByIndex_v2(i, &r->devices[i]) != NVML_SUCCESS) {
            r->devices[i] = NULL;
            continue;
        }
        if (r->nvml->nvmlDeviceGetPciInfo_v3)
            (void) r->nvml->nvmlDeviceGetPciInfo_v3(r->devices[i], &r->pci[i]);
        r->links->of[i].numa = numa_of(r->nvml, r->devices[i]);
    }
}

/* Which of the cards is at the other end of a link; -1: none. */
static int peer_of(const struct reader *r, const nvmlPciInfo_t *remote) {
    for (uint32_t i = 0; i < r->count; i++)
        if (r->devices[i] && r->pci[i].domain == remote->domain && r->pci[i].bus == remote->bus &&
            r->pci[i].device == remote->device)
            return (int) i;
    return -1;
}

static bool is_active(const struct nvml *n, nvmlDevice_t device, unsigned link) {
    nvmlEnableState_t state = NVML_FEATURE_DISABLED;
    return n->nvmlDeviceGetNvLinkState &&
           n->nvmlDeviceGetNvLinkState(device, link, &state) == NVML_SUCCESS &&
           state == NVML_FEATURE_ENABLED;
}

static void follow_link(struct reader *r, uint32_t card, unsigned link) {
    const struct nvml *n = r->nvml;
    nvmlIntNvLinkDeviceType_t type = NVML_NVLINK_DEVICE_TYPE_UNKNOWN;
    nvmlPciInfo_t remote = {0};
    if (n->nvmlDeviceGetNvLinkRemoteDeviceType)
        (void) n->nvmlDeviceGetNvLinkRemoteDeviceType(r->devices[card], link, &type);
    if (type == NVML_NVLINK_DEVICE_TYPE_SWITCH) {
        r->switched[card]++;
        return;
    }
    if (!n->nvmlDeviceGetNvLinkRemotePciInfo_v2 ||
        n->nvmlDeviceGetNvLinkRemotePciInfo_v2(r->devices[card], link, &remote) != NVML_SUCCESS)
        return;
    int peer = peer_of(r, &remote);
    if (peer >= 0 && (uint32_t) peer != card)
        r->links->of[card].nvlinks[peer]++;
}

/* Two cards on the same switches have as many links as the one that has fewer of them. */
static void join_switched(struct reader *r) {
    for (uint32_t a = 0; a < r->count; a++)
        for (uint32_t b = 0; b < r->count; b++) {
            uint8_t fewer = r->switched[a] < r->switched[b] ? r->switched[a] : r->switched[b];
            if (a != b && fewer > r->links->of[a].nvlinks[b])
                r->links->of[a].nvlinks[b] = fewer;
        }
}

static void read_levels(struct reader *r) {
    nvmlGpuTopologyLevel_t level;
    for (uint32_t a = 0; a < r->count; a++) {
        r->reading(a, r->userdata);
        for (uint32_t b = 0; b < r->count; b++)
            if (a != b && r->devices[a] && r->devices[b] &&
                r->nvml->nvmlDeviceGetTopologyCommonAncestor &&
                r->nvml->nvmlDeviceGetTopologyCommonAncestor(r->devices[a], r->devices[b],
                                                             &level) == NVML_SUCCESS &&
                (unsigned) level <= NVML_TOPOLOGY_SYSTEM)
                r->links->of[a].level[b] = (uint8_t) level;
    }
}

void gpu_links_init(struct gpu_links *ret) {
    memset(ret, 0, sizeof(*ret));
    for (uint32_t i = 0; i < GPU_CARDS_MAX; i++) {
        ret->of[i].numa = -1;
        memset(ret->of[i].level, GPU_LEVEL_UNKNOWN, sizeof(ret->of[i].level));
    }
}

void gpu_links_read(const struct nvml *nvml, uint32_t count,
                    void (*reading)(uint32_t index, void *userdata), void *userdata,
                    struct gpu_links *ret) {
    struct reader r = {.nvml = nvml,
                       .count = count < GPU_CARDS_MAX ? count : GPU_CARDS_MAX,
                       .links = ret,
                       .reading = reading,
                       .userdata = userdata};
    gpu_links_init(ret);
    ret->count = r.count;
    for (uint32_t i = 0; i < r.count; i++)
        ret->of[i].known = r.count;
    open_cards(&r);
    for (uint32_t i = 0; i < r.count; i++) {
        reading(i, userdata);
        for (unsigned link = 0; r.devices[i] && link < NVLINKS_MAX; link++)
            if (is_active(nvml, r.devices[i], link))
                follow_link(&r, i, link);
    }
    join_switched(&r);
    read_levels(&r);
}
