/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/shares/slot.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/text.h"
#include "gpu/device.h"
#include "kube/objects/dialect_export.h"
#include "model/dra.h"
#include "model/driver_capability.h"
#include "wire/json.h"
#include "wire/json_write.h"

/* The oldest version that a reader has to know. A newer agent may add members to a record without
 * another number where an older one, which ignores them, keeps within the share all the same. What
 * says whose the share is, and what it holds, is the same in every version: `version`, `podUID`,
 * `namespace`, `pod`, `container`, `devices`, `whole` and `replica`. */
#define RECORD_VERSION 1
/* With a claim: an agent that ignores it takes the share for that of the one pod. */
#define RECORD_VERSION_CLAIM 2

static void claim_done(struct slot_claim *claim) {
    if (claim)
        free(claim->pods);
    free(claim);
}

void slot_grant_done(struct slot_grant *g) {
    claim_done(g->claim);
    free(g->devices);
    free(g->whole);
    memset(g, 0, sizeof(*g));
}

int slot_grant_claim(struct slot_grant *g, const char *uid, const char *name) {
    assert(!g->claim);
    g->claim = calloc(1, sizeof(*g->claim));
    if (!g->claim)
        return -ENOMEM;
    text_copy(g->claim->uid, sizeof(g->claim->uid), uid);
    text_copy(g->claim->name, sizeof(g->claim->name), name);
    return 0;
}

int slot_claim_add(struct slot_claim *claim, const char *pod_uid) {
    void *more;

    if (claim->npods == SLOT_CLAIM_PODS_MAX)
        return -ENOSPC;
    more = realloc(claim->pods, (claim->npods + 1) * sizeof(*claim->pods));
    if (!more)
        return -ENOMEM;
    claim->pods = more;
    text_copy(claim->pods[claim->npods++], KUBE_UID_MAX, pod_uid);
    return 0;
}

static void put_claim(struct json_writer *w, const struct slot_claim *claim) {
    json_object_begin(w, "claim");
    json_put(w, "uid", claim->uid, "name", claim->name);
    if (claim->allocator != DRA_NONE)
        json_put_string(w, "allocator", dra_allocator_name((enum dra_allocator) claim->allocator));
    json_array_begin(w, "pods");
    for (uint32_t i = 0; i < claim->npods; i++)
        json_put_string(w, NULL, claim->pods[i]);
    json_array_end(w);
    json_object_end(w);
}

static void put_whole(struct json_writer *w, const struct slot_grant *g) {
    json_array_begin(w, "whole");
    for (uint32_t i = 0; i < g->nwhole; i++)
        json_put_string(w, NULL, g->whole[i].uuid);
    json_array_end(w);
}

void slot_record_encode(const struct slot_grant *g, struct buf *out) {
    struct json_writer w = {.out = out};

    json_object_begin(&w, NULL);
    json_put_u64(&w, "version", g->claim ? RECORD_VERSION_CLAIM : RECORD_VERSION);
    json_put(&w, "podUID", g->pod_uid, "namespace", g->namespace, "pod", g->pod, "container",
             g->container);
    if (g->claim)
        put_claim(&w, g->claim);
    if (g->exported != EXPORT_NONE)
        json_put_string(&w, "foreign", export_kind_name((enum export_kind) g->exported));
    if (g->driver != DRIVER_CAPABILITIES_UNSAID)
        json_put_u64(&w, "driverCapabilities", g->driver);
    json_array_begin(&w, "devices");
    for (uint32_t i = 0; i < g->ndevices; i++) {
        const struct slot_device *d = &g->devices[i];

        json_object_begin(&w, NULL);
        json_put(&w, "index", d->index, "uuid", d->uuid, "core", d->core);
        if (d->of_core > 0)
            json_put_u64(&w, "ofCore", d->of_core);
        json_put(&w, "memory", d->memory, "podCore", d->pod_core, "podMemory", d->pod_memory,
                 "physical", d->physical, "podPhysical", d->pod_physical);
        json_object_end(&w);
    }
    json_array_end(&w);
    if (g->nwhole > 0)
        put_whole(&w, g);
    if (g->replica)
        json_put_bool(&w, "replica", true);
    json_object_end(&w);
    buf_putc(out, '\n');
}

