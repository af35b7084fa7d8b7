/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/event.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "wire/json_write.h"

#define STEM_MAX 200

/* How much of the pod's name goes into that of the Event: a part of a name must not end in a dot or
 * dash, since a dot follows. */
static int stem_of(const char *name) {
    size_t len = strnlen(name, STEM_MAX);
    while (len > 0 && (name[len - 1] == '.' || name[len - 1] == '-'))
        len--;
    return (int) len;
}

/* With the nanosecond it makes the name of an Event that no other has. */
static uint32_t hash_of(const char *text) {
    uint32_t hash = 2166136261u;
    for (; *text; text++)
        hash = (hash ^ (unsigned char) *text) * 16777619u;
    return hash;
}

static void put_object(struct json_writer *w, const struct event *e,
                       const struct event_object *about) {
    json_object_begin(w, "involvedObject");
    json_put_string(w, "apiVersion", about->api_version);
    json_put_string(w, "kind", about->kind);
    if (about->namespace[0])
        json_put_string(w, "namespace", about->namespace);
    json_put_string(w, "name", e->pod);
    json_put_string(w, "uid", e->uid);
    json_object_end(w);
}

void event_encode(const struct event *e, struct buf *out) {
    event_encode_about(e, &(struct event_object){"v1", "Pod", e->namespace, false}, out);
}

void event_encode_about(const struct event *e, const struct event_object *about, struct buf *out) {
    struct timespec now;
    struct tm utc;
    char stamp[32];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%SZ", &utc);
    struct json_writer w = {.out = out};
    json_object_begin(&w, NULL);
    json_put_string(&w, "apiVersion", "v1");
    json_put_string(&w, "kind", "Event");
    json_object_begin(&w, "metadata");
    json_put_stringf(&w, "name", "%.*s.%08" PRIx32 "%08lx", stem_of(e->pod), e->pod,
                     hash_of(e->message), (unsigned long) now.tv_nsec);
    json_put_string(&w, "namespace", e->namespace);
    json_object_end(&w);
    put_object(&w, e, about);
    json_put_string(&w, "type", about->normal ? "Normal" : "Warning");
    json_put_string(&w, "reason", e->reason);
    json_put_string(&w, "message", e->message);
    json_object_begin(&w, "source");
    json_put_string(&w, "component", e->component);
    json_object_end(&w);
    json_put_string(&w, "reportingComponent", e->component);
    json_put_string(&w, "reportingInstance", "");
    json_put_string(&w, "firstTimestamp", stamp);
    json_put_string(&w, "lastTimestamp", stamp);
    json_put_u64(&w, "count", 1);
    json_object_end(&w);
}

void event_path(const char *namespace, char ret[static 128]) {
    snprintf(ret, 128, "/api/v1/namespaces/%.63s/events", namespace);
}
