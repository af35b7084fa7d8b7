/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The arbiter at work: a thread that reads the accounts of containers, decides by
 * share/arbitration.h and writes their grants. It sleeps on the containers' bells (futex_waitv,
 * Linux 5.16; before that by a short tick), steps a card every 10 ms while a container wants it and
 * every 50 ms while none does, and sleeps while there is no container. Used by the agent and by
 * `aliquot run`.
 *
 * All calls may come from any thread, but one at a time per member. */

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "share/arbitration.h"
#include "share/limits.h"

struct arbiter;
struct arbiter_member;

/* Starts the thread. One for each card of a machine must be enough: two that write grants of
 * containers on the same card do not know of each other. */
int arbiter_start(struct arbiter **ret, struct err *err);

/* Ends the thread and forgets all members; grants stay as they are and age. Returns NULL; accepts
 * NULL. */
struct arbiter *arbiter_stop(struct arbiter *arbiter);

/* Takes a container in, with the files of share/compute.h, and grants it what it is due at once.
 * It is known by the cards of its limits; a device it has no account for is left out. */
int arbiter_join(struct arbiter *arbiter, const struct share_limits *limits,
                 const char *grants_path, const char *compute_path, struct arbiter_member **ret,
                 struct err *err);

/* Its share, policy, weight or ceiling has changed; the cards are the same. */
void arbiter_change(struct arbiter_member *member, const struct share_limits *limits);

/* GPU time in ns that the driver has seen it take on a device of its share, since it started;
 * corrects its own account, slowly and within bounds. */
void arbiter_driver(struct arbiter_member *member, uint32_t device, uint64_t ns);

/* Returns NULL; accepts NULL. */
struct arbiter_member *arbiter_leave(struct arbiter_member *member);

/* What is known about a container on one card. */
struct arbiter_view {
    enum share_policy policy;
    struct compute_usage usage; /* as its processes have written it */
    uint32_t taken;             /* parts per million of the card, of late */
    uint32_t entitled;          /* what it would get now */
    uint64_t launched;          /* CLOCK_REALTIME in ns of the last launch; 0: not known */
    bool active;                /* it wants the card */
    bool damaged;               /* its account cannot be read */
};

/* Zeroes for a device that is not part of the share. */
void arbiter_view(const struct arbiter_member *member, uint32_t device, struct arbiter_view *ret);

struct arbiter_stats {
    uint64_t turns;  /* of the thread */
    uint64_t steps;  /* decisions about a card */
    uint64_t rings;  /* bells heard */
    uint64_t cpu_ns; /* of the thread */
};
void arbiter_stats(struct arbiter *arbiter, struct arbiter_stats *ret);