static bool read_text(struct json v, const char *key, char *ret, size_t size) {
    const char *text = json_string(json_get(v, key));

    if (!text || !text[0] || strlen(text) >= size)
        return false;
    text_copy(ret, size, text);
    return true;
}

/* Records of older agents lack it; one that only a newer agent knows is not known. */
static uint8_t read_allocator(struct json claim) {
    const char *name = json_string(json_get(claim, "allocator"));
    enum dra_allocator allocator = DRA_NONE;

    if (name)
        (void) dra_allocator_parse(name, &allocator);
    return (uint8_t) allocator;
}

/* Only shares of claims have it. */
static int read_claim(struct json v, struct slot_grant *g) {
    struct json_iter it = json_iter(json_get(v, "pods"));
    char uid[KUBE_UID_MAX], name[KUBE_NAME_MAX];
    struct json item;
    int r = 0;

    if (!json_valid(v))
        return 0;
    if (!read_text(v, "uid", uid, sizeof(uid)) || !read_text(v, "name", name, sizeof(name)) ||
        json_type(json_get(v, "pods")) != JSON_ARRAY)
        return -EBADMSG;
    r = slot_grant_claim(g, uid, name);
    if (r == 0)
        g->claim->allocator = read_allocator(v);
    while (r == 0 && json_next(&it, NULL, &item)) {
        const char *pod = json_string(item);

        r = !pod || !pod[0] || strlen(pod) >= KUBE_UID_MAX ? -EBADMSG
                                                           : slot_claim_add(g->claim, pod);
    }
    return r == -ENOSPC ? -EBADMSG : r;
}

static bool read_u32(struct json v, const char *key, uint32_t *ret) {
    uint64_t n;

    if (!json_u64(json_get(v, key), &n) || n > UINT32_MAX)
        return false;
    *ret = (uint32_t) n;
    return true;
}

/* Records of agents without oversubscription lack these. */
static bool read_physical(struct json v, struct slot_device *d) {
    struct json part = json_get(v, "physical"), total = json_get(v, "podPhysical");

    d->physical = d->memory;
    d->pod_physical = d->pod_memory;
    return (!json_valid(part) || (json_u64(part, &d->physical) && d->physical <= d->memory)) &&
           (!json_valid(total) || json_u64(total, &d->pod_physical));
}

/* Only shares of MIG instances have it. */
static bool read_of_core(struct json v, struct slot_device *d) {
    return !json_valid(json_get(v, "ofCore")) ||
           (read_u32(v, "ofCore", &d->of_core) && d->of_core <= 100);
}

static bool read_device(struct json v, struct slot_device *d) {
    return read_u32(v, "index", &d->index) && read_u32(v, "core", &d->core) &&
           read_u32(v, "podCore", &d->pod_core) && json_u64(json_get(v, "memory"), &d->memory) &&
           json_u64(json_get(v, "podMemory"), &d->pod_memory) &&
           read_text(v, "uuid", d->uuid, sizeof(d->uuid)) && read_physical(v, d) &&
           read_of_core(v, d);
}

/* Records of older agents lack them. */
static bool read_driver(struct json root, uint8_t *ret) {
    struct json value = json_get(root, "driverCapabilities");
    uint64_t bits = DRIVER_CAPABILITIES_UNSAID;

    if (json_valid(value) && (!json_u64(value, &bits) || bits > DRIVER_CAPABILITIES_ALL))
        return false;
    *ret = (uint8_t) bits;
    return true;
}

