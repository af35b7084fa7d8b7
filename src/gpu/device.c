/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/device.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/step.h"
#include "base/text.h"
#include "wire/json_fields.h"

/* For a person, and in the file of gpu_snapshot_encode(): there, a text that changes makes the
 * files of former versions unreadable. */
static const char *const kinds[GPU_KINDS] = {
    [GPU_CARD] = "GPU",
    [GPU_MIG_INSTANCE] = "MIG instance",
    [GPU_VGPU] = "vGPU",
    [GPU_REMOTE] = "remote GPU",
};

const char *gpu_kind_name(enum gpu_kind kind) {
    return kinds[kind];
}

bool gpu_kind_ok(uint32_t kind, const char *parent, bool divided) {
    return kind < GPU_KINDS && (kind != GPU_MIG_INSTANCE || parent[0]) &&
           (kind == GPU_CARD ? !parent[0] : !divided);
}

bool gpu_mig_ok(const struct gpu_mig *mig) {
    return mig->gi < GPU_MIG_IDS && mig->ci < GPU_MIG_IDS &&
           memchr(mig->profile, 0, sizeof(mig->profile));
}

const struct gpu_device *gpu_find(const struct gpu_snapshot *s, const char *uuid) {
    for (uint32_t i = 0; i < s->ndevices; i++)
        if (strcmp(s->devices[i].uuid, uuid) == 0)
            return &s->devices[i];
    return NULL;
}

const struct gpu_device *gpu_find_card(const struct gpu_snapshot *s, const char *uuid) {
    const struct gpu_device *d = gpu_find(s, uuid);

    return d && gpu_has_limits(d) ? d : NULL;
}

int64_t gpu_numa(const struct gpu_snapshot *s, const struct gpu_device *d) {
    if (d && gpu_is_part(d))
        d = gpu_find(s, d->parent);
    return d && d->links.known > 0 ? d->links.numa : -1;
}

void gpu_copy_identity(struct gpu_device *to, const struct gpu_device *from) {
    memcpy(to, from, offsetof(struct gpu_device, links));
}

void gpu_snapshot_done(struct gpu_snapshot *s) {
    for (uint32_t i = 0; i < s->ndevices; i++)
        free(s->devices[i].processes);
    /* Not the whole: most of it has never been used, and takes no memory. */
    memset(s, 0, offsetof(struct gpu_snapshot, devices) + s->ndevices * sizeof(s->devices[0]));
}

void gpu_snapshot_move(struct gpu_snapshot *to, struct gpu_snapshot *from) {
    gpu_snapshot_done(to);
    memcpy(to, from,
           offsetof(struct gpu_snapshot, devices) + from->ndevices * sizeof(from->devices[0]));
    from->ndevices = 0;
    gpu_snapshot_done(from);
}

/* The numbers of a MIG instance in the file. */
static const struct json_field mig_numbers[] = {
    JSON_FIELD(struct gpu_mig, "gi", gi),
    JSON_FIELD(struct gpu_mig, "ci", ci),
    JSON_FIELD(struct gpu_mig, "profileID", profile_id),
    JSON_FIELD(struct gpu_mig, "start", start),
    JSON_FIELD(struct gpu_mig, "size", size),
    JSON_FIELD(struct gpu_mig, "giSlices", gi_slices),
    JSON_FIELD(struct gpu_mig, "ciSlices", ci_slices),
    JSON_FIELD(struct gpu_mig, "cardSlices", card_slices),
    JSON_FIELD(struct gpu_mig, "multiprocessors", multiprocessors),
    JSON_FIELD(struct gpu_mig, "copyEngines", copy_engines),
    JSON_FIELD(struct gpu_mig, "decoders", decoders),
    JSON_FIELD(struct gpu_mig, "encoders", encoders),
    JSON_FIELD(struct gpu_mig, "jpegs", jpegs),
    JSON_FIELD(struct gpu_mig, "ofas", ofas),
};

/* The traits of a card in the file. */
static const struct json_field trait_numbers[] = {
    JSON_FIELD(struct gpu_traits, "cudaVersion", cuda_version),
    JSON_FIELD(struct gpu_traits, "computeMajor", compute_major),
    JSON_FIELD(struct gpu_traits, "computeMinor", compute_minor),
    JSON_FIELD(struct gpu_traits, "migCapable", mig_capable),
    JSON_FIELD(struct gpu_traits, "vgpu", vgpu),
    JSON_FIELD(struct gpu_traits, "unlicensed", unlicensed),
    JSON_FIELD(struct gpu_traits, "fabricAttached", fabric_attached),
    JSON_FIELD(struct gpu_traits, "fabricClique", fabric_clique),
    JSON_FIELD(struct gpu_traits, "fabricCluster0", fabric_cluster[0]),
    JSON_FIELD(struct gpu_traits, "fabricCluster1", fabric_cluster[1]),
    JSON_FIELD(struct gpu_traits, "fabricCluster2", fabric_cluster[2]),
    JSON_FIELD(struct gpu_traits, "fabricCluster3", fabric_cluster[3]),
};

