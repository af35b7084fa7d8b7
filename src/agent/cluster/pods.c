/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/cluster/pods.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/text.h"
#include "gpu/device.h"
#include "kube/api/client.h"
#include "kube/api/reflector.h"
#include "wire/json.h"

#define CONTAINERS_MAX 256

struct pods {
    struct pods_handlers handlers;
    bool claims;
    struct kube_reflector *reflector;
    struct pod_entry *entries;
    bool ever_synced;
    bool incomplete; /* an object was dropped for lack of memory: a new list is needed */
    bool relisting;  /* and has been asked for */
};

/* ---- one pod ---- */

void pod_entry_free(struct pod_entry *e) {
    if (!e)
        return;
    pod_done(&e->pod);
    for (size_t i = 0; i < e->ncontainers; i++)
        free(e->containers[i].failure);
    free(e->containers);
    free(e->uses);
    free(e);
}

/* The message of a container that has run can be its own; that of one which could not be started is
 * the runtime's. */
static const char *failure_of(struct json state) {
    const char *reason = json_string(JSON_PATH(state, "terminated", "reason"));

    return reason && strcmp(reason, "StartError") == 0
               ? json_string(JSON_PATH(state, "terminated", "message"))
               : json_string(JSON_PATH(state, "waiting", "message"));
}

static void read_statuses(struct pod_entry *e, struct json list, bool *running) {
    struct json_iter it = json_iter(list);
    struct json item;

    while (json_next(&it, NULL, &item) && e->ncontainers < CONTAINERS_MAX) {
        const char *name = json_string(json_get(item, "name"));
        const char *id = json_string(json_get(item, "containerID"));
        const char *failure = failure_of(json_get(item, "state"));
        struct pod_container *c = &e->containers[e->ncontainers];
        const char *scheme = id ? strstr(id, "://") : NULL;

        if (json_valid(JSON_PATH(item, "state", "running")))
            *running = true;
        if (!name || !scheme)
            continue;
        text_copy(c->name, sizeof(c->name), name);
        text_copy(c->id, sizeof(c->id), scheme + 3);
        c->failure = failure ? strdup(failure) : NULL;
        e->ncontainers++;
    }
}

const struct pod_claim_use *pod_claim_use_find(const struct pod_entry *e, const char *container,
                                               const char *claim) {
    for (size_t i = 0; i < e->nuses; i++)
        if ((!container || strcmp(e->uses[i].container, container) == 0) &&
            strcmp(e->uses[i].claim, claim) == 0)
            return &e->uses[i];
    return NULL;
}

int pod_entry_new(struct json object, bool claims, struct pod_entry **ret) {
    static const char *const lists[] = {"initContainerStatuses", "containerStatuses",
                                        "ephemeralContainerStatuses"};
    struct json status = json_get(object, "status");
    struct pod_entry *e = calloc(1, sizeof(*e));
    bool running = false;
    size_t n = 0;
    int r = e ? pod_parse(object, &e->pod, NULL) : -ENOMEM;

    if (r < 0) {
        free(e);
        return r;
    }
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        n += json_size(json_get(status, lists[i]));
    e->containers = calloc((n < CONTAINERS_MAX ? n : CONTAINERS_MAX) + 1, sizeof(*e->containers));
    r = e->containers ? 0 : -ENOMEM;
    if (r == 0 && claims)
        r = pod_claim_uses_read(object, &e->uses, &e->nuses);
    if (r < 0) {
        pod_entry_free(e);
        return r;
    }
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        read_statuses(e, json_get(status, lists[i]), &running);
    e->admitted = json_valid(json_get(status, "startTime"));
    e->stopped = e->ncontainers > 0 && !running;
    *ret = e;
    return 0;
}

const char *pod_container_name(const struct pod_entry *e, const char *id) {
    for (size_t i = 0; i < e->ncontainers; i++)
        if (strcmp(e->containers[i].id, id) == 0)
            return e->containers[i].name;
    return NULL;
}

/* ---- all of them ---- */

const struct pod_entry *pods_find(const struct pods *p, const char *uid) {
    struct pod_entry *e;

    HASH_FIND_STR(p->entries, uid, e);
    return e;
}

const struct pod_entry *pods_find_named(const struct pods *p, const char *namespace,
                                        const char *name) {
    for (const struct pod_entry *e = p->entries; e; e = e->hh.next)
        if (strcmp(e->pod.name, name) == 0 && strcmp(e->pod.namespace, namespace) == 0)
            return e;
    return NULL;
}

