/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/objects/resource_slice.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/text.h"
#include "base/units.h"
#include "kube/api/field.h"
#include "kube/api/object_write.h"
#include "model/dialect.h"
#include "model/dra.h"
#include "model/quantity.h"
#include "wire/json_write.h"

#define INDEX_MAX 4095

void slice_text(char to[static SLICE_TEXT_MAX], const char *from) {
    text_copy(to, SLICE_TEXT_MAX, from);
}

/* ---- out ---- */

const struct slice_text_attribute slice_texts[SLICE_TEXTS] = {
    {DRA_UUID, offsetof(struct slice_device, uuid)},
    {DRA_MODEL, offsetof(struct slice_device, model)},
    {DRA_PROFILE, offsetof(struct slice_device, profile)},
    {DRA_PARENT_UUID, offsetof(struct slice_device, parent)},
    {DRA_DRIVER_VERSION, offsetof(struct slice_device, driver_version)},
};

static void put_text(struct json_writer *w, const char *name, const char *text) {
    if (!*text)
        return;
    json_object_begin(w, name);
    json_put_string(w, "string", text);
    json_object_end(w);
}

static void put_int(struct json_writer *w, const char *name, int64_t value) {
    json_object_begin(w, name);
    json_put_i64(w, "int", value);
    json_object_end(w);
}

static void put_attributes(struct json_writer *w, const struct slice_device *d) {
    json_object_begin(w, "attributes");
    for (size_t i = 0; i < SLICE_TEXTS; i++)
        put_text(w, slice_texts[i].name, (const char *) d + slice_texts[i].at);
    put_text(w, DRA_ALLOCATOR, d->by_scheduler ? DRA_BY_KUBE_SCHEDULER : DRA_BY_ALIQUOT);
    put_int(w, DRA_INDEX, d->index);
    if (d->numa >= 0)
        put_int(w, DRA_NUMA, d->numa);
    json_object_end(w);
}

/* Those of the media engines, in the order of mig/card.h. */
static const char *const engines[SLICE_ENGINES] = {"decoders", "encoders", "jpegs", "ofas"};
#define MEMORY_SLICE "memory-slice-"
#define MEMORY_SLICES 32

static void put_counter(struct json_writer *w, const char *name, uint32_t value) {
    json_object_begin(w, name);
    json_put_stringf(w, "value", "%" PRIu32, value);
    json_object_end(w);
}

static void put_counters(struct json_writer *w, const char *key, const struct slice_counters *c) {
    char name[sizeof(MEMORY_SLICE) + 8];

    json_object_begin(w, NULL);
    json_put_string(w, key, c->name);
    json_object_begin(w, "counters");
    for (unsigned i = 0; i < MEMORY_SLICES; i++) {
        (void) snprintf(name, sizeof(name), MEMORY_SLICE "%u", i);
        if (c->slices >> i & 1)
            put_counter(w, name, 1);
    }
    for (size_t i = 0; i < SLICE_ENGINES; i++)
        if (c->engines[i] > 0)
            put_counter(w, engines[i], c->engines[i]);
    json_object_end(w);
    json_object_end(w);
}

/* What a request does not name is all of the device. */
static void put_capacity(struct json_writer *w, const char *name, bool shared, uint64_t value,
                         uint64_t step, uint64_t least) {
    json_object_begin(w, name);
    json_put_stringf(w, "value", "%" PRIu64, value);
    if (shared) {
        json_object_begin(w, "requestPolicy");
        json_put_stringf(w, "default", "%" PRIu64, value);
        json_object_begin(w, "validRange");
        json_put_stringf(w, "min", "%" PRIu64, least);
        json_put_stringf(w, "step", "%" PRIu64, step);
        json_put_stringf(w, "max", "%" PRIu64, value);
        json_object_end(w);
        json_object_end(w);
    }
    json_object_end(w);
}

static void put_taints(struct json_writer *w, const struct slice_device *d) {
    if (d->ntaints == 0)
        return;
    json_array_begin(w, "taints");
    for (uint32_t i = 0; i < d->ntaints; i++) {
        json_object_begin(w, NULL);
        json_put_string(w, "key", d->taints[i].key);
        json_put_string(w, "value", d->taints[i].value);
        json_put_string(w, "effect", d->taints[i].evicts ? "NoExecute" : "NoSchedule");
        json_object_end(w);
    }
    json_array_end(w);
}

