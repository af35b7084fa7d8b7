/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/objects/reservation_object.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/text.h"
#include "kube/api/field.h"
#include "wire/json_write.h"

#define LINES_MAX 8
#define STATUS_MAX ((size_t) 256 << 10)
#define HOLDER "reservation" /* the container's name in the assignment of a status */

static const char *const phase_names[] = {
    [RESERVATION_PENDING] = "Pending",
    [RESERVATION_HELD] = "Held",
    [RESERVATION_EXPIRED] = "Expired",
};

/* ---- spec ---- */

/* The resources as those of a container, the carrier added. */
static void read_request(struct json resources, struct reservation_object *o) {
    struct resource_line lines[LINES_MAX + 1];
    char numbers[LINES_MAX][24];
    struct json_iter it = json_iter(resources);
    struct json value;
    const char *key;
    bool requested = false;
    size_t n = 0;
    while (n < LINES_MAX && json_next(&it, &key, &value)) {
        const char *text = json_string(value);
        uint64_t number;
        if (!text && json_u64(value, &number)) {
            (void) snprintf(numbers[n], sizeof(numbers[n]), "%llu", (unsigned long long) number);
            text = numbers[n];
        }
        if (key && text && dialect_knows(key))
            lines[n++] = (struct resource_line){key, text, strlen(text)};
    }
    if (dialect_needs_slot(lines, n))
        lines[n++] = (struct resource_line){RESOURCE_SLOT, "1", 1};
    o->problem = dialect_read(lines, n, &o->request, &requested, &o->mixed);
    if (o->problem == REQUEST_OK && !requested)
        o->problem = REQUEST_SLOT_ALONE;
    memcpy(o->request.container, HOLDER, sizeof(HOLDER));
    o->request.phase = CONTAINER_APP;
}

static int read_labels(struct json labels, char *out, size_t size) {
    struct json_iter it = json_iter(labels);
    struct json value;
    const char *key;
    size_t len = 0;
    while (json_next(&it, &key, &value)) {
        const char *text = json_string(value);
        int n = key && text ? snprintf(out + len, size - len, "%s=%s,", key, text) : -1;
        if (n < 0 || (size_t) n >= size - len)
            return -EINVAL;
        len += (size_t) n;
    }
    return 0;
}

static int read_owners(struct json list, struct reservation_object *o) {
    struct json_iter it = json_iter(list);
    struct json item;
    while (json_next(&it, NULL, &item)) {
        struct reservation_owner *owner = &o->owners[o->nowners];
        if (o->nowners == RESERVATION_OWNERS_MAX ||
            field_copy(json_get(item, "namespace"), owner->namespace, sizeof(owner->namespace)) ||
            field_copy_optional(json_get(item, "pod"), owner->pod, sizeof(owner->pod)) ||
            field_copy_optional(json_get(item, "queue"), owner->queue, sizeof(owner->queue)) ||
            read_labels(json_get(item, "labels"), owner->labels, sizeof(owner->labels)))
            return -EINVAL;
        o->nowners++;
    }
    return o->nowners > 0 ? 0 : -EINVAL;
}

/* ---- status ---- */

uint64_t reservation_status_hash(const char *text, size_t len) {
    return hash_bytes(HASH_START, text, len);
}

/* Field by field in our own order, since the API server sorts keys as it likes. */
static void read_status(struct json status, struct reservation_object *o) {
    static const char *const keys[] = {"phase", "message", "node", "assignment", "usedBy", "users"};
    _cleanup_buf_ struct buf text = BUF_INIT(STATUS_MAX);
    struct json_writer w = {.out = &text};
    const char *held = json_string(json_get(status, "assignment"));
    json_object_begin(&w, NULL);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        _cleanup_buf_ struct buf value = BUF_INIT(STATUS_MAX);
        struct json field = json_get(status, keys[i]);
        if (json_valid(field))
            json_print(&value, field);
        json_put_raw(&w, keys[i], json_valid(field) ? buf_str(&value) : "null");
    }
    json_object_end(&w);
    o->status_hash = reservation_status_hash(buf_str(&text), text.len);
    if (held)
        (void) assignment_parse(held, &o->held, NULL); /* what is no assignment holds nothing */
}

