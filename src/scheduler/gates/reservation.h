/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Reservations: shares that are kept for pods which are not there yet. Each is reserved
 * capacity of the state, on cards that its status names as soon as it is placed. A pod that it is
 * for is placed on those cards as long as it fits there, and draws on that capacity first. */

#include <stdbool.h>
#include <stdint.h>

#include "kube/objects/reservation_object.h"
#include "scheduler/state/state.h"

struct reservation;

struct reservations {
    struct state *state;
    struct reservation *all;    /* uthash by name */
    bool unsorted;              /* they are to be put in the order of their names */
    uint32_t round;             /* in which each unplaced one is tried once */
    uint32_t placed;            /* placements of the last tick */
    struct gpu_request request; /* scratch of one call */
    struct place_plan plan;
};

void reservations_done(struct reservations *r);

/* ---- watch events ---- */

void reservations_sync_begin(struct reservations *r);
void reservations_sync_end(struct reservations *r);

/* Takes over the object's assignment. 0 or -ENOMEM. */
int reservations_seen(struct reservations *r, struct reservation_object *object);
void reservations_gone(struct reservations *r, const char *name);

/* ---- at work ---- */

/* Keeps the pods of owners to what is kept for them; to be added to the state. */
struct state_selector reservations_selector(struct reservations *r);

/* The gate, always open: has the pod draw on the first reservation for it in which it fits. `self`
 * is struct reservations. */
bool reservations_open(void *self, struct state_pod *pod, uint64_t now_ms, struct buf *why);

/* To be called about once a second on the leader, with the time of day: places and expires
 * reservations, finds the pods that draw on them, and calls `patch` for up to `max` changed
 * statuses, in turns. */
void reservations_tick(struct reservations *r, int64_t now, unsigned max,
                       void (*patch)(const char *name, const struct reservation_status *status,
                                     void *userdata),
                       void *userdata);
