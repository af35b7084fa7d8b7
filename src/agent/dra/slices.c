/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/dra/slices.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/dra/claim_devices.h"
#include "agent/dra/placements.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "base/on_closed.h"
#include "base/text.h"
#include "gpu/device.h"
#include "kube/api/client.h"
#include "kube/api/reflector.h"
#include "kube/objects/resource_slice.h"
#include "model/dra.h"
#include "wire/http_status.h"

#define SEEN_MAX 32 /* slices of this node: 16 are written at most */
#define RETRY_MIN_MS 200
#define RETRY_MAX_MS 30000
#define UNSUPPORTED_MS 60000 /* until an API server that lacks the feature is tried again */
#define REQUEST_MS 10000
#define PATH_SIZE (KUBE_NAME_MAX + 64)

struct dra_slices {
    struct dra_slices_options options;
    struct kube_reflector *watch;
    uv_timer_t timer;
    struct kube_call *call; /* one write at a time */
    uint32_t writing;       /* slice that is being written; UINT32_MAX: one is being deleted */
    bool known;             /* the devices are */
    bool no_taints;         /* the API server has dropped them; this and the next */
    bool no_counters;
    bool unsupported;       /* it has dropped shares: nothing may stay published */
    struct slice_pool pool; /* what is to be published */
    struct slice_device devices[POOL_DEVICES_MAX]; /* its devices, and their sets of counters */
    struct slice_counters sets[POOL_SETS_MAX];
    struct resource_slice seen[SEEN_MAX]; /* as the API server has them */
    bool fresh[SEEN_MAX];                 /* in the list that is being received */
    uint32_t nseen;
    unsigned retry_ms;
    char trouble[DRA_SLICES_TROUBLE_MAX];
    struct on_closed on_closed;
};

static void reconcile(struct dra_slices *s);

/* ---- what there is ---- */

static struct resource_slice *find_seen(struct dra_slices *s, const char *name) {
    for (uint32_t i = 0; i < s->nseen; i++)
        if (strcmp(s->seen[i].name, name) == 0)
            return &s->seen[i];
    return NULL;
}

static void forget_seen(struct dra_slices *s, struct resource_slice *slice) {
    size_t i = (size_t) (slice - s->seen);

    resource_slice_done(slice);
    s->seen[i] = s->seen[--s->nseen];
    s->fresh[i] = s->fresh[s->nseen];
}

static void remember(struct dra_slices *s, struct json object) {
    struct resource_slice slice, *have;

    if (resource_slice_parse(object, &slice, NULL) < 0)
        return;
    have = find_seen(s, slice.name);
    if (strcmp(slice.node, s->options.node) != 0 || (!have && s->nseen == SEEN_MAX)) {
        resource_slice_done(&slice);
        return;
    }
    if (have)
        resource_slice_done(have);
    else
        have = &s->seen[s->nseen++];
    *have = slice;
    s->fresh[have - s->seen] = true;
}

/* The event may come after another slice of that name was made. */
static void on_object(enum kube_event event, struct json object, void *userdata) {
    const char *name = json_string(JSON_PATH(object, "metadata", "name"));
    const char *uid = json_string(JSON_PATH(object, "metadata", "uid"));
    struct dra_slices *s = userdata;
    struct resource_slice *have = name ? find_seen(s, name) : NULL;

    if (event != KUBE_DELETED)
        remember(s, object);
    else if (have && uid && strcmp(have->uid, uid) == 0)
        forget_seen(s, have);
    if (kube_reflector_is_synced(s->watch))
        reconcile(s);
}

static void on_sync_begin(void *userdata) {
    struct dra_slices *s = userdata;

    memset(s->fresh, 0, sizeof(s->fresh));
}

static void on_sync_end(void *userdata) {
    struct dra_slices *s = userdata;

    for (uint32_t i = s->nseen; i > 0; i--)
        if (!s->fresh[i - 1])
            forget_seen(s, &s->seen[i - 1]);
    reconcile(s);
}

/* ---- what there should be ---- */

static const struct mig_card *dynamic(const struct dra_slices *s, const struct gpu_device *d) {
    return d && d->kind == GPU_CARD && d->divided ? s->options.dynamic(d, s->options.userdata)
                                                  : NULL;
}

/* Instances of a card that is divided for claims are among its placements. */
static bool is_published(const struct dra_slices *s, const struct gpu_snapshot *snapshot,
                         const struct gpu_device *d) {
    return d->allocator != DRA_NONE && gpu_gives_shares(d) && d->memory > 0 &&
           (gpu_takes_pods(d) || !s->no_taints) &&
           !(gpu_is_part(d) && dynamic(s, gpu_find(snapshot, d->parent)));
}

