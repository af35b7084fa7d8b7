/* SPDX-License-Identifier: Apache-2.0 */

/* Classes, the devices of the slices, and nodes, as the watches show them. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "kube/api/field.h"
#include "scheduler/dra/dra_internal.h"

#define TAINTS_MAX ((size_t) 64 << 10)

/* ---- classes ---- */

struct dra_class *dra_class_find(const struct dra *d, const char *name) {
    struct dra_class *class;
    HASH_FIND_STR(d->classes, name, class);
    return class;
}

static void note_class(struct dra *d) {
    d->classes_taken = ++d->taken;
    d->news++;
}

void dra_class_free(struct dra *d, struct dra_class *class) {
    HASH_DEL(d->classes, class);
    device_class_done(&class->object);
    free(class);
    note_class(d);
}

int dra_see_class(struct dra *d, struct json object, bool gone, struct err *err) {
    struct device_class read;
    int r = device_class_parse(object, &read, err);
    if (r < 0)
        return r;
    struct dra_class *class = dra_class_find(d, read.name);
    if (class)
        dra_class_free(d, class);
    class = gone ? NULL : calloc(1, sizeof(*class));
    if (class) {
        class->object = read;
        class->listed = true;
        HASH_ADD_STR(d->classes, object.name, class);
        class = hash_added_or_freed(class);
        note_class(d);
    }
    if (!class)
        device_class_done(&read);
    return class || gone ? 0 : err_errno(err, ENOMEM, "cannot keep a DeviceClass");
}

/* ---- slices ---- */

static void drop_device(struct dra *d, struct dra_device *device) {
    d->others -= device->at && device->at->by_scheduler;
    HASH_DEL(d->devices, device);
    free(device);
}

/* The slices of a node name cards of that node only. */
static struct dra_device_key make_key(const char *node, const char *uuid) {
    struct dra_device_key key;
    char *end = stpcpy(key.text, uuid);
    *end++ = '/';
    (void) stpcpy(end, node);
    return key;
}

static struct dra_device *find_device(const struct dra *d, const struct dra_device_key *key) {
    struct dra_device *device;
    HASH_FIND_STR(d->devices, key->text, device);
    return device;
}

const struct dra_device *dra_device_find(const struct dra *d, const char *node, const char *uuid) {
    const struct dra_device_key key = make_key(node, uuid);
    return find_device(d, &key);
}

static struct dra_device *get_device(struct dra *d, const char *node, const char *uuid) {
    const struct dra_device_key key = make_key(node, uuid);
    struct dra_device *device = find_device(d, &key);
    if (device || !(device = calloc(1, sizeof(*device))))
        return device;
    device->key = key;
    HASH_ADD_STR(d->devices, key.text, device);
    return hash_added_or_freed(device);
}

static void add_device(struct dra *d, const struct resource_slice *slice,
                       const struct slice_device *at) {
    struct dra_device *device = at->uuid[0] ? get_device(d, slice->node, at->uuid) : NULL;
    if (!device || (device->at && device->slice->generation > slice->generation))
        return; /* without memory it is not given out */
    d->others += at->by_scheduler;
    d->others -= device->at && device->at->by_scheduler;
    device->slice = slice;
    device->at = at;
}

/* While the slices of a node are away, as after a restart of kubelet, the GPU objects keep pods off
 * the cards of kube-scheduler's: they offer no shares. */
static void remove_device(struct dra *d, const struct resource_slice *slice, const char *uuid) {
    const struct dra_device_key key = make_key(slice->node, uuid);
    struct dra_device *device = find_device(d, &key);
    if (device && device->slice == slice)
        drop_device(d, device);
}

/* The pool of a node has its name, and is in its slices only. */
static bool is_of_pool(const struct resource_slice *slice, const char *pool) {
    return strcmp(slice->pool, pool) == 0 && strcmp(slice->node, pool) == 0;
}

static void add_devices(struct dra *d, const struct resource_slice *slice) {
    for (uint32_t i = 0; is_of_pool(slice, slice->node) && i < slice->ndevices; i++)
        add_device(d, slice, &slice->devices[i]);
}

/* What other slices of the node have of the same devices counts from then on. */
void dra_slice_free(struct dra *d, struct dra_slice *slice) {
    for (uint32_t i = 0; i < slice->object.ndevices; i++)
        remove_device(d, &slice->object, slice->object.devices[i].uuid);
    HASH_DEL(d->slices, slice);
    for (struct dra_slice *other = d->slices; other; other = other->hh.next)
        if (strcmp(other->object.node, slice->object.node) == 0)
            add_devices(d, &other->object);
    resource_slice_done(&slice->object);
    free(slice);
}

/* Whether a device that kube-scheduler allocated is Aliquot's from now on. */
static bool is_handed_over(const struct resource_slice *before, const struct resource_slice *now) {
    for (uint32_t i = 0; i < before->ndevices; i++) {
        const struct slice_device *device = before->devices[i].by_scheduler
                                                ? resource_slice_find(now, before->devices[i].name)
                                                : NULL;
        if (device && !device->by_scheduler)
            return true;
    }
    return false;
}