/* Records of shares lack it. */
static int read_whole(struct json list, struct slot_grant *g) {
    struct json_iter it = json_iter(list);
    struct json item;

    if (!json_valid(list))
        return 0;
    if (json_type(list) != JSON_ARRAY || json_size(list) > GPU_MAX)
        return -EBADMSG;
    g->whole = calloc(json_size(list) + 1, sizeof(*g->whole));
    while (g->whole && json_next(&it, NULL, &item)) {
        const char *uuid = json_string(item);

        if (!uuid || !uuid[0] || strlen(uuid) >= sizeof(g->whole->uuid))
            return -EBADMSG;
        text_copy(g->whole[g->nwhole++].uuid, sizeof(g->whole->uuid), uuid);
    }
    return g->whole ? 0 : -ENOMEM;
}

static int read_devices(struct json list, struct slot_grant *g) {
    struct json_iter it = json_iter(list);
    struct json item;

    if (json_type(list) != JSON_ARRAY || json_size(list) > GPU_CARDS_MAX)
        return -EBADMSG;
    g->devices = calloc(json_size(list) + 1, sizeof(*g->devices));
    while (g->devices && json_next(&it, NULL, &item))
        if (!read_device(item, &g->devices[g->ndevices++]))
            return -EBADMSG;
    return g->devices ? 0 : -ENOMEM;
}

static int read_held(struct json root, struct slot_grant *g) {
    int r = read_devices(json_get(root, "devices"), g);

    if (!json_bool(json_get(root, "replica"), &g->replica))
        g->replica = false;
    return r < 0 ? r : read_whole(json_get(root, "whole"), g);
}

/* A record of a newer agent is not removed, whatever is in it. */
static int read_newer(struct json root, struct slot_grant *g) {
    int r = read_held(root, g);

    if (r < 0)
        g->ndevices = g->nwhole = 0;
    return r == -ENOMEM ? r : 0;
}

static int read_grant(struct json root, struct slot_grant *g) {
    bool claim = json_valid(json_get(root, "claim"));
    uint32_t version;
    int r;

    if (!read_u32(root, "version", &version) || version < RECORD_VERSION ||
        !read_text(root, "podUID", g->pod_uid, sizeof(g->pod_uid)) ||
        !read_text(root, "namespace", g->namespace, sizeof(g->namespace)) ||
        !read_text(root, "pod", g->pod, sizeof(g->pod)) ||
        !read_text(root, "container", g->container, sizeof(g->container)))
        return -EBADMSG;
    g->newer = version > (claim ? RECORD_VERSION_CLAIM : RECORD_VERSION);
    if (g->newer)
        return read_newer(root, g);
    if (!read_driver(root, &g->driver))
        return -EBADMSG;
    g->exported = (uint8_t) export_kind_find(json_string(json_get(root, "foreign")));
    r = read_claim(json_get(root, "claim"), g);
    return r < 0 ? r : read_held(root, g);
}

int slot_record_decode(const char *text, size_t len, struct slot_grant *ret, struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct slot_grant g = {0};
    struct json root;
    int r;

    r = json_open(text, len, &parser, &root, err);
    if (r < 0)
        return r;
    r = read_grant(root, &g);
    if (r < 0) {
        slot_grant_done(&g);
        return err_set(err, -r, r == -ENOMEM ? "out of memory" : "not a record of a share");
    }
    *ret = g;
    return 0;
}

/* ---- from the assignment ---- */

static const struct container_request *request_of(const struct pod *pod, const char *container) {
    for (uint32_t i = 0; i < pod->request.n; i++)
        if (strcmp(pod->request.containers[i].container, container) == 0)
            return &pod->request.containers[i];
    return NULL;
}

static enum container_phase phase_of(const struct pod *pod, const char *container) {
    const struct container_request *req = request_of(pod, container);

    return req ? req->phase : CONTAINER_APP;
}