/* The number and model of an instance are those of its card, as in its GPU object. */
static void describe_part(const struct gpu_snapshot *snapshot, const struct gpu_device *d,
                          struct slice_device *ret) {
    const struct gpu_device *card = gpu_find(snapshot, d->parent);

    slice_text(ret->profile, d->mig.profile);
    slice_text(ret->parent, d->parent);
    if (!card)
        return;
    slice_text(ret->model, card->model);
    ret->index = card->index;
}

static void put_taint(struct slice_device *d, bool evicts) {
    struct slice_taint *taint = &d->taints[d->ntaints++];

    text_copy(taint->key, sizeof(taint->key), DRA_UNHEALTHY_TAINT);
    text_copy(taint->value, sizeof(taint->value), "true");
    taint->evicts = evicts;
}

static void put_taints(const struct dra_slices *s, const struct gpu_device *d,
                       struct slice_device *ret) {
    if (gpu_takes_pods(d))
        return;
    put_taint(ret, false);
    if (s->options.evicts(d, s->options.userdata))
        put_taint(ret, true);
}

/* What is the same for a device and for those that can be made of it. */
static void describe_any(const struct dra_slices *s, const struct gpu_snapshot *snapshot,
                         const struct gpu_device *d, struct slice_device *ret) {
    int64_t numa = gpu_numa(snapshot, d);

    memset(ret, 0, sizeof(*ret));
    slice_text(ret->model, d->model);
    slice_text(ret->driver_version, snapshot->driver_version);
    ret->shared = !s->options.is_whole(d, s->options.userdata);
    ret->index = d->index;
    ret->numa = (int8_t) (numa <= INT8_MAX ? numa : -1);
    ret->by_scheduler = d->allocator == DRA_KUBE_SCHEDULER;
}

/* Claims do not oversubscribe a card; what is kept back of it is kept back from them, too. */
static void describe(const struct dra_slices *s, const struct gpu_snapshot *snapshot,
                     const struct gpu_device *d, struct slice_device *ret) {
    uint64_t capacity = s->options.capacity(d, s->options.userdata);

    describe_any(s, snapshot, d, ret);
    put_taints(s, d, ret);
    dra_device_name(d->uuid, ret->name);
    slice_text(ret->uuid, d->uuid);
    ret->core = gpu_core(d);
    ret->memory = capacity < d->memory ? capacity : d->memory;
    if (gpu_is_part(d))
        describe_part(snapshot, d, ret);
}

static uint64_t latest_generation(const struct dra_slices *s) {
    uint64_t latest = s->pool.generation;

    for (uint32_t i = 0; i < s->nseen; i++)
        if (strcmp(s->seen[i].pool, s->options.node) == 0 && s->seen[i].generation > latest)
            latest = s->seen[i].generation;
    return latest;
}

/* Whether the slice is there as it should be, whatever its generation. */
static bool is_there(struct dra_slices *s, uint32_t slice, struct resource_slice **ret) {
    char name[KUBE_NAME_MAX];

    resource_slice_name(s->options.node, slice, name);
    *ret = find_seen(s, name);
    return *ret && resource_slice_is(&s->pool, slice, *ret);
}

/* A former agent's pool that is what it should be keeps its generation. */
static bool was_published(struct dra_slices *s) {
    struct resource_slice *have, *first = NULL;

    for (uint32_t i = 0; i < resource_slice_count(&s->pool); i++) {
        if (!is_there(s, i, &have) || (first && have->generation != first->generation))
            return false;
        first = first ? first : have;
    }
    assert(first); /* a pool without devices is one slice */
    s->pool.generation = first->generation;
    return true;
}

/* What the API server rounds is compared as it has it. Returns whether it is another device. */
static bool add_device(struct dra_slices *s, uint32_t *n, const struct slice_device *d) {
    bool changed = *n >= s->pool.ndevices || !slice_device_equal(&s->devices[*n], d);

    s->devices[(*n)++] = *d;
    return changed;
}

/* Whose health a placement has: that of the instance that is there, if the card is well. One that
 * is about to go is no reason against the next one. */
static const struct gpu_device *judged_by(const struct dra_slices *s,
                                          const struct gpu_snapshot *snapshot,
                                          const struct gpu_device *d, const struct mig_card *card,
                                          const struct mig_place *place) {
    const struct gpu_device *part = dra_placement_instance(snapshot, d->uuid, card, place);

    return part && gpu_takes_pods(d) && !s->options.ends(part, s->options.userdata) ? part : d;
}

