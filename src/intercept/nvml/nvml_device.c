/* SPDX-License-Identifier: Apache-2.0 */

/* Which devices NVML shows: the cards of the share, counted from 0 without gaps, by index, UUID,
 * bus ID or serial number. */

#include <string.h>

#include "intercept/nvml/nvml.h"
#include "intercept/resolve/driver.h"

#define CARDS_MAX 64
#define INSTANCES_MAX 64 /* of a divided GPU; hardware has 7 */

static bool is_instance(const char *uuid) {
    return strncmp(uuid, "MIG-", 4) == 0;
}

static nvmlReturn_t uuid_of(nvmlDevice_t device, char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE]) {
    nvmlReturn_t r = driver.nvmlDeviceGetUUID(device, uuid, NVML_DEVICE_UUID_V2_BUFFER_SIZE);

    uuid[r == NVML_SUCCESS ? NVML_DEVICE_UUID_V2_BUFFER_SIZE - 1 : 0] = '\0';
    return r;
}

static uint64_t bit_of(const struct share *share, const char *uuid) {
    int index = share_device_by_uuid(share, uuid);

    return index < 0 ? 0 : UINT64_C(1) << index;
}

/* An instance of a card that is the container's is the container's, too. */
static uint64_t bit_of_parent(const struct share *share, nvmlDevice_t device) {
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
    nvmlDevice_t parent;

    if (driver.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device, &parent) != NVML_SUCCESS ||
        uuid_of(parent, uuid) != NVML_SUCCESS)
        return 0;
    return bit_of(share, uuid);
}

static uint64_t bits_of_instances(const struct share *share, nvmlDevice_t device) {
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
    unsigned int n = 0;
    uint64_t bits = 0;
    nvmlDevice_t instance;

    if (driver.nvmlDeviceGetMaxMigDeviceCount(device, &n) != NVML_SUCCESS)
        return 0;
    for (unsigned int i = 0; i < n && i < INSTANCES_MAX; i++)
        if (driver.nvmlDeviceGetMigDeviceHandleByIndex(device, i, &instance) == NVML_SUCCESS &&
            uuid_of(instance, uuid) == NVML_SUCCESS)
            bits |= bit_of(share, uuid);
    return bits;
}

/* What of the share the device is. */
static uint64_t bits_of(const struct share *share, nvmlDevice_t device, const char *uuid) {
    uint64_t own = bit_of(share, uuid);

    if (own)
        return own;
    return is_instance(uuid) ? bit_of_parent(share, device) : bits_of_instances(share, device);
}

static bool any_limit(const struct share *share, uint64_t devices) {
    for (int i = part_next(&devices); i >= 0; i = part_next(&devices)) {
        uint32_t percent = limits_core(share->limits, (unsigned int) i);

        if (share_limit(share, i) || (percent > 0 && percent < 100))
            return true;
    }
    return false;
}

bool nvml_limited(void) {
    const struct share *share = share_view();

    if (!share)
        return false;
    return share->broken ||
           any_limit(share,
                     share->ndevices < 64 ? (UINT64_C(1) << share->ndevices) - 1 : UINT64_MAX);
}

nvmlReturn_t nvml_part_of(nvmlDevice_t device, struct part *ret) {
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
    struct part part = {.share = share_view()};
    nvmlReturn_t r;

    if (part.share) {
        r = uuid_of(device, uuid);
        if (r != NVML_SUCCESS)
            return r;
    }
    if (part.share && !part.share->broken) {
        part.devices = bits_of(part.share, device, uuid);
        if (!part.devices)
            return NVML_ERROR_NO_PERMISSION;
        if (!any_limit(part.share, part.devices))
            part.share = NULL;
    }
    *ret = part;
    return NVML_SUCCESS;
}

/* -- counting ---------------------------------------------------------------------------------- */

/* The driver's devices that the program sees, by the index that it uses. */
struct cards {
    unsigned int n;
    unsigned int index[CARDS_MAX];
};

/* A card that has fallen off the bus has no UUID. While cards of the share are not found, it counts
 * as one of them, so that the others keep their indexes. */
static nvmlReturn_t cards_get(const struct share *share, struct cards *ret) {
    uint64_t found = 0, bits[CARDS_MAX] = {0};
    bool lost[CARDS_MAX] = {false};
    unsigned int n = 0;
    nvmlReturn_t r = driver.nvmlDeviceGetCount_v2(&n);
    int missing;

    if (r != NVML_SUCCESS)
        return r;
    if (n > CARDS_MAX)
        n = CARDS_MAX;
    for (unsigned int i = 0; i < n; i++) {
        char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
        nvmlDevice_t device;

        lost[i] = driver.nvmlDeviceGetHandleByIndex_v2(i, &device) != NVML_SUCCESS ||
                  uuid_of(device, uuid) != NVML_SUCCESS;
        bits[i] = lost[i] ? 0 : bits_of(share, device, uuid);
        found |= bits[i];
    }
    missing = (int) share->ndevices - __builtin_popcountll(found);
    ret->n = 0;
    for (unsigned int i = 0; i < n; i++)
        if (bits[i] || (lost[i] && missing-- > 0))
            ret->index[ret->n++] = i;
    return NVML_SUCCESS;
}

/* The share whose cards are shown; NULL: all that the driver shows (of a broken share the cards are
 * not known). */
static const struct share *share_of_view(void) {
    const struct share *share = share_view();

    return share && !share->broken ? share : NULL;
}

