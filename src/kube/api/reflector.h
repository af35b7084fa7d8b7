/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Keeps an owner's copy of a collection true: a paged list, then a watch that resumes where it
 * stopped, and the list again when the server no longer has that version (410). It holds no objects
 * itself.
 */

#include <stdbool.h>
#include <stdint.h>

#include "wire/json.h"

struct err;
struct kube_client;
struct kube_reflector;

enum kube_event {
    KUBE_ADDED,
    KUBE_MODIFIED,
    KUBE_DELETED, /* the object is its last state */
};

/*
 * In a list: on_sync_begin, on_object(KUBE_ADDED) for everything there is, on_sync_end. At
 * on_sync_end whatever the owner holds that was not shown since the last on_sync_begin is gone. A
 * list that fails half way has no on_sync_end: another on_sync_begin comes later. Then watch
 * events; ADDED of a known object and DELETED of an unknown one may happen.
 */
struct kube_reflector_handlers {
    void (*on_sync_begin)(void *userdata);
    /* `object` is valid during the callback. Objects of a list carry no kind and apiVersion. */
    void (*on_object)(enum kube_event event, struct json object, void *userdata);
    void (*on_sync_end)(void *userdata);
    /* For logs: the list or watch failed and is tried again in retry_ms. May be NULL. */
    void (*on_trouble)(const char *text, unsigned retry_ms, void *userdata);
};

struct kube_reflector_options {
    const char *path;  /* the collection: "/api/v1/pods", "/apis/elasticgpu.io/v1alpha1/gpus" */
    const char *query; /* "fieldSelector=spec.nodeName%3Dnode-a" (escaped, no '?'); NULL: all */
    unsigned page;     /* objects per page; 0: 500 */
    unsigned watch_seconds; /* the server ends a watch after about that long; 0: 600 */
    unsigned retry_min_ms;  /* first back-off; 0: 200 */
    unsigned retry_max_ms;  /* 0: 30 s */
    bool may_be_absent;     /* a collection that the server does not know (404: no such CRD) is one
                               without objects, and asked for again now and then */
};

/* Starts at once; handlers run from the loop, never inside this call. All strings are copied. */
int kube_reflector_start(struct kube_client *client, const struct kube_reflector_options *options,
                         const struct kube_reflector_handlers *handlers, void *userdata,
                         struct kube_reflector **ret_reflector, struct err *err);

/* Ends it without further callbacks, also from inside a handler; takes NULL. Before
 * kube_client_close. */
void kube_reflector_stop(struct kube_reflector *reflector);

/* Lists again: after the next on_sync_end everything is known that was written before this call.
 * Not from inside a handler. */
void kube_reflector_relist(struct kube_reflector *reflector);

/* The loop time at which the last list was requested; in on_sync_end: the list that has just been
 * delivered, which shows all that was written before. */
uint64_t kube_reflector_list_began(const struct kube_reflector *reflector);

/* Whether the last list was refused for lack of a right (403). */
bool kube_reflector_is_refused(const struct kube_reflector *reflector);

/* Whether a full list has been delivered and the watch is not known to be broken. */
bool kube_reflector_is_synced(const struct kube_reflector *reflector);