/* The same of its placements, and of the counters that keep them apart. */
static bool add_placements(struct dra_slices *s, const struct gpu_snapshot *snapshot,
                           const struct gpu_device *d, const struct mig_card *card, uint32_t *n,
                           uint32_t *nsets) {
    struct mig_place places[DRA_PLACEMENTS_MAX];
    uint32_t nplaces = dra_placements(card, places);
    struct slice_counters set;
    struct slice_device device;
    bool changed;

    /* A set without counters is refused. */
    if (nplaces == 0 || s->no_counters || (s->no_taints && !gpu_takes_pods(d)) ||
        *nsets == POOL_SETS_MAX)
        return false;
    dra_placement_set(d->uuid, card, &set);
    changed = *nsets >= s->pool.nsets || !slice_counters_equal(&s->sets[*nsets], &set);
    s->sets[(*nsets)++] = set;
    for (uint32_t i = 0; i < nplaces && *n < POOL_DEVICES_MAX; i++) {
        const struct gpu_device *judged = judged_by(s, snapshot, d, card, &places[i]);

        if (s->no_taints && !gpu_takes_pods(judged))
            continue;
        describe_any(s, snapshot, d, &device);
        put_taints(s, judged, &device);
        dra_placement_describe(d->uuid, card, &places[i], &device);
        changed |= add_device(s, n, &device);
    }
    return changed;
}

/* The generation is raised with every change. */
static void take_devices(struct dra_slices *s) {
    const struct gpu_snapshot *snapshot = s->options.devices(s->options.userdata);
    bool changed = s->pool.generation == 0;
    uint32_t n = 0, nsets = 0;

    for (uint32_t i = 0; i < snapshot->ndevices && n < POOL_DEVICES_MAX; i++) {
        const struct gpu_device *d = &snapshot->devices[i];
        const struct mig_card *card = dynamic(s, d);
        struct slice_device device;

        if (card) {
            changed |= add_placements(s, snapshot, d, card, &n, &nsets);
        } else if (is_published(s, snapshot, d)) {
            describe(s, snapshot, d, &device);
            changed |= add_device(s, &n, &device);
        }
    }
    changed = changed || n != s->pool.ndevices || nsets != s->pool.nsets;
    s->pool.ndevices = n;
    s->pool.devices = s->devices;
    s->pool.nsets = nsets;
    s->pool.sets = s->sets;
    if (changed && !(s->pool.generation == 0 && was_published(s)))
        s->pool.generation = latest_generation(s) + 1;
}

/* ---- writes ---- */

static void set_trouble(struct dra_slices *s, const char *why) {
    if (strcmp(s->trouble, why) == 0)
        return;
    text_copy(s->trouble, sizeof(s->trouble), why);
    if (why[0])
        log_error("ResourceSlices: %s", why);
    s->options.on_trouble(s->trouble, s->options.userdata);
}

static void on_timer(uv_timer_t *timer) {
    struct dra_slices *s = timer->data;

    s->unsupported = false;
    reconcile(s);
}

static void retry(struct dra_slices *s) {
    (void) uv_timer_start(&s->timer, on_timer, s->retry_ms, 0);
    s->retry_ms = s->retry_ms * 2 > RETRY_MAX_MS ? RETRY_MAX_MS : s->retry_ms * 2;
}

/* Reads what the API server has made of the slice. */
static void check_answer(struct dra_slices *s, struct json answer) {
    struct err err;
    int r = resource_slice_check(&s->pool, s->writing, answer, &err);

    remember(s, answer);
    if (r == -EOPNOTSUPP) {
        s->unsupported = true;
        set_trouble(s, err.text);
        (void) uv_timer_start(&s->timer, on_timer, UNSUPPORTED_MS, 0);
    } else if (r == SLICE_NO_COUNTERS && !s->no_counters) {
        s->no_counters = true;
        log_warn("the API server drops counters of devices (its feature gate "
                 "DRAPartitionableDevices is off): cards that are divided for claims are left out");
    } else if (r == SLICE_NO_TAINTS && !s->no_taints) {
        s->no_taints = true;
        log_warn("the API server drops taints of devices: cards that take no pods are left out");
    } else {
        set_trouble(s, "");
    }
}

static void on_response(const struct kube_response *response, void *userdata) {
    struct dra_slices *s = userdata;
    char why[DRA_SLICES_TROUBLE_MAX];

    s->call = NULL;
    if (http_is_success(response->status)) {
        s->retry_ms = RETRY_MIN_MS;
        if (s->writing != UINT32_MAX)
            check_answer(s, response->body);
        reconcile(s);
        return;
    }
    /* The watch shows what is there: a conflict, or one that is gone, is no trouble. */
    if (response->status != 409 && response->status != 404) {
        (void) snprintf(why, sizeof(why), "the API server does not take them: %.400s",
                        response->text);
        set_trouble(s, why);
    } else if (response->status == 404 && s->writing != UINT32_MAX) {
        set_trouble(s, "the API server has no resource.k8s.io/v1");
    }
    retry(s);
}