static const struct assigned_device *part_on(const struct assigned_container *c, const char *uuid) {
    for (uint32_t i = 0; i < c->ndevices; i++)
        if (strcmp(c->devices[i].uuid, uuid) == 0)
            return &c->devices[i];
    return NULL;
}

static void raise_to(struct slot_total *peak, const struct slot_total *now,
                     const struct assigned_device *part) {
    if (now->memory + part->memory > peak->memory)
        peak->memory = now->memory + part->memory;
    if (now->physical + part->physical > peak->physical)
        peak->physical = now->physical + part->physical;
    if (now->core + part->core > peak->core)
        peak->core = now->core + part->core;
}

/* The most that the pod holds of a card at any time: init containers run one after the other,
 * beside the sidecars that started before them; app containers run together, beside all sidecars.
 */
static void pod_total(const struct pod *pod, const struct assignment *a, struct slot_device *d) {
    struct slot_total now = {0}, peak = {0};

    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < a->ncontainers; i++) {
            enum container_phase phase = phase_of(pod, a->containers[i].name);
            const struct assigned_device *part = part_on(&a->containers[i], d->uuid);

            if (!part || (pass == 0) == (phase == CONTAINER_APP))
                continue;
            raise_to(&peak, &now, part);
            if (phase != CONTAINER_INIT) {
                now.memory += part->memory;
                now.physical += part->physical;
                now.core += part->core;
            }
        }
    }
    d->pod_memory = peak.memory;
    d->pod_physical = peak.physical;
    d->pod_core = peak.core;
}

static void name_container(struct slot_grant *g, const struct pod *pod, const char *container) {
    text_copy(g->pod_uid, sizeof(g->pod_uid), pod->uid);
    text_copy(g->namespace, sizeof(g->namespace), pod->namespace);
    text_copy(g->pod, sizeof(g->pod), pod->name);
    text_copy(g->container, sizeof(g->container), container);
}

int slot_grant_whole(const struct pod *pod, const char *container, const char *const *uuids,
                     size_t n, struct slot_grant *ret, struct err *err) {
    struct slot_grant g = {.whole = calloc(n + 1, sizeof(*g.whole))};

    if (!g.whole)
        return err_set(err, ENOMEM, "out of memory");
    for (size_t i = 0; i < n; i++) {
        if (strlen(uuids[i]) >= sizeof(g.whole->uuid)) {
            slot_grant_done(&g);
            return err_set(err, ENAMETOOLONG, "%.60s... is no UUID", uuids[i]);
        }
        text_copy(g.whole[g.nwhole++].uuid, sizeof(g.whole->uuid), uuids[i]);
    }
    name_container(&g, pod, container);
    *ret = g;
    return 0;
}

int slot_grant_make(const struct pod *pod, const struct assignment *a, const char *container,
                    struct slot_grant *ret, struct err *err) {
    const struct assigned_container *part = assignment_find(a, container);
    const struct container_request *req = request_of(pod, container);
    struct slot_grant g = {
        .exported = (uint8_t) (req ? dialects[req->dialect].exported : EXPORT_NONE),
        .driver = req ? req->driver : DRIVER_CAPABILITIES_UNSAID,
    };

    if (!part)
        return err_set(err, ENOENT, "the assignment has no part for container %s", container);
    g.devices = calloc(part->ndevices + 1, sizeof(*g.devices));
    if (!g.devices)
        return err_set(err, ENOMEM, "out of memory");
    name_container(&g, pod, container);
    for (uint32_t i = 0; i < part->ndevices; i++) {
        struct slot_device *d = &g.devices[g.ndevices++];

        d->index = part->devices[i].index;
        d->core = part->devices[i].core;
        d->memory = part->devices[i].memory;
        d->physical = part->devices[i].physical;
        text_copy(d->uuid, sizeof(d->uuid), part->devices[i].uuid);
        pod_total(pod, a, d);
    }
    *ret = g;
    return 0;
}
