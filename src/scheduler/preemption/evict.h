/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Preemption for shortages that kube-scheduler cannot see, those of single cards: for a refused pod
 * of higher priority the cheapest victims are evicted through the Eviction API, which respects
 * disruption budgets, and the freed share is reserved for the pod until it is bound. The progress
 * is in the pods: status.nominatedNodeName of the waiting pod, the deletionTimestamp of the
 * victims. So a restarted scheduler evicts no additional pods.
 */

#include <stdbool.h>
#include <stdint.h>

#include "scheduler/cluster/api.h"
#include "scheduler/extender/extender.h"
#include "scheduler/preemption/preempt.h"

struct evict_case;

struct evictor {
    struct state *state;
    struct preempt *preempt;
    struct api api;
    struct event_writer *events;     /* NULL: none are written */
    bool (*leads)(void *userdata);   /* whether this replica may write */
    void (*changed)(void *userdata); /* evictor_run() is to be called soon */
    /* kube-scheduler is to ask about the pods that wait again */
    void (*ask_again)(void *userdata);
    uint64_t (*now)(void *userdata);
    void *userdata;
    struct evict_case *cases; /* uthash by UID of the pod that waits */
    uint64_t adopted_ms;      /* last search for preemptions in progress */
    uint64_t window_ms;       /* start of the current second */
    unsigned in_window;
    uint32_t tests;                   /* that this run may still take, see victims_choose() */
    uint64_t evicted, spared, failed; /* counters */
};

void evictor_done(struct evictor *e);

/* kube-scheduler offered these nodes for the pod and none has room. */
void evictor_refused(struct evictor *e, const struct state_pod *pod,
                     const struct extender_candidate *candidates, size_t n, uint64_t now_ms);

/* To be called after changes and about once a second. */
void evictor_run(struct evictor *e, uint64_t now_ms);

/* The same if it was not called for longer than that: this replica has just become the leader. */
void evictor_catch_up(struct evictor *e, uint64_t now_ms);

/* How many pods wait for room that is being made. */
unsigned evictor_waiting(const struct evictor *e);
