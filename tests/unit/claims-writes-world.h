/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A claims controller whose writes the test answers, and whose watches show nothing that the test
 * does not say. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "claims/model.h"
#include "wire/json.h"

#define WRITES_MAX 8
#define T0 100000 /* ms */
#define SHOWN_MS 5000
#define FAILED_MS 1000

struct world {
    struct claims *claims;
    bool full;           /* no card has room */
    unsigned over_quota; /* no quota lets anything pass, with this number in the sentence */
    bool unsettled;      /* pods do not have what their claim has been given */
    unsigned searches;   /* for room */
    uint32_t cards;      /* on so many cards of "node-a" there is room; 0: on none */
    const char *begun;   /* the UID of a pod whose Binding is on its way */
    char events[256];    /* "TYPE KIND NAME REASON;" of each Event */
    size_t n;
    struct {
        char method[8], path[256], key[256], body[1024];
    } writes[WRITES_MAX];
};

static inline int find_room(void *self, const struct egpu_claim *claim,
                            const struct claim_amount *want, const char *node,
                            struct claims_room *ret, struct err *why) {
    struct world *w = self;
    (void) claim, (void) node;
    w->searches++;
    if (w->cards == 0)
        return err_set(why, EAGAIN, "no room");
    *ret = (struct claims_room){.node = "node-a", .amount = *want, .ncards = w->cards};
    for (uint32_t i = 0; i < w->cards; i++)
        snprintf(ret->cards[i], sizeof(ret->cards[0]), "gpu-%c", 'a' + (char) i);
    return 0;
}

static inline const char *node_of(void *self, const struct egpu *e) {
    (void) self, (void) e;
    return "node-a";
}

static inline int check_room(void *self, const struct egpu *e, struct err *why) {
    const struct world *w = self;
    if (w->over_quota && e->claim_uid[0])
        return err_set(why, EDQUOT, "quota: %u used", w->over_quota);
    return w->full ? err_set(why, EAGAIN, "no room") : 0;
}

static inline int grow(void *self, const struct egpu *e, const struct claim_amount *want,
                       struct err *why) {
    (void) want;
    return check_room(self, e, why);
}

static inline int admit(void *self, const struct egpu_claim *claim, const struct claim_amount *want,
                        struct err *why) {
    const struct world *w = self;
    (void) claim, (void) want;
    return w->over_quota ? err_set(why, EDQUOT, "quota: %u used", w->over_quota) : 0;
}

static inline int take(void *self, const struct egpu *e, const struct egpu_claim *claim,
                       struct err *why) {
    return admit(self, claim, &e->capacity, why);
}

static inline bool settle(void *self, const struct egpu *e) {
    (void) e;
    return !((struct world *) self)->unsettled;
}

static inline bool begun(void *self, const char *pod_uid) {
    const struct world *w = self;
    return w->begun && strcmp(w->begun, pod_uid) == 0;
}

static inline void hold(void *self, const struct egpu *e) {
    (void) self, (void) e;
}

static inline void drop(void *self, const char *name) {
    (void) self, (void) name;
}

static inline void note(void *self, const struct claims_note *note) {
    struct world *w = self;
    size_t n = strlen(w->events);
    snprintf(w->events + n, sizeof(w->events) - n, "%s %s %s %s;",
             note->warning ? "Warning" : "Normal", note->kind, note->name, note->reason);
}

static inline void record(void *self, const struct claims_write *write) {
    struct world *w = self;
    assert_in_range(w->n, 0, WRITES_MAX - 1);
    snprintf(w->writes[w->n].method, sizeof(w->writes[0].method), "%s", write->method);
    snprintf(w->writes[w->n].path, sizeof(w->writes[0].path), "%s", write->path);
    snprintf(w->writes[w->n].key, sizeof(w->writes[0].key), "%s", write->key);
    snprintf(w->writes[w->n].body, sizeof(w->writes[0].body), "%.*s", (int) write->size,
             write->body ? write->body : "");
    w->n++;
}

static inline int setup(void **state) {
    static struct world w;
    const struct claims_world calls = {&w,     find_room, node_of, check_room, grow,   admit, take,
                                       settle, begun,     hold,    drop,       record, note};
    w = (struct world){.claims = claims_new(&calls)};
    *state = &w;
    return w.claims ? 0 : -1;
}