static void mig_encode(struct json_writer *w, const struct gpu_mig *mig) {
    json_object_begin(w, "mig");
    json_put_string(w, "profile", mig->profile);
    JSON_PUT_FIELDS(w, mig_numbers, mig);
    json_object_end(w);
}

void gpu_snapshot_encode(const struct gpu_snapshot *s, struct buf *out) {
    struct json_writer w = {.out = out};

    json_object_begin(&w, NULL);
    json_put_string(&w, "driver", s->driver_version);
    json_array_begin(&w, "devices");
    for (uint32_t i = 0; i < s->ndevices; i++) {
        const struct gpu_device *d = &s->devices[i];

        step_end();
        json_object_begin(&w, NULL);
        json_put(&w, "kind", kinds[d->kind], "parent", d->parent, "divided", d->divided);
        json_put(&w, "index", d->index, "minor", (int64_t) d->minor, "uuid", d->uuid, "model",
                 d->model, "pci", d->pci, "memory", d->memory, "context", d->context_bytes);
        json_object_begin(&w, "traits");
        JSON_PUT_FIELDS(&w, trait_numbers, &d->traits);
        json_object_end(&w);
        if (d->kind == GPU_MIG_INSTANCE)
            mig_encode(&w, &d->mig);
        json_object_end(&w);
    }
    json_array_end(&w);
    json_object_end(&w);
}

static void json_copy(char *to, size_t size, struct json v) {
    const char *text = json_string(v);

    text_copy(to, size, text ? text : "");
}

/* Numbers that are not there are 0: a former version has not written them. */
static bool mig_decode(struct json v, struct gpu_mig *ret) {
    json_copy(ret->profile, sizeof(ret->profile), json_get(v, "profile"));
    return JSON_READ_FIELDS(v, mig_numbers, ret) && gpu_mig_ok(ret);
}

/* Lists of former versions have no kind: all of theirs are cards. */
static bool kind_decode(struct json v, struct gpu_device *ret) {
    const char *name = json_string(json_get(v, "kind"));
    unsigned kind = 0;

    while (name && kind < GPU_KINDS && strcmp(kinds[kind], name) != 0)
        kind++;
    if (kind == GPU_KINDS)
        return false;
    ret->kind = (enum gpu_kind) kind;
    json_copy(ret->parent, sizeof(ret->parent), json_get(v, "parent"));
    if (!json_bool(json_get(v, "divided"), &ret->divided))
        ret->divided = false;
    return gpu_kind_ok(ret->kind, ret->parent, ret->divided);
}

static int device_decode(struct json v, struct gpu_device *ret) {
    struct gpu_device d = {.recovery_action = GPU_NOT_TOLD};
    uint64_t index;
    int64_t minor;

    if (!json_u64(json_get(v, "index"), &index) || index >= GPU_CARDS_MAX ||
        !json_i64(json_get(v, "minor"), &minor) || minor < 0 || minor > INT32_MAX ||
        !json_u64(json_get(v, "memory"), &d.memory) || !kind_decode(v, &d) ||
        !mig_decode(json_get(v, "mig"), &d.mig) ||
        !JSON_READ_FIELDS(json_get(v, "traits"), trait_numbers, &d.traits))
        return -EINVAL;
    d.index = (uint32_t) index;
    d.minor = (int32_t) minor;
    if (!json_u64(json_get(v, "context"), &d.context_bytes))
        d.context_bytes = 0; /* not known when it was written */
    json_copy(d.uuid, sizeof(d.uuid), json_get(v, "uuid"));
    json_copy(d.model, sizeof(d.model), json_get(v, "model"));
    json_copy(d.pci, sizeof(d.pci), json_get(v, "pci"));
    if (!d.uuid[0])
        return -EINVAL;
    d.saved = true;
    text_copy(d.reason, sizeof(d.reason), "not seen since the agent started");
    *ret = d;
    return 0;
}

int gpu_snapshot_decode(const char *text, size_t len, struct gpu_snapshot *ret, struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct gpu_snapshot s = {0};
    struct json root, item;
    struct json_iter it;
    int r;

    r = json_open(text, len, &parser, &root, err);
    if (r < 0)
        return r;
    json_copy(s.driver_version, sizeof(s.driver_version), json_get(root, "driver"));
    it = json_iter(json_get(root, "devices"));
    while (json_next(&it, NULL, &item)) {
        struct gpu_device *d = &s.devices[s.ndevices];

        if (s.ndevices >= GPU_MAX || device_decode(item, d) < 0 || gpu_find(&s, d->uuid))
            return err_set(err, EINVAL, "device %u of the list is malformed", s.ndevices);
        s.ndevices++;
    }
    *ret = s;
    return 0;
}