void reservation_encode_status(const struct reservation_status *status, struct buf *out) {
    struct json_writer w = {.out = out};
    _cleanup_buf_ struct buf held = BUF_INIT(STATUS_MAX);
    if (status->held)
        assignment_encode(status->held, &held);
    json_object_begin(&w, NULL);
    json_put_string(&w, "phase", phase_names[status->phase]);
    json_put_string(&w, "message", status->message);
    json_put_string(&w, "node", status->held ? status->held->node : NULL);
    json_put_string(&w, "assignment", status->held ? buf_str(&held) : NULL);
    json_array_begin(&w, "usedBy");
    for (size_t i = 0; i < status->nusers; i++)
        json_put_string(&w, NULL, status->users[i]);
    json_array_end(&w);
    if (status->nusers > 1)
        json_put_stringf(&w, "users", "%s and %zu more", status->users[0], status->nusers - 1);
    else
        json_put_string(&w, "users", status->nusers == 1 ? status->users[0] : NULL);
    json_object_end(&w);
}

/* ---- the object ---- */

int reservation_object_parse(struct json object, struct reservation_object *ret, struct err *err) {
    struct json meta = json_get(object, "metadata"), spec = json_get(object, "spec");
    struct reservation_object o = {0};
    if (field_copy(json_get(meta, "name"), o.name, sizeof(o.name)) < 0)
        return err_set(err, EINVAL, "not an ElasticGPUReservation: it has no name");
    o.unreadable = field_copy_optional(json_get(spec, "nodeName"), o.node, sizeof(o.node)) < 0 ||
                   field_copy_optional(json_get(spec, "model"), o.model, sizeof(o.model)) < 0 ||
                   read_owners(json_get(spec, "owners"), &o) < 0;
    if (o.unreadable)
        o.nowners = 0;
    o.created = field_time(json_get(meta, "creationTimestamp"));
    o.starts = field_time(json_get(spec, "starts"));
    o.expires = field_time(json_get(spec, "expires"));
    read_request(json_get(spec, "resources"), &o);
    read_status(json_get(object, "status"), &o);
    *ret = o;
    return 0;
}

void reservation_object_done(struct reservation_object *object) {
    assignment_done(&object->held);
}

/* ---- owners ---- */

/* Whether "key=value," is in a list of such; keys and values have no commas. */
static bool has_label(const char *labels, const char *label, size_t len) {
    const char *item;
    size_t n;

    while (text_item(&labels, &item, &n))
        if (n == len && strncmp(item, label, len) == 0)
            return true;
    return false;
}

static bool has_labels(const char *labels, const char *wanted) {
    const char *item;
    size_t len;

    while (text_item(&wanted, &item, &len))
        if (!has_label(labels, item, len))
            return false;
    return true;
}

static bool is_of_queue(const char *labels, const char *queue) {
    static const char *const keys[] = {"elasticgpu.io/queue", "kueue.x-k8s.io/queue-name"};
    for (size_t i = 0; i < 2; i++) {
        char label[KUBE_LABEL_MAX + 64];
        int n = snprintf(label, sizeof(label), "%s=%s", keys[i], queue);
        if (has_label(labels, label, (size_t) n))
            return true;
    }
    return false;
}

bool reservation_is_for(const struct reservation_object *object, const char *namespace,
                        const char *pod, const char *labels) {
    if (!labels)
        labels = "";
    for (uint32_t i = 0; i < object->nowners; i++) {
        const struct reservation_owner *o = &object->owners[i];
        if (strcmp(o->namespace, namespace) == 0 && (!*o->pod || strcmp(o->pod, pod) == 0) &&
            (!*o->queue || is_of_queue(labels, o->queue)) && has_labels(labels, o->labels))
            return true;
    }
    return false;
}
