/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Who may have how much, in the daemon: the watches, gates and status of quotas and reservations,
 * and the gate and the times of gangs. */

#include "kube/api/reflector.h"
#include "scheduler/gates/gang.h"
#include "scheduler/gates/quota.h"
#include "scheduler/gates/reservation.h"

struct scheduler;
struct watch_handlers;

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

/* For rows of watch_kinds.c. */
extern const struct watch_handlers govern_quotas, govern_resource_quotas, govern_reservations;
