/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Has kube-scheduler retry pods that were refused and would fit now.
 *
 * kube-scheduler retries a waiting pod when something happens in the cluster, which it learns by
 * watches of its own. It may retry before our watches have shown the same, have the pod refused
 * once more, and then has no reason to retry for minutes. So a change is made to an object that it
 * watches: the annotation of a CSIStorageCapacity of ours, which has no other meaning. */

#include <stdbool.h>
#include <stdint.h>

#include "place/place.h"
#include "scheduler/cluster/api.h"
#include "scheduler/extender/gate.h"
#include "scheduler/state/state.h"

struct requeue {
    struct state *state;
    struct api api;
    const struct gates *gates; /* may be NULL */
    const char *name_space;
    uint64_t sent_ms; /* when the last request was sent */
    bool sending;
    bool failing;               /* the last one failed */
    bool requested;             /* requeue_request() */
    uint64_t rounds;            /* how often all waiting pods have been evaluated */
    uint64_t sent, failed;      /* counters */
    struct gpu_request request; /* scratch of one call */
    struct place_plan plan;
};

/* The next requeue_run() sends a request, whether or not a pod fits. */
void requeue_request(struct requeue *r);

/* Has kube-scheduler retry its pods if one of them may fit now; at most once a second. To be called
 * after changes and from time to time. */
void requeue_run(struct requeue *r, uint64_t now_ms);