static inline int teardown(void **state) {
    struct world *w = *state;
    w->claims = claims_free(w->claims);
    return 0;
}

static inline void show(struct world *w, enum claims_kind kind, const char *text) {
    _cleanup_json_ struct json_parser *p = NULL;
    struct json root;
    struct err err = {0};
    if (json_open(text, strlen(text), &p, &root, &err) < 0 ||
        claims_seen(w->claims, kind, root, &err) < 0)
        fail_msg("%s: %s", err.text, text);
}

/* The writes of one pass. */
static inline size_t plan(struct world *w, uint64_t now_ms) {
    w->n = 0;
    claims_plan(w->claims, now_ms, "2026-01-01T00:00:00Z");
    return w->n;
}

/* The body of the pass's write with this key, or NULL. */
static inline const char *body_of(const struct world *w, const char *key) {
    for (size_t i = 0; i < w->n; i++)
        if (strcmp(w->writes[i].key, key) == 0)
            return w->writes[i].body;
    return NULL;
}

/* ---- objects; the UIDs have one character ---- */

#define EGPU(name, notes, core, extra, status)                                                     \
    "{\"metadata\":{\"name\":\"" name "\",\"uid\":\"7\",\"resourceVersion\":\"1\",\"finalizers\":" \
    "[\"" EGPU_FINALIZER "\"],\"annotations\":{" notes "}},\"spec\":{\"capacity\":{"               \
    "\"elasticgpu.io/gpu-core\":" #core "},\"qGPU\":{\"gpuName\":\"gpu-a\"}" extra "},"            \
    "\"status\":{" status "}}"
#define CLAIM(notes, core, extra, status)                                                          \
    "{\"metadata\":{\"name\":\"c\",\"namespace\":\"ns\",\"uid\":\"1\",\"resourceVersion\":\"1\","  \
    "\"finalizers\":[\"" CLAIM_FINALIZER "\"],\"annotations\":{" notes "}},\"spec\":{"             \
    "\"resources\":{\"requests\":{\"elasticgpu.io/gpu-core\":" #core "}}" extra "},"               \
    "\"status\":{" status "}}"
#define AVAILABLE "\"phase\":\"Available\""
#define OF_CLASS(name) ",\"elasticGPUClassName\":\"" name "\""
#define NAMED(name) ",\"elasticGPUName\":\"" name "\""
#define REF(name, uid)                                                                             \
    ",\"claimRef\":{\"namespace\":\"ns\",\"name\":\"" name "\",\"uid\":\"" uid "\"}"
#define PENDING(message)                                                                           \
    "\"phase\":\"Pending\",\"conditions\":[{\"type\":\"Bound\",\"status\":\"False\",\"reason\":"   \
    "\"NoMatch\",\"message\":\"" message "\"}]"
#define CLASS(extra)                                                                               \
    "{\"metadata\":{\"name\":\"k\",\"uid\":\"3\",\"resourceVersion\":\"1\"},"                      \
    "\"provisioner\":\"elasticgpu.io/qgpu\"" extra "}"
#define COMPLETED "\"elasticgpu.io/bind-completed\":\"yes\""
#define BOUND "\"phase\":\"Bound\""
#define GRANTED(core) BOUND ",\"capacity\":{\"elasticgpu.io/gpu-core\":\"" #core "\"}"
#define DELETED(notes) notes "},\"deletionTimestamp\":\"2026-01-01T00:00:00Z\",\"labels\":{"

/* ---- pods ---- */

#define CONTAINER(name)                                                                            \
    "{\"name\":\"" name "\",\"resources\":{\"limits\":{\"elasticgpu.io/slot\":\"1\"}}}"
#define POD(notes, containers)                                                                     \
    "{\"metadata\":{\"uid\":\"uid-p\",\"name\":\"p\",\"namespace\":\"ns\",\"annotations\":{" notes \
    "}},\"spec\":{\"containers\":[" containers "]}}"

static inline void show_pod(struct world *w, const char *text) {
    _cleanup_json_ struct json_parser *p = NULL;
    struct json root;
    struct pod pod;
    assert_int_equal(json_open(text, strlen(text), &p, &root, NULL), 0);
    assert_int_equal(pod_parse(root, &pod, NULL), 0);
    assert_int_equal(claims_pod_seen(w->claims, &pod), 0);
    pod_done(&pod);
}