static void put_device(struct json_writer *w, const struct slice_device *d) {
    json_object_begin(w, NULL);
    json_put_string(w, "name", d->name);
    if (d->shared)
        json_put_bool(w, "allowMultipleAllocations", true);
    put_attributes(w, d);
    json_object_begin(w, "capacity");
    put_capacity(w, DRA_CORE, d->shared, d->core, 1, 0);
    put_capacity(w, DRA_MEMORY, d->shared, d->memory / MIB * MIB, MIB, MIB);
    json_object_end(w);
    if (d->uses.name[0]) {
        json_array_begin(w, "consumesCounters");
        put_counters(w, "counterSet", &d->uses);
        json_array_end(w);
    }
    put_taints(w, d);
    json_object_end(w);
}

/* The slices with counters. */
static uint32_t counter_slices(const struct slice_pool *pool) {
    return (pool->nsets + SLICE_SETS_MAX - 1) / SLICE_SETS_MAX;
}

uint32_t resource_slice_count(const struct slice_pool *pool) {
    uint32_t slices = (pool->ndevices + SLICE_DEVICES_MAX - 1) / SLICE_DEVICES_MAX;

    return counter_slices(pool) + (slices > 0 ? slices : 1);
}

void resource_slice_name(const char *node, uint32_t slice, char ret[static KUBE_NAME_MAX]) {
    int n = snprintf(ret, KUBE_NAME_MAX, "%s-" DRA_DRIVER "-%" PRIu32, node, slice);

    if (n < 0 || n >= KUBE_NAME_MAX)
        (void) snprintf(ret, KUBE_NAME_MAX, DRA_DRIVER "-%016" PRIx64 "-%" PRIu32,
                        hash_bytes(HASH_START, node, strlen(node)), slice);
}

/* What a slice has of a list: from `first` up to `end`. */
struct range {
    uint32_t first, end;
};

static struct range range_of(uint32_t slice, uint32_t each, uint32_t n) {
    uint32_t first = slice * each, end = first + each;

    return (struct range){first < n ? first : n, end < n ? end : n};
}

static struct range sets_of(const struct slice_pool *pool, uint32_t slice) {
    return range_of(slice, SLICE_SETS_MAX, pool->nsets);
}

static struct range devices_of(const struct slice_pool *pool, uint32_t slice) {
    uint32_t before = counter_slices(pool);

    return slice < before ? (struct range){0, 0}
                          : range_of(slice - before, SLICE_DEVICES_MAX, pool->ndevices);
}

void resource_slice_encode(const struct slice_pool *pool, uint32_t slice, const char *version,
                           struct buf *out) {
    const struct range devices = devices_of(pool, slice), sets = sets_of(pool, slice);
    struct json_writer w = {.out = out};
    char name[KUBE_NAME_MAX];

    resource_slice_name(pool->node, slice, name);
    object_begin(&w, "resource.k8s.io/v1", "ResourceSlice", name, NULL);
    if (version)
        json_put_string(&w, "resourceVersion", version);
    if (pool->node_uid[0])
        object_put_owner(&w, "Node", pool->node, pool->node_uid, true);
    json_object_end(&w);
    json_object_begin(&w, "spec");
    json_put(&w, "driver", DRA_DRIVER, "nodeName", pool->node);
    json_object_begin(&w, "pool");
    json_put(&w, "name", pool->node, "generation", pool->generation, "resourceSliceCount",
             resource_slice_count(pool));
    json_object_end(&w);
    json_array_begin(&w, sets.end > sets.first ? "sharedCounters" : "devices");
    for (uint32_t i = sets.first; i < sets.end; i++)
        put_counters(&w, "name", &pool->sets[i]);
    for (uint32_t i = devices.first; i < devices.end; i++)
        put_device(&w, &pool->devices[i]);
    json_array_end(&w);
    json_object_end(&w);
    json_object_end(&w);
}

/* ---- in ---- */

