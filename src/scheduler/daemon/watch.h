/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the scheduler watches: one row of watch_kinds[] in watch_kinds.c for each kind of object. A
 * new kind is a new row, and a file of its own for its handlers. */

#include <stdbool.h>
#include <stdint.h>

#include "kube/api/reflector.h"

struct err;
struct scheduler;

/* As in kube_reflector_handlers. begin and end may be NULL for a kind that keeps nothing. */
struct watch_handlers {
    void (*begin)(struct scheduler *s);
    void (*object)(struct scheduler *s, enum kube_event event, struct json object);
    void (*end)(struct scheduler *s);
};

/* Defines `handlers`. The calls have the parameters s, and `object` has event and object, too. */
#define WATCH_HANDLERS(handlers, begin, on_object, end)                                            \
    static void handlers##_begin(struct scheduler *s) {                                            \
        begin;                                                                                     \
    }                                                                                              \
    static void handlers##_object(struct scheduler *s, enum kube_event event,                      \
                                  struct json object) {                                            \
        on_object;                                                                                 \
    }                                                                                              \
    static void handlers##_end(struct scheduler *s) {                                              \
        end;                                                                                       \
    }                                                                                              \
    const struct watch_handlers handlers = {handlers##_begin, handlers##_object, handlers##_end};

struct watch_kind {
    const char *path;  /* the collection */
    const char *query; /* as kube_reflector_options; NULL: all of it */
    bool optional;     /* its CRD may not be installed: that is a list without objects */
    bool holds;        /* its objects say what is taken of cards */
    const struct watch_handlers *handlers;
    bool (*wanted)(const struct scheduler *s); /* whether it is watched; NULL: always */
};

#define WATCHES_MAX 24
#define WATCH_STALE_MS 5000 /* a watch may be broken for that long */

/* One row at work. */
struct watch {
    struct scheduler *scheduler;
    const struct watch_kind *kind;
    struct kube_reflector *reflector;
    bool synced;       /* a whole list has been seen */
    bool relisting;    /* relisted, see watch_relist_holders() */
    uint64_t fresh_ms; /* when it was last known to be in order */
    char trouble[256]; /* why the last list or watch failed; "" since a list is whole */
};

/* Starts one for each kind: at most WATCHES_MAX, which stay, and a row without a path behind them.
 */
int watch_start(struct scheduler *s, const struct watch_kind *kinds, struct err *err);
void watch_stop(struct scheduler *s);

/* Why one of them is not synced, "" without a reason. */
const char *watch_trouble(const struct scheduler *s);

/* Reads all that holds shares anew (pods, ElasticGPUs, reservations), so that whatever was decided
 * before this call is known when all are listed. Until then scheduler_leads() is false. */
void watch_relist_holders(struct scheduler *s);

/* To be called about once a second: notes which watches are in order. */
void watch_check(struct scheduler *s);

/* For handlers: a change that is to be published soon. */
void watch_changed(struct scheduler *s);
void watch_has_changed(void *userdata); /* the same, for parts of the scheduler */

/* For handlers: the object could not be read, or there was no memory for it. */
void watch_refuse(struct scheduler *s, const char *why);