static void request(struct dra_slices *s, const char *method, const char *name, uint32_t writing,
                    const struct buf *body) {
    char path[PATH_SIZE];

    (void) snprintf(path, sizeof(path), RESOURCE_SLICES_PATH "%s%s", name ? "/" : "",
                    name ? name : "");
    s->writing = writing;
    if (buf_error(body) < 0 ||
        kube_request(s->options.client, method, path, NULL, body->data, body->len, REQUEST_MS,
                     on_response, s, &s->call, NULL) < 0) {
        s->call = NULL;
        retry(s);
    }
}

static void write_slice(struct dra_slices *s, uint32_t slice, const struct resource_slice *have) {
    _cleanup_buf_ struct buf body = BUF_INIT(SLICE_JSON_MAX);

    resource_slice_encode(&s->pool, slice, have ? have->version : NULL, &body);
    request(s, have ? "PUT" : "POST", have ? have->name : NULL, slice, &body);
}

/* Only this one: the name may be another slice's by now. */
static void delete_slice(struct dra_slices *s, struct resource_slice *slice) {
    _cleanup_buf_ struct buf body = BUF_INIT(512);
    char name[KUBE_NAME_MAX];

    text_copy(name, sizeof(name), slice->name);
    buf_printf(&body, "{\"preconditions\":{\"uid\":\"%s\"}}", slice->uid);
    forget_seen(s, slice);
    request(s, "DELETE", name, UINT32_MAX, &body);
}

/* A slice that is none of the pool, or that may not stay. */
static bool delete_one(struct dra_slices *s, uint32_t count) {
    for (uint32_t i = 0; i < s->nseen; i++) {
        bool ours = false;

        for (uint32_t k = 0; k < count && !ours; k++) {
            char name[KUBE_NAME_MAX];

            resource_slice_name(s->options.node, k, name);
            ours = strcmp(name, s->seen[i].name) == 0;
        }
        if (ours)
            continue;
        delete_slice(s, &s->seen[i]);
        return true;
    }
    return false;
}

static void reconcile(struct dra_slices *s) {
    struct resource_slice *have;
    uint32_t count;

    /* Without an owner a slice would stay when the Node goes. */
    if (s->call || !s->known || !s->pool.node_uid[0] || !kube_reflector_is_synced(s->watch))
        return;
    take_devices(s);
    count = s->unsupported || s->pool.ndevices == 0 ? 0 : resource_slice_count(&s->pool);
    if (delete_one(s, count))
        return;
    for (uint32_t i = 0; i < count; i++) {
        if (is_there(s, i, &have) && have->generation == s->pool.generation)
            continue;
        write_slice(s, i, have);
        return;
    }
}

/* ---- life ---- */

void dra_slices_update(struct dra_slices *s) {
    s->known = true;
    reconcile(s);
}

void dra_slices_set_node(struct dra_slices *s, const char *uid) {
    text_copy(s->pool.node_uid, sizeof(s->pool.node_uid), uid);
    reconcile(s);
}

int dra_slices_start(const struct dra_slices_options *options, struct dra_slices **ret,
                     struct err *err) {
    static const struct kube_reflector_handlers handlers = {
        .on_sync_begin = on_sync_begin, .on_object = on_object, .on_sync_end = on_sync_end};
    char query[KUBE_NAME_MAX + 96];
    const struct kube_reflector_options watch = {
        .path = RESOURCE_SLICES_PATH, .query = query, .may_be_absent = true};
    struct dra_slices *s = calloc(1, sizeof(*s));
    int r;

    if (!s)
        return err_set(err, ENOMEM, "out of memory");
    s->options = *options;
    s->retry_ms = RETRY_MIN_MS;
    text_copy(s->pool.node, sizeof(s->pool.node), options->node);
    (void) snprintf(query, sizeof(query),
                    "fieldSelector=spec.nodeName%%3D%s%%2Cspec.driver%%3D" DRA_DRIVER,
                    options->node);
    r = kube_reflector_start(options->client, &watch, &handlers, s, &s->watch, err);
    if (r < 0) {
        free(s);
        return r;
    }
    (void) uv_timer_init(kube_client_loop(options->client), &s->timer);
    s->timer.data = s;
    *ret = s;
    return 0;
}

static void on_timer_closed(uv_handle_t *handle) {
    struct dra_slices *s = handle->data;

    while (s->nseen > 0)
        forget_seen(s, &s->seen[0]);
    on_closed_free(&s->on_closed, s);
}

void dra_slices_stop(struct dra_slices *s, void (*on_closed)(void *userdata), void *userdata) {
    s->on_closed = (struct on_closed){on_closed, userdata};
    kube_reflector_stop(s->watch);
    kube_call_cancel(s->call);
    uv_close((uv_handle_t *) &s->timer, on_timer_closed);
}