static int read_texts(struct json attributes, struct slice_device *d) {
    for (size_t i = 0; i < SLICE_TEXTS; i++)
        if (field_copy_optional(JSON_PATH(attributes, slice_texts[i].name, "string"),
                                (char *) d + slice_texts[i].at, SLICE_TEXT_MAX) < 0)
            return -EINVAL;
    return 0;
}

static uint64_t read_capacity(struct json device, const char *name) {
    const char *text = json_string(JSON_PATH(device, "capacity", name, "value"));
    uint64_t value;

    return text && quantity_parse(text, strlen(text), &value) == 0 ? value : 0;
}

static void read_numbers(struct json attributes, struct slice_device *d) {
    uint64_t n;

    d->numa = -1;
    if (json_u64(JSON_PATH(attributes, DRA_INDEX, "int"), &n) && n <= INDEX_MAX)
        d->index = (uint32_t) n;
    if (json_u64(JSON_PATH(attributes, DRA_NUMA, "int"), &n) && n <= INT8_MAX)
        d->numa = (int8_t) n;
}

static int read_taints(struct json list, struct slice_device *d) {
    struct json_iter it = json_iter(list);
    struct json item;

    while (json_next(&it, NULL, &item)) {
        struct slice_taint *taint = &d->taints[d->ntaints];

        if (d->ntaints == SLICE_TAINTS_MAX ||
            field_copy(json_get(item, "key"), taint->key, sizeof(taint->key)) < 0 ||
            field_copy_optional(json_get(item, "value"), taint->value, sizeof(taint->value)) < 0)
            return -EINVAL;
        taint->evicts = json_is_string(json_get(item, "effect"), "NoExecute");
        d->ntaints++;
    }
    return 0;
}

static bool is_read(const struct slice_device *d, const char *name, struct json value) {
    uint64_t n;

    for (size_t i = 0; i < SLICE_TEXTS; i++)
        if (strcmp(name, slice_texts[i].name) == 0)
            return *((const char *) d + slice_texts[i].at) != '\0';
    if (strcmp(name, DRA_ALLOCATOR) == 0)
        return json_is_string(json_get(value, "string"),
                              d->by_scheduler ? DRA_BY_KUBE_SCHEDULER : DRA_BY_ALIQUOT);
    if (strcmp(name, DRA_INDEX) == 0)
        return json_u64(json_get(value, "int"), &n) && n == d->index;
    return strcmp(name, DRA_NUMA) == 0 && d->numa >= 0;
}

/* Whether all attributes and capacities are kept, and those that every device has are there. */
static bool all_is_read(const struct slice_device *d, struct json object) {
    struct json attributes = json_get(object, "attributes");
    struct json_iter it = json_iter(attributes);
    const char *name;
    struct json value;

    while (json_next(&it, &name, &value))
        if (!name || !is_read(d, name, value))
            return false;
    return json_valid(json_get(attributes, DRA_INDEX)) &&
           json_valid(json_get(attributes, DRA_ALLOCATOR)) &&
           json_valid(JSON_PATH(object, "capacity", DRA_CORE)) &&
           json_valid(JSON_PATH(object, "capacity", DRA_MEMORY)) &&
           json_size(json_get(object, "capacity")) == 2;
}

static uint32_t read_counter(struct json counters, const char *name) {
    const char *text = json_string(JSON_PATH(counters, name, "value"));
    uint64_t value;

    return text && quantity_parse(text, strlen(text), &value) == 0 && value <= UINT32_MAX
               ? (uint32_t) value
               : 0;
}

static int read_counters(struct json object, const char *key, struct slice_counters *ret) {
    struct json counters = json_get(object, "counters");
    char name[sizeof(MEMORY_SLICE) + 8];

    for (unsigned i = 0; i < MEMORY_SLICES; i++) {
        (void) snprintf(name, sizeof(name), MEMORY_SLICE "%u", i);
        ret->slices |= (uint32_t) (read_counter(counters, name) > 0) << i;
    }
    for (size_t i = 0; i < SLICE_ENGINES; i++)
        ret->engines[i] = read_counter(counters, engines[i]);
    return field_copy(json_get(object, key), ret->name, sizeof(ret->name));
}

