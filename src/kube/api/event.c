/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/api/event.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/hash.h"
#include "kube/api/object_write.h"
#include "wire/json_write.h"

#define STEM_MAX 200

/* How much of the object's name goes into that of the Event: a part of a name must not end in a dot
 * or dash, since a dot follows. */
static int stem_of(const char *name) {
    size_t len = strnlen(name, STEM_MAX);
    while (len > 0 && (name[len - 1] == '.' || name[len - 1] == '-'))
        len--;
    return (int) len;
}

static uint64_t identity_of(const struct event *e) {
    uint64_t hash = hash_text(hash_text(HASH_START, e->component), e->uid);
    /* Without a container as with an empty name: the names of Events outlive an upgrade. */
    return hash_text(hash_text(hash, e->reason), e->container ? e->container : "");
}

static void put_object(struct json_writer *w, const struct event *e) {
    json_object_begin(w, "involvedObject");
    json_put_string(w, "apiVersion", e->api_version);
    json_put_string(w, "kind", e->kind);
    if (!e->cluster_scoped)
        json_put_string(w, "namespace", e->namespace);
    json_put_string(w, "name", e->name);
    json_put_string(w, "uid", e->uid);
    if (e->container)
        json_put_stringf(w, "fieldPath", "spec.containers{%s}", e->container);
    json_object_end(w);
}

static void put_now(struct json_writer *w, const char *key) {
    char now[OBJECT_TIME_SIZE];
    object_now(now);
    json_put_string(w, key, now);
}

void event_encode(const struct event *e, uint64_t count, struct buf *out) {
    struct json_writer w = {.out = out};
    char name[STEM_MAX + sizeof(".0123456789abcdef")];
    (void) snprintf(name, sizeof(name), "%.*s.%016" PRIx64, stem_of(e->name), e->name,
                    identity_of(e));
    object_begin(&w, "v1", "Event", name, e->namespace);
    json_object_end(&w);
    put_object(&w, e);
    json_put_string(&w, "type", e->normal ? "Normal" : "Warning");
    json_put_string(&w, "reason", e->reason);
    json_put_string(&w, "message", e->message);
    json_object_begin(&w, "source");
    json_put_string(&w, "component", e->component);
    json_object_end(&w);
    json_put_string(&w, "reportingComponent", e->component);
    json_put_string(&w, "reportingInstance", "");
    put_now(&w, "firstTimestamp");
    put_now(&w, "lastTimestamp");
    json_put_u64(&w, "count", count);
    json_object_end(&w);
}

void event_encode_again(uint64_t count, const char *message, struct buf *out) {
    struct json_writer w = {.out = out};
    json_object_begin(&w, NULL);
    if (message)
        json_put_string(&w, "message", message);
    put_now(&w, "lastTimestamp");
    if (count > 0)
        json_put_u64(&w, "count", count);
    json_object_end(&w);
}

void event_path(const char *namespace, char ret[static EVENT_PATH_MAX]) {
    snprintf(ret, EVENT_PATH_MAX, "/api/v1/namespaces/%.63s/events", namespace);
}

void event_object_path(const struct event *e, char ret[static EVENT_PATH_MAX]) {
    snprintf(ret, EVENT_PATH_MAX, "/api/v1/namespaces/%.63s/events/%.*s.%016" PRIx64, e->namespace,
             stem_of(e->name), e->name, identity_of(e));
}
