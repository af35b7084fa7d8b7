/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Wakes kube-scheduler for pods that were refused and would fit now.
 *
 * kube-scheduler asks about a waiting pod again when something happens in the cluster, and learns
 * of that by watches of its own. It may ask before our watches have shown the same, be refused once
 * more, and then has no reason left to ask again for minutes. What wakes it is a change to an
 * object that it watches: the annotation of a CSIStorageCapacity of ours, which means nothing to
 * anybody else. */

#include <stdbool.h>
#include <stdint.h>

#include "place/place.h"
#include "scheduler/cluster/api.h"
#include "scheduler/extender/gate.h"
#include "scheduler/state/state.h"

struct wake {
    struct state *state;
    struct api api;
    const struct gates *gates; /* may be NULL */
    const char *name_space;
    uint64_t sent_ms; /* when the last one was sent */
    bool sending;
    bool again;                 /* the last one failed */
    bool asked;                 /* wake_ask() */
    uint64_t rounds;            /* how often all that wait have been looked at */
    uint64_t sent, failed;      /* counters */
    struct gpu_request request; /* scratch of one call */
    struct place_plan plan;
};

/* The next wake_run() wakes, whether anybody fits or not. */
void wake_ask(struct wake *w);

/* To be called after changes and from time to time; does nothing when nobody is to be woken, and
 * writes at most once a second. */
void wake_run(struct wake *w, uint64_t now_ms);