static int read_sets(struct json list, struct resource_slice *s) {
    struct json_iter it = json_iter(list);
    struct json item;

    while (json_next(&it, NULL, &item))
        if (s->nsets == SLICE_SETS_MAX || read_counters(item, "name", &s->sets[s->nsets++]) < 0)
            return -EINVAL;
    return 0;
}

/* We write at most one set. */
static int read_uses(struct json list, struct slice_device *d) {
    struct json_iter it = json_iter(list);
    struct json item;

    return json_next(&it, NULL, &item) ? read_counters(item, "counterSet", &d->uses) : 0;
}

static int read_device(struct json object, struct slice_device *d) {
    struct json attributes = json_get(object, "attributes");
    uint64_t core = read_capacity(object, DRA_CORE);

    if (field_copy(json_get(object, "name"), d->name, sizeof(d->name)) < 0 ||
        read_texts(attributes, d) < 0 || core > CORE_PER_CARD ||
        read_uses(json_get(object, "consumesCounters"), d) < 0)
        return -EINVAL;
    (void) json_bool(json_get(object, "allowMultipleAllocations"), &d->shared);
    d->by_scheduler =
        json_is_string(JSON_PATH(attributes, DRA_ALLOCATOR, "string"), DRA_BY_KUBE_SCHEDULER);
    read_numbers(attributes, d);
    d->core = (uint32_t) core;
    d->memory = read_capacity(object, DRA_MEMORY);
    d->other = !all_is_read(d, object);
    return read_taints(json_get(object, "taints"), d);
}

static int read_devices(struct json list, struct resource_slice *s) {
    size_t n = json_size(list);
    struct json_iter it = json_iter(list);
    struct json item;

    if (n == 0)
        return 0;
    if (json_type(list) != JSON_ARRAY || n > POOL_DEVICES_MAX)
        return -EINVAL;
    s->devices = calloc(n, sizeof(*s->devices));
    if (!s->devices)
        return -ENOMEM;
    while (s->ndevices < n && json_next(&it, NULL, &item))
        if (read_device(item, &s->devices[s->ndevices++]) < 0)
            return -EINVAL;
    return 0;
}

int resource_slice_parse(struct json object, struct resource_slice *ret, struct err *err) {
    _cleanup_(resource_slice_done) struct resource_slice s = {0};
    struct json meta = json_get(object, "metadata"), spec = json_get(object, "spec");
    struct json pool = json_get(spec, "pool");
    int r;

    if (!json_is_string(json_get(spec, "driver"), DRA_DRIVER))
        return err_set(err, EINVAL, "not a ResourceSlice of " DRA_DRIVER);
    if (field_copy(json_get(meta, "name"), s.name, sizeof(s.name)) < 0 ||
        field_copy_optional(json_get(meta, "uid"), s.uid, sizeof(s.uid)) < 0 ||
        field_copy_optional(json_get(meta, "resourceVersion"), s.version, sizeof(s.version)) < 0 ||
        field_copy(json_get(spec, "nodeName"), s.node, sizeof(s.node)) < 0 ||
        field_copy(json_get(pool, "name"), s.pool, sizeof(s.pool)) < 0 ||
        !json_u64(json_get(pool, "generation"), &s.generation) ||
        !json_u64(json_get(pool, "resourceSliceCount"), &s.nslices))
        return err_set(err, EINVAL, "not a ResourceSlice of a node: its name, node or pool is bad");
    r = read_devices(json_get(spec, "devices"), &s);
    if (r == -EINVAL)
        return err_set(err, EINVAL, "ResourceSlice %s has a bad device", s.name);
    if (r < 0)
        return err_errno(err, -r, "cannot keep a ResourceSlice");
    if (read_sets(json_get(spec, "sharedCounters"), &s) < 0)
        return err_set(err, EINVAL, "ResourceSlice %s has a bad set of counters", s.name);
    *ret = take_struct(s);
    return 0;
}

void resource_slice_done(struct resource_slice *slice) {
    free(slice->devices);
    *slice = (struct resource_slice){0};
}

const struct slice_device *resource_slice_find(const struct resource_slice *slice,
                                               const char *device) {
    for (uint32_t i = 0; i < slice->ndevices; i++)
        if (strcmp(slice->devices[i].name, device) == 0)
            return &slice->devices[i];
    return NULL;
}

