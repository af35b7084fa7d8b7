/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Who may have how much, in the daemon: the watches, gates and status of quotas and reservations,
 * and the gate and the times of gangs. */

#include "kube/api/reflector.h"
#include "scheduler/gates/gang.h"
#include "scheduler/gates/quota.h"
#include "scheduler/gates/reservation.h"

struct scheduler;

struct govern {
    struct quotas quotas;
    struct gangs gangs;
    struct reservations reservations;
    unsigned in_flight; /* patches of a status */
};

/* Adds the gates and the selector. 0, or -ENOSPC: a table is full. */
int govern_start(struct scheduler *s);
void govern_done(struct scheduler *s);

/* About once a second, by the replica that acts. */
void govern_tick(struct scheduler *s);

/* To be called when another replica may act. */
void govern_lost(struct scheduler *s);

/* Handlers for rows of watch_kinds.c. */
void govern_quotas_begin(struct scheduler *s);
void govern_quota(struct scheduler *s, enum kube_event event, struct json object);
void govern_quotas_end(struct scheduler *s);
void govern_resource_quotas_begin(struct scheduler *s);
void govern_resource_quota(struct scheduler *s, enum kube_event event, struct json object);
void govern_resource_quotas_end(struct scheduler *s);
void govern_reservations_begin(struct scheduler *s);
void govern_reservation(struct scheduler *s, enum kube_event event, struct json object);
void govern_reservations_end(struct scheduler *s);
