/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/report/node_capacity.h"

#include <stdio.h>
#include <string.h>

#include "agent/shares/shares.h"
#include "base/text.h"
#include "base/units.h"
#include "gpu/device.h"
#include "model/dialect.h"
#include "model/quantity.h"
#include "wire/json_write.h"

/* ---- by name ---- */

static uint64_t in_bytes(const struct gpu_device *d, uint64_t memory) {
    (void) d;
    return memory;
}

static uint64_t in_gib(const struct gpu_device *d, uint64_t memory) {
    (void) d;
    return memory / GIB;
}

static uint64_t as_one(const struct gpu_device *d, uint64_t memory) {
    (void) d, (void) memory;
    return 1;
}

/* Of a card that is given out in shares the name requests any part. */
static uint64_t in_cards(const struct gpu_device *d, uint64_t memory) {
    (void) memory;
    if (d->whole_only)
        return 1;
    return d->replicas.as_cards ? d->replicas.count : NODE_CAPACITY_NONE;
}

static uint64_t in_replicas(const struct gpu_device *d, uint64_t memory) {
    (void) memory;
    if (d->whole_only)
        return 0;
    return d->replicas.count > 0 ? d->replicas.count : REPLICAS_PER_CARD;
}

/* Where the configuration has replicas of that name. */
static bool has_replicas(const struct gpu_snapshot *s) {
    for (uint32_t i = 0; i < s->ndevices; i++)
        if (gpu_gives_shares(&s->devices[i]) && s->devices[i].replicas.count > 0 &&
            !s->devices[i].replicas.as_cards)
            return true;
    return false;
}

static bool has_cards(const struct gpu_snapshot *s) {
    for (uint32_t i = 0; i < s->ndevices; i++)
        if (gpu_gives_shares(&s->devices[i]))
            return true;
    return false;
}

/* kubelet refuses a pod, for good, if the sum of a name's requests on the node exceeds what is
 * shown, and ignores names that are not there. So what is shown of a name is at least what
 * aliquot-scheduler gives out by it, or nothing. dialects.def has what pods request, of which this
 * is a part: totals of what a plugin serves already are not shown. gpushare's tools read
 * aliyun.com/. */
static const struct {
    const char *name;
    uint64_t (*of)(const struct gpu_device *d, uint64_t memory); /* NODE_CAPACITY_NONE: no sum */
    bool (*configured)(const struct gpu_snapshot *s);            /* NULL: it is always shown */
    enum export_kind exported; /* of containers that request the name, or others */
} names[NODE_CAPACITY_NAMES] = {
    {RESOURCE_MEMORY, in_bytes, NULL, EXPORT_KINDS},
    {"tke.cloud.tencent.com/qgpu-memory", in_gib, NULL, EXPORT_KINDS},
    {"aliyun.com/gpu-mem", in_gib, NULL, EXPORT_KINDS},
    {"aliyun.com/gpu-count", as_one, NULL, EXPORT_KINDS},
    {"nvidia.com/gpu", in_cards, has_cards, EXPORT_HAMI},
    {"nvidia.com/gpu.shared", in_replicas, has_replicas, EXPORT_NONE},
};

/* ---- what containers have from before the configuration changed ---- */

/* What the card has for 1 of the name; 0: any part of it. */
static uint64_t least_of(size_t name, const struct shares *shares, const struct gpu_device *d) {
    uint64_t capacity = shares_capacity(shares, d), n = names[name].of(d, capacity);

    if (d->whole_only)
        return capacity < d->memory ? capacity : d->memory;
    return n == NODE_CAPACITY_NONE ? 0 : capacity / n;
}

/* Whether containers have less than that: kubelet would count more than is shown. */
static bool is_exceeded(size_t name, const struct shares *shares, const struct gpu_snapshot *s) {
    for (const struct slot *slot = shares->slots.slots; slot; slot = slot->hh.next)
        for (uint32_t i = 0; i < slot->grant.ndevices; i++) {
            const struct gpu_device *d = gpu_find(s, slot->grant.devices[i].uuid);

            if (slot->grant.exported == names[name].exported && d && gpu_gives_shares(d) &&
                slot->grant.devices[i].memory < least_of(name, shares, d))
                return true;
        }
    return false;
}

/* ---- as it is, and as it should be ---- */

