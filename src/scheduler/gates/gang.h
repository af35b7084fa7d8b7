/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Gangs: all of their pods get a share, or none does. Filter refuses the members until all exist
 * and fit together; then all get assumed allocations at once, for the gang's timeout, and the
 * pods are requeued. Because that is one step, two gangs never block each other with halves: the
 * gang with the oldest pod goes first. Members that are not bound by the timeout lose their
 * allocation, and the gang tries again. */

#include <stdbool.h>
#include <stdint.h>

#include "place/place.h"
#include "scheduler/extender/extender.h"
#include "scheduler/extender/gate.h"
#include "scheduler/state/state.h"

struct gang;

/* Of members that ask by ResourceClaims. */
struct gang_claims {
    /* Has all claims of the pod hold what they are to have: the pod is at POD_ASSUMED then. False:
     * there is no room, or it cannot be placed now; `why` may say why. */
    bool (*place)(struct state_pod *pod, uint64_t now_ms, struct buf *why, void *userdata);
    /* Takes that back, as far as the API server has not been told. */
    void (*release)(struct state_pod *pod, void *userdata);
    /* What all of that has cost beside a placement for each member, in steps of selectors. */
    uint64_t (*spent)(void *userdata);
    void *userdata;
};

struct gangs {
    struct state *state;
    const struct gates *gates; /* what holds one member holds all; may be NULL */
    extender_refusal refuse;   /* writes an Event; may be NULL */
    void *userdata;
    struct gang_claims claims;           /* all NULL where pods with claims are not kept */
    struct gang *all;                    /* uthash */
    uint64_t pods_generation;            /* the state's, when `all` was made */
    uint64_t round;                      /* in which each gang that waits is tried once */
    uint64_t tried_ms, tried_generation; /* when all were, of which pods */
    uint64_t window_ms, placed;          /* what is tried is bounded in each second */
    bool trying;
    struct gpu_request request; /* scratch of one call */
    struct place_plan plan;
};

void gangs_done(struct gangs *g);

/* Another replica leads from now on: the state of the gangs is reset. Their assumed allocations
 * expire as all do. */
void gangs_forget(struct gangs *g);

/* The gate; `self` is struct gangs. */
bool gangs_open(void *self, struct state_pod *pod, uint64_t now_ms, struct buf *why);

/* To be called about once a second: releases expired allocations. */
void gangs_tick(struct gangs *g, uint64_t now_ms);
