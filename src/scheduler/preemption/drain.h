/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Evicts the pods that agents name in GPU.status.evict: those on cards that are to be drained. The
 * agents themselves may evict nothing, because no admission policy can limit that to their node.
 * Here a pod is evicted only if it is on the node of the GPU object; the Eviction API holds
 * disruption budgets. Entries are by GPU object and pod, so that one object has no influence on the
 * pods of another. Nothing is stored: a new leader begins with what the objects name. */

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "kube/objects/gpu_object.h"
#include "scheduler/cluster/api.h"

struct drain_pod;
struct event_writer;

struct drainer {
    struct api api;
    struct event_writer *events;   /* NULL: none are written */
    bool (*leads)(void *userdata); /* whether this replica may write */
    uint64_t (*now)(void *userdata);
    void *userdata;
    struct drain_pod *pods; /* uthash by GPU object and UID */
    unsigned in_flight;
    uint64_t evicted, refused, failed; /* counters */
};

/* The GPU object names these pods now. -ENOMEM: some of them are missing. */
int drainer_see(struct drainer *d, const struct gpu_object *gpu);

/* The GPU object of that name is deleted, or cannot be read. */
void drainer_gone(struct drainer *d, const char *gpu);

/* Around a whole list of GPU objects: what it does not name is dropped at its end. */
void drainer_sync_begin(struct drainer *d);
void drainer_sync_end(struct drainer *d);

/* Sends what is due. After changes, about once a second, and on the leader only. */
void drainer_run(struct drainer *d);

void drainer_done(struct drainer *d);