const struct pod_entry *pods_find_by(const struct pods *p,
                                     bool (*holds)(const struct pod_entry *e, const void *userdata),
                                     const void *userdata) {
    for (const struct pod_entry *e = p->entries; e; e = e->hh.next)
        if (holds(e, userdata))
            return e;
    return NULL;
}

static void remove_entry(struct pods *p, struct pod_entry *e, bool notify) {
    HASH_DEL(p->entries, e); /* NOLINT: the analyzer loses its way in uthash's lists */
    if (notify)
        p->handlers.on_gone(e, p->handlers.userdata);
    pod_entry_free(e);
}

/* Takes the entry in place of the one with its UID. False without memory: `e` is freed, and the old
 * entry stays. */
static bool insert_entry(struct pods *p, struct pod_entry *e) {
    struct pod_entry *old;

    HASH_FIND_STR(p->entries, e->pod.uid, old);
    e->seen = true;
    HASH_ADD_STR(p->entries, pod.uid, e);
    if (!hash_added(e)) {
        pod_entry_free(e);
        return false;
    }
    if (old)
        remove_entry(p, old, false);
    p->handlers.on_change(e, p->handlers.userdata);
    return true;
}

static void report_no_memory(struct pods *p) {
    p->incomplete = true;
    p->handlers.on_trouble("out of memory: the pods of this node are listed anew",
                           p->handlers.userdata);
}

static void on_sync_begin(void *userdata) {
    struct pods *p = userdata;

    p->incomplete = p->relisting = false;
    for (struct pod_entry *e = p->entries; e; e = e->hh.next)
        e->seen = false;
}

static void on_object(enum kube_event event, struct json object, void *userdata) {
    struct pods *p = userdata;
    struct pod_entry *e;
    int r = pod_entry_new(object, p->claims, &e);

    if (r == 0 && !insert_entry(p, e))
        r = -ENOMEM;
    if (r == -ENOMEM)
        report_no_memory(p);
    else if (r == 0 && event == KUBE_DELETED)
        remove_entry(p, e, true);
}

static void on_sync_end(void *userdata) {
    struct pods *p = userdata;
    struct pod_entry *e, *next;

    if (p->incomplete)
        return;
    HASH_ITER(hh, p->entries, e, next)
        if (!e->seen)
            remove_entry(p, e, true);
    p->ever_synced = true;
    p->handlers.on_synced(p->handlers.userdata);
}

static void on_trouble(const char *text, unsigned retry_ms, void *userdata) {
    struct pods *p = userdata;

    (void) retry_ms;
    p->handlers.on_trouble(text, p->handlers.userdata);
}

int pods_start(struct kube_client *client, const char *node, bool claims,
               const struct pods_handlers *handlers, struct pods **ret, struct err *err) {
    static const struct kube_reflector_handlers events = {
        .on_sync_begin = on_sync_begin,
        .on_object = on_object,
        .on_sync_end = on_sync_end,
        .on_trouble = on_trouble,
    };
    char query[KUBE_NAME_MAX + 64];
    struct kube_reflector_options options = {.path = "/api/v1/pods", .query = query, .page = 50};
    _cleanup_free_ struct pods *p = calloc(1, sizeof(*p));
    int r;

    if (!p)
        return err_set(err, ENOMEM, "out of memory");
    p->handlers = *handlers;
    p->claims = claims;
    (void) snprintf(query, sizeof(query), "fieldSelector=spec.nodeName%%3D%s", node);
    r = kube_reflector_start(client, &options, &events, p, &p->reflector, err);
    if (r == 0)
        *ret = take_ptr(p);
    return r;
}

void pods_stop(struct pods *p) {
    struct pod_entry *e, *next;

    kube_reflector_stop(p->reflector);
    HASH_ITER(hh, p->entries, e, next)
        remove_entry(p, e, false);
    free(p);
}

void pods_repair(struct pods *p) {
    if (!p->incomplete || p->relisting)
        return;
    p->relisting = true;
    kube_reflector_relist(p->reflector);
}

bool pods_ever_synced(const struct pods *p) {
    return p->ever_synced;
}

bool pods_synced(const struct pods *p) {
    return !p->incomplete && kube_reflector_is_synced(p->reflector);
}

size_t pods_unadmitted(const struct pods *p) {
    size_t n = 0;

    for (const struct pod_entry *e = p->entries; e; e = e->hh.next)
        n += !e->admitted && !e->pod.finished && !e->pod.deleting && e->pod.assignment != NULL;
    return n;
}
