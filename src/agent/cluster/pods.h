/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The pods of this node, from a watch of the API server. */

#include <stdbool.h>

#include "base/hash.h"
#include "kube/objects/pod.h"
#include "kube/objects/pod_claim_uses.h"
#include "wire/json.h"

struct err;
struct kube_client;
struct pods;

struct pod_container {
    char name[KUBE_LABEL_MAX];
    char id[65];   /* without "containerd://" */
    char *failure; /* why it could not be started, as kubelet reports it; NULL: not reported */
};

struct pod_entry {
    struct pod pod;
    size_t nuses; /* of claims that are there, init containers included; bounded */
    struct pod_claim_use *uses;
    size_t ncontainers; /* that have an ID, init containers included */
    struct pod_container *containers;
    bool admitted; /* or refused, by kubelet: it has written the pod's status */
    bool stopped;  /* kubelet has reported every container that ever ran as terminated */
    bool seen;     /* in the list that is being received */
    UT_hash_handle hh;
};

struct pods_handlers {
    void (*on_change)(const struct pod_entry *e, void *userdata); /* new or different */
    void (*on_gone)(const struct pod_entry *e,
                    void *userdata);   /* its last state; freed afterwards */
    void (*on_synced)(void *userdata); /* a whole list was received */
    void (*on_trouble)(const char *text, void *userdata);
    void *userdata;
};

/* `claims`: the uses of ResourceClaims are read. */
int pods_start(struct kube_client *client, const char *node, bool claims,
               const struct pods_handlers *handlers, struct pods **ret, struct err *err);
void pods_stop(struct pods *p);

const struct pod_entry *pods_find(const struct pods *p, const char *uid);
/* By a search through all of them. */
const struct pod_entry *pods_find_named(const struct pods *p, const char *namespace,
                                        const char *name);

/* The first one of which that holds; NULL: there is none. */
const struct pod_entry *pods_find_by(const struct pods *p,
                                     bool (*holds)(const struct pod_entry *e, const void *userdata),
                                     const void *userdata);

/* Whether at least one whole list was received: only then does an absent pod not exist. */
bool pods_ever_synced(const struct pods *p);
bool pods_synced(const struct pods *p);

/* How many pods with a share kubelet has not admitted yet. */
size_t pods_unadmitted(const struct pods *p);

/* Name of the container with that ID, or NULL. */
const char *pod_container_name(const struct pod_entry *e, const char *id);

/* Whether the container, or with NULL any of the pod, uses that claim; the first that does. */
const struct pod_claim_use *pod_claim_use_find(const struct pod_entry *e, const char *container,
                                               const char *claim);

/* To be called periodically, not from a handler: lists the pods again after one was dropped for
 * lack of memory. Until that list is complete, no pod is reported as gone and pods_synced() is
 * false.
 */
void pods_repair(struct pods *p);

/* Reads one pod; for pods_start and tests. -EINVAL: not a pod; -ENOMEM. */
int pod_entry_new(struct json object, bool claims, struct pod_entry **ret);
void pod_entry_free(struct pod_entry *e);
