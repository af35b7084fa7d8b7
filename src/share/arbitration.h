/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The arbiter at work: a thread that reads the accounts of containers, decides by share/arbiter.h
 * and writes their grants. It sleeps on the containers' bells (futex_waitv, Linux 5.16; before that
 * by a short tick), steps a card every 10 ms while a container wants it and every 50 ms while
 * none does, and sleeps while there is no container. Used by the agent and by `aliquot
 * run`.
 *
 * All calls may come from any thread, but one at a time per member. */

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "share/arbiter.h"
#include "share/limits.h"

struct arbitration;
struct arbitration_member;

/* Starts the thread. One for each card of a machine must be enough: two that write grants of
 * containers on the same card do not know of each other. */
int arbitration_start(struct arbitration **ret, struct err *err);

/* Ends the thread and forgets all members; grants stay as they are and age. Returns NULL; accepts
 * NULL. */
struct arbitration *arbitration_stop(struct arbitration *arbitration);

/* Takes a container in, with the files of share/compute.h, and grants it what it is due at once.
 * It is known by the cards of its limits; a device it has no account for is left out. */
int arbitration_join(struct arbitration *arbitration, const struct share_limits *limits,
                     const char *grants_path, const char *compute_path,
                     struct arbitration_member **ret, struct err *err);

/* Its share, policy, weight or ceiling has changed; the cards are the same. */
void arbitration_change(struct arbitration_member *member, const struct share_limits *limits);

/* GPU time in ns that the driver has seen it take on a device of its share, since it started;
 * corrects its own account, slowly and within bounds. */
void arbitration_driver(struct arbitration_member *member, uint32_t device, uint64_t ns);

/* Returns NULL; accepts NULL. */
struct arbitration_member *arbitration_leave(struct arbitration_member *member);

/* What is known about a container on one card. */
struct arbitration_view {
    enum share_policy policy;
    struct compute_usage usage; /* as its processes have written it */
    uint32_t taken;             /* parts per million of the card, of late */
    uint32_t entitled;          /* what it would get now */
    bool active;                /* it wants the card */
    bool damaged;               /* its account cannot be read */
};

/* Zeroes for a device that is not part of the share. */
void arbitration_view(const struct arbitration_member *member, uint32_t device,
                      struct arbitration_view *ret);

struct arbitration_stats {
    uint64_t turns;  /* of the thread */
    uint64_t steps;  /* decisions about a card */
    uint64_t rings;  /* bells heard */
    uint64_t cpu_ns; /* of the thread */
};
void arbitration_stats(struct arbitration *arbitration, struct arbitration_stats *ret);