void node_capacity_read(struct json node, struct node_capacity *ret) {
    struct json capacity = JSON_PATH(node, "status", "capacity");
    const char *owned =
        json_string_or(JSON_PATH(node, "metadata", "annotations", NODE_CAPACITY_OWNED), "");

    for (size_t i = 0; i < NODE_CAPACITY_NAMES; i++) {
        const char *text = json_string(json_get(capacity, names[i].name));

        if (!text || quantity_parse(text, strlen(text), &ret->amounts[i]) < 0)
            ret->amounts[i] = NODE_CAPACITY_NONE;
        ret->owned[i] = text_has_item(owned, names[i].name);
    }
}

static uint64_t sum_of(size_t name, const struct shares *shares, const struct gpu_snapshot *s) {
    uint64_t sum = 0;

    for (uint32_t i = 0; i < s->ndevices && sum != NODE_CAPACITY_NONE; i++) {
        const struct gpu_device *d = &s->devices[i];
        uint64_t one = gpu_gives_shares(d) ? names[name].of(d, shares_capacity(shares, d)) : 0;

        sum = one == NODE_CAPACITY_NONE ? one : sum + one;
    }
    return sum;
}

/* A name that is left to another plugin is its own; of those that are always shown, 0 is. */
void node_capacity_want(const struct shares *shares, const struct gpu_snapshot *s,
                        struct node_capacity *ret) {
    for (size_t i = 0; i < NODE_CAPACITY_NAMES; i++) {
        bool optional = names[i].configured, shown = dialect_knows(names[i].name);

        if (shown && optional)
            shown = names[i].configured(s) && !is_exceeded(i, shares, s);
        ret->amounts[i] = shown ? sum_of(i, shares, s) : optional ? NODE_CAPACITY_NONE : 0;
        ret->owned[i] = optional && ret->amounts[i] != NODE_CAPACITY_NONE;
    }
}

/* ---- the difference ---- */

/* A missing entry equals 0, and is not written. */
static bool is_same(uint64_t have, uint64_t want) {
    return have == want || (want == 0 && have == NODE_CAPACITY_NONE);
}

/* What kubelet leaves of a plugin that is gone, such as NVIDIA's, is 0, and it would refuse every
 * pod that requests the name from aliquot-scheduler. */
static bool is_leftover(const struct node_capacity *have, size_t name) {
    return have->owned[name] || (have->amounts[name] == 0 && dialect_knows(names[name].name));
}

static bool is_right(const struct node_capacity *have, const struct node_capacity *want,
                     size_t name) {
    if (want->amounts[name] != NODE_CAPACITY_NONE)
        return is_same(have->amounts[name], want->amounts[name]);
    return have->amounts[name] == NODE_CAPACITY_NONE || !is_leftover(have, name);
}

static bool same_owned(const struct node_capacity *have, const struct node_capacity *want) {
    return memcmp(have->owned, want->owned, sizeof(have->owned)) == 0;
}

bool node_capacity_differs(const struct node_capacity *have, const struct node_capacity *want) {
    for (size_t i = 0; i < NODE_CAPACITY_NAMES; i++)
        if (!is_right(have, want, i))
            return true;
    return !same_owned(have, want);
}

static void put_owned(struct json_writer *w, const struct node_capacity *want) {
    char list[256] = "";

    for (size_t i = 0; i < NODE_CAPACITY_NAMES; i++) {
        size_t len = strlen(list);

        if (want->owned[i])
            (void) snprintf(list + len, sizeof(list) - len, "%s,", names[i].name);
    }
    json_object_begin(w, "metadata");
    json_object_begin(w, "annotations");
    json_put_string(w, NODE_CAPACITY_OWNED, list[0] ? list : NULL);
    json_object_end(w);
    json_object_end(w);
}

void node_capacity_patch(const struct node_capacity *have, const struct node_capacity *want,
                         struct buf *ret) {
    struct json_writer w = {.out = ret};

    json_object_begin(&w, NULL);
    json_object_begin(&w, "status");
    json_object_begin(&w, "capacity");
    for (size_t i = 0; i < NODE_CAPACITY_NAMES; i++) {
        if (is_right(have, want, i))
            continue;
        if (want->amounts[i] == NODE_CAPACITY_NONE)
            json_put_null(&w, names[i].name);
        else
            json_put_stringf(&w, names[i].name, "%llu", (unsigned long long) want->amounts[i]);
    }
    json_object_end(&w);
    json_object_end(&w);
    if (!same_owned(have, want))
        put_owned(&w, want);
    json_object_end(&w);
}