/* ---- comparison ---- */

static bool same_taints(const struct slice_device *a, const struct slice_device *b) {
    if (a->ntaints != b->ntaints)
        return false;
    for (uint32_t i = 0; i < a->ntaints; i++)
        if (strcmp(a->taints[i].key, b->taints[i].key) != 0 ||
            strcmp(a->taints[i].value, b->taints[i].value) != 0 ||
            a->taints[i].evicts != b->taints[i].evicts)
            return false;
    return true;
}

bool slice_counters_equal(const struct slice_counters *a, const struct slice_counters *b) {
    return strcmp(a->name, b->name) == 0 && a->slices == b->slices &&
           memcmp(a->engines, b->engines, sizeof(a->engines)) == 0;
}

bool slice_device_equal(const struct slice_device *a, const struct slice_device *b) {
    for (size_t i = 0; i < SLICE_TEXTS; i++)
        if (strcmp((const char *) a + slice_texts[i].at, (const char *) b + slice_texts[i].at) != 0)
            return false;
    return strcmp(a->name, b->name) == 0 && a->shared == b->shared && a->index == b->index &&
           a->numa == b->numa && a->by_scheduler == b->by_scheduler && a->core == b->core &&
           a->memory / MIB == b->memory / MIB && slice_counters_equal(&a->uses, &b->uses) &&
           same_taints(a, b);
}

bool resource_slice_is(const struct slice_pool *pool, uint32_t slice,
                       const struct resource_slice *have) {
    const struct range devices = devices_of(pool, slice), sets = sets_of(pool, slice);

    if (have->ndevices != devices.end - devices.first || have->nsets != sets.end - sets.first ||
        have->nslices != resource_slice_count(pool) || strcmp(have->pool, pool->node) != 0)
        return false;
    for (uint32_t i = 0; i < have->ndevices; i++)
        if (!slice_device_equal(&have->devices[i], &pool->devices[devices.first + i]))
            return false;
    for (uint32_t i = 0; i < have->nsets; i++)
        if (!slice_counters_equal(&have->sets[i], &pool->sets[sets.first + i]))
            return false;
    return true;
}

/* Whether a request of less than all of the device consumes no more than it says. */
static bool has_policy(struct json device) {
    return json_valid(JSON_PATH(device, "capacity", DRA_CORE, "requestPolicy")) &&
           json_valid(JSON_PATH(device, "capacity", DRA_MEMORY, "requestPolicy"));
}

int resource_slice_check(const struct slice_pool *pool, uint32_t slice, struct json answer,
                         struct err *err) {
    const struct range devices = devices_of(pool, slice), sets = sets_of(pool, slice);
    _cleanup_(resource_slice_done) struct resource_slice s = {0};
    char name[KUBE_NAME_MAX];
    bool tainted = true, counted;
    int r = resource_slice_parse(answer, &s, err);

    if (r < 0)
        return r;
    resource_slice_name(pool->node, slice, name);
    if (strcmp(s.name, name) != 0 || strcmp(s.node, pool->node) != 0)
        return err_set(err, EINVAL, "the answer is not ResourceSlice %s", name);
    counted = s.nsets == sets.end - sets.first;
    for (uint32_t i = devices.first; i < devices.end; i++) {
        const struct slice_device *want = &pool->devices[i];
        const struct slice_device *have = resource_slice_find(&s, want->name);
        struct json object = json_find(JSON_PATH(answer, "spec", "devices"), "name", want->name);

        if (!have)
            return err_set(err, EINVAL, "the answer has no device %s", want->name);
        if (want->shared && (!have->shared || !has_policy(object)))
            return err_set(err, EOPNOTSUPP,
                           "the API server dropped allowMultipleAllocations of device %s: its "
                           "feature gate DRAConsumableCapacity is off (on since Kubernetes 1.36)",
                           want->name);
        tainted = tainted && have->ntaints == want->ntaints;
        counted = counted && slice_counters_equal(&have->uses, &want->uses);
    }
    if (!counted)
        return SLICE_NO_COUNTERS;
    return tainted ? SLICE_AS_WRITTEN : SLICE_NO_TAINTS;
}
