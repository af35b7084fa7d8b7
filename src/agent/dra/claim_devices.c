/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/dra/claim_devices.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "base/text.h"
#include "gpu/device.h"
#include "model/dra.h"

void dra_device_name(const char *uuid, char ret[static DEVICE_NAME_MAX]) {
    text_copy(ret, DEVICE_NAME_MAX, uuid);
    for (char *c = ret; *c; c++)
        *c = (char) tolower((unsigned char) *c);
}

static const struct gpu_device *find_device(const struct gpu_snapshot *s, const char *device) {
    char name[DEVICE_NAME_MAX];

    for (uint32_t i = 0; i < s->ndevices; i++) {
        dra_device_name(s->devices[i].uuid, name);
        if (strcmp(name, device) == 0)
            return &s->devices[i];
    }
    return NULL;
}

/* What kube-scheduler or aliquot-scheduler has written is checked as what any client has written.
 */
static int check_result(const struct device_result *r, const char *node, struct err *err) {
    if (strcmp(r->pool, node) != 0)
        return err_set(err, EINVAL, "device %s is of pool %s, not of this node", r->device,
                       r->pool);
    if (r->admin)
        return err_set(err, EINVAL, "request %s has adminAccess, which this driver does not give",
                       r->request);
    return 0;
}

static int check_amounts(const struct device_result *r, const struct gpu_device *d,
                         struct err *err) {
    if (!r->share[0])
        return err_set(err, EINVAL,
                       "the allocation of request %s has no shareID: the API server or its writer "
                       "does not know shares of devices (DRAConsumableCapacity)",
                       r->request);
    if (r->consumed.odd[0] || !r->consumed.has_core || !r->consumed.has_memory)
        return err_set(err, EINVAL,
                       "the allocation of request %s does not say what it consumes of %s and %s",
                       r->request, DRA_CORE, DRA_MEMORY);
    if (r->consumed.core > 100 || r->consumed.memory == 0)
        return err_set(
            err, EINVAL,
            "the allocation of request %s consumes %llu percent and %llu bytes of a card",
            r->request, (unsigned long long) r->consumed.core,
            (unsigned long long) r->consumed.memory);
    if (r->consumed.memory > d->memory)
        return err_set(err, EINVAL, "the allocation of request %s is more memory than %s %u has",
                       r->request, gpu_kind_name(d->kind), d->index);
    return 0;
}

static int find_card(const struct gpu_snapshot *s, const char *device,
                     const struct dra_source *source, const struct gpu_device **ret,
                     struct err *err) {
    const struct gpu_device *d = find_device(s, device);
    int r = d ? 0 : source->make(device, &d, source->userdata, err);

    if (r == -ENOENT)
        return err_set(err, EAGAIN, "device %s is not on this node", device);
    if (r < 0)
        return r;
    if (!gpu_gives_shares(d))
        return err_set(err, EAGAIN, "%s %u (%s) is not given out in shares now",
                       gpu_kind_name(d->kind), d->index, d->uuid);
    *ret = d;
    return 0;
}

/* What the result has of the device. */
static int read_amounts(const struct device_result *r, const struct gpu_device *d,
                        const struct dra_source *source, uint32_t *ret_core, uint64_t *ret_memory,
                        struct err *err) {
    bool whole = !r->share[0] && source->is_whole(d, source->userdata);

    if (!whole && check_amounts(r, d, err) < 0)
        return -err->code;
    *ret_core = whole ? gpu_core(d) : (uint32_t) r->consumed.core;
    *ret_memory = whole ? d->memory : r->consumed.memory;
    return 0;
}

static struct assigned_device *part_on(struct assigned_device *list, size_t n, const char *uuid) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i].uuid, uuid) == 0)
            return &list[i];
    return NULL;
}

int dra_claim_devices(const struct resource_claim *claim, const char *node,
                      const struct gpu_snapshot *s, const struct dra_source *source,
                      struct assigned_device ret[static DEVICE_RESULTS_MAX],
                      const char *ret_requests[static DEVICE_RESULTS_MAX], size_t *ret_n,
                      struct err *err) {
    size_t n = 0;
    int r = 0;

    if (!claim->allocated)
        return err_set(err, EAGAIN, "it is not allocated");
    for (uint32_t i = 0; i < claim->nresults; i++) {
        const struct device_result *result = &claim->results[i];
        const struct gpu_device *card = NULL;
        struct assigned_device *part;
        uint64_t memory = 0;
        uint32_t core = 0;

        if (strcmp(result->driver, DRA_DRIVER) != 0)
            continue;
        r = check_result(result, node, err);
        if (r == 0)
            r = find_card(s, result->device, source, &card, err);
        if (r == 0)
            r = read_amounts(result, card, source, &core, &memory, err);
        if (r < 0)
            return r;
        part = part_on(ret, n, card->uuid);
        if (!part) {
            ret_requests[n] = result->request;
            part = &ret[n++];
            *part = (struct assigned_device){.index = card->index};
            text_copy(part->uuid, sizeof(part->uuid), card->uuid);
        }
        /* Parts of 32 results: neither sum overflows where each is of a card. */
        part->core += core;
        part->memory += memory;
        part->physical = part->memory;
    }
    if (n == 0)
        return err_set(err, EINVAL, "no device of " DRA_DRIVER " is allocated to it");
    *ret_n = n;
    return 0;
}