int dra_see_slice(struct dra *d, struct json object, bool gone, struct err *err) {
    struct resource_slice read;
    struct dra_slice *slice;
    int r = resource_slice_parse(object, &read, err);
    if (r < 0)
        return r;
    struct state_node *node = state_node_find(d->state, read.node);
    if (node)
        state_touch(node);
    HASH_FIND_STR(d->slices, read.name, slice);
    if (slice && !gone && is_handed_over(&slice->object, &read))
        d->held_ms = 0; /* what claims have of it has not counted */
    if (slice)
        dra_slice_free(d, slice);
    slice = gone ? NULL : calloc(1, sizeof(*slice));
    if (slice) {
        slice->object = read;
        slice->listed = true;
        HASH_ADD_STR(d->slices, object.name, slice);
        slice = hash_added_or_freed(slice);
    }
    if (slice)
        add_devices(d, &slice->object);
    else
        resource_slice_done(&read);
    d->unheld = true; /* claims may have waited for it */
    d->devices_version++;
    d->news++;
    return slice || gone ? 0 : err_errno(err, ENOMEM, "cannot keep a ResourceSlice");
}

static const struct slice_device *find_in(const struct dra_slice *slice, const char *pool,
                                          const char *device) {
    return slice && is_of_pool(&slice->object, pool) ? resource_slice_find(&slice->object, device)
                                                     : NULL;
}

/* First by the names that slices of a pool have. */
const struct slice_device *dra_device_of(const struct dra *d, const char *pool,
                                         const char *device) {
    const struct slice_device *found = NULL;
    for (uint32_t i = 0; !found && i < POOL_DEVICES_MAX / SLICE_DEVICES_MAX; i++) {
        const struct dra_slice *slice;
        char name[KUBE_NAME_MAX];
        resource_slice_name(pool, i, name);
        HASH_FIND_STR(d->slices, name, slice);
        found = find_in(slice, pool, device);
    }
    for (const struct dra_slice *slice = d->slices; !found && slice; slice = slice->hh.next)
        found = find_in(slice, pool, device);
    return found;
}

bool dra_device_is_gone(const struct dra *d, const char *pool, const char *device) {
    uint64_t newest = 0, seen = 0, all = UINT64_MAX;
    for (const struct dra_slice *slice = d->slices; slice; slice = slice->hh.next) {
        if (!is_of_pool(&slice->object, pool) || slice->object.generation < newest)
            continue;
        seen = slice->object.generation > newest ? 1 : seen + 1;
        newest = slice->object.generation;
        all = slice->object.nslices;
    }
    return seen >= all && !dra_device_of(d, pool, device);
}

/* ---- nodes ---- */

struct dra_node *dra_node_find(const struct dra *d, const char *name) {
    struct dra_node *node;
    HASH_FIND_STR(d->nodes, name, node);
    return node;
}

void dra_node_free(struct dra *d, struct dra_node *node) {
    HASH_DEL(d->nodes, node);
    free(node->labels);
    free(node->taints);
    free(node);
    d->news++;
}

static int read_taints(struct json list, char **ret) {
    _cleanup_buf_ struct buf text = BUF_INIT(TAINTS_MAX);
    if (json_size(list) == 0)
        return 0;
    json_print(&text, list);
    *ret = buf_error(&text) < 0 ? NULL : strdup(buf_str(&text));
    return *ret ? 0 : -ENOMEM;
}

static bool same_text(const char *a, const char *b) {
    return a && b ? strcmp(a, b) == 0 : a == b;
}

int dra_see_node(struct dra *d, struct json object, bool gone, struct err *err) {
    _cleanup_free_ char *labels = NULL, *taints = NULL;
    char name[KUBE_NAME_MAX];
    bool unschedulable = false;
    if (field_copy(JSON_PATH(object, "metadata", "name"), name, sizeof(name)) < 0)
        return err_set(err, EINVAL, "not a Node: it has no name");
    struct dra_node *node = dra_node_find(d, name);
    if (gone) {
        if (node)
            dra_node_free(d, node);
        return 0;
    }
    (void) json_bool(JSON_PATH(object, "spec", "unschedulable"), &unschedulable);
    int r = labels_read(JSON_PATH(object, "metadata", "labels"), &labels);
    if (r == 0)
        r = read_taints(JSON_PATH(object, "spec", "taints"), &taints);
    if (r == 0 && !node && (node = calloc(1, sizeof(*node)))) {
        memcpy(node->name, name, sizeof(name));
        HASH_ADD_STR(d->nodes, name, node);
        node = hash_added_or_freed(node);
        d->news++;
    }
    if (r < 0 || !node)
        return err_errno(err, ENOMEM, "cannot keep a node");
    node->listed = true;
    if (unschedulable == node->unschedulable && same_text(labels, node->labels) &&
        same_text(taints, node->taints))
        return 0;
    free(node->labels);
    free(node->taints);
    node->labels = take_ptr(labels);
    node->taints = take_ptr(taints);
    node->unschedulable = unschedulable;
    d->news++;
    return 0;
}