static nvmlReturn_t count(unsigned int *device_count,
                          nvmlReturn_t (*from_driver)(unsigned int *device_count)) {
    const struct share *share = share_of_view();
    struct cards cards;
    nvmlReturn_t r;

    if (!share || !device_count)
        return from_driver(device_count);
    r = cards_get(share, &cards);
    if (r == NVML_SUCCESS)
        *device_count = cards.n;
    return r;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *device_count) {
    return count(device_count, driver.nvmlDeviceGetCount);
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *device_count) {
    return count(device_count, driver.nvmlDeviceGetCount_v2);
}

static nvmlReturn_t by_index(unsigned int index, nvmlDevice_t *device,
                             nvmlReturn_t (*from_driver)(unsigned int, nvmlDevice_t *)) {
    const struct share *share = share_of_view();
    struct cards cards;
    nvmlReturn_t r;

    if (!share || !device)
        return from_driver(index, device);
    r = cards_get(share, &cards);
    if (r != NVML_SUCCESS)
        return r;
    return index < cards.n ? from_driver(cards.index[index], device) : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device) {
    return by_index(index, device, driver.nvmlDeviceGetHandleByIndex);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    return by_index(index, device, driver.nvmlDeviceGetHandleByIndex_v2);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) {
    nvmlReturn_t r = driver.nvmlDeviceGetIndex(device, index);
    const struct share *share = share_of_view();
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
    struct cards cards;

    if (r != NVML_SUCCESS || !index || !share)
        return r;
    /* An instance's index is its place on its GPU. */
    if (uuid_of(device, uuid) == NVML_SUCCESS && is_instance(uuid))
        return r;
    r = cards_get(share, &cards);
    for (unsigned int i = 0; r == NVML_SUCCESS && i < cards.n; i++)
        if (cards.index[i] == *index) {
            *index = i;
            return r;
        }
    return r == NVML_SUCCESS ? NVML_ERROR_NO_PERMISSION : r;
}

/* -- finding by name --------------------------------------------------------------------------- */

static bool shown(const struct share *share, nvmlDevice_t device) {
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];

    return !share || (uuid_of(device, uuid) == NVML_SUCCESS && bits_of(share, device, uuid));
}

/* What a search of the driver's has found, if the program may have it. */
static nvmlReturn_t hand_out(nvmlReturn_t r, nvmlDevice_t found, nvmlDevice_t *device) {
    if (r != NVML_SUCCESS)
        return r;
    if (!shown(share_of_view(), found))
        return NVML_ERROR_NOT_FOUND;
    *device = found;
    return r;
}

#define FIND(symbol, key_type)                                                                     \
    nvmlReturn_t symbol(key_type key, nvmlDevice_t *device) {                                      \
        nvmlDevice_t found = NULL;                                                                 \
        nvmlReturn_t r = driver.symbol(key, device ? &found : NULL);                               \
                                                                                                   \
        return device ? hand_out(r, found, device) : r;                                            \
    }

FIND(nvmlDeviceGetHandleByUUID, const char *)
FIND(nvmlDeviceGetHandleByUUIDV, const nvmlUUID_t *)
FIND(nvmlDeviceGetHandleBySerial, const char *)
FIND(nvmlDeviceGetHandleByPciBusId, const char *)
FIND(nvmlDeviceGetHandleByPciBusId_v2, const char *)

/* Where an instance is not the container's there is a gap, as the driver has gaps where there is no
 * instance. */
nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
                                                 nvmlDevice_t *mig_device) {
    nvmlDevice_t found = NULL;
    nvmlReturn_t r =
        driver.nvmlDeviceGetMigDeviceHandleByIndex(device, index, mig_device ? &found : NULL);

    return mig_device ? hand_out(r, found, mig_device) : r;
}

/* -- neighbours -------------------------------------------------------------------------------- */

/* A list of the driver's without what is not the container's, by NVML's rules for lists. */
static nvmlReturn_t hand_out_list(const struct share *share, nvmlDevice_t *found, unsigned int n,
                                  unsigned int *room, nvmlDevice_t *devices) {
    unsigned int kept = 0, fit = *room;

    for (unsigned int i = 0; i < n; i++)
        if (shown(share, found[i]))
            found[kept++] = found[i];
    *room = kept;
    if (!devices)
        return NVML_SUCCESS;
    if (kept > fit)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(devices, found, kept * sizeof(*devices));
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, nvmlGpuTopologyLevel_t level,
                                              unsigned int *count, nvmlDevice_t *device_array) {
    const struct share *share = share_of_view();
    nvmlDevice_t found[CARDS_MAX];
    unsigned int n = CARDS_MAX;
    nvmlReturn_t r;

    if (!share || !count)
        return driver.nvmlDeviceGetTopologyNearestGpus(device, level, count, device_array);
    r = driver.nvmlDeviceGetTopologyNearestGpus(device, level, &n, found);
    return r == NVML_SUCCESS ? hand_out_list(share, found, n, count, device_array) : r;
}

nvmlReturn_t nvmlSystemGetTopologyGpuSet(unsigned int cpu_number, unsigned int *count,
                                         nvmlDevice_t *device_array) {
    const struct share *share = share_of_view();
    nvmlDevice_t found[CARDS_MAX];
    unsigned int n = CARDS_MAX;
    nvmlReturn_t r;

    if (!share || !count)
        return driver.nvmlSystemGetTopologyGpuSet(cpu_number, count, device_array);
    r = driver.nvmlSystemGetTopologyGpuSet(cpu_number, &n, found);
    return r == NVML_SUCCESS ? hand_out_list(share, found, n, count, device_array) : r;
}
