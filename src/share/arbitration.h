/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Divides the time of a card among containers: the policy, without a clock, memory or I/O of its
 * own. The caller steps it for each card, after the time that arbitration_step returns and when a
 * bell rings, with CLOCK_MONOTONIC or with any virtual time.
 *
 *   fixed        its share, never more, even alone
 *   burst        its share guaranteed; what others leave, up to its ceiling, until they want it
 *   weighted     by weight over all containers of this policy, idle or not; as fixed, never more
 *   weak         by weight over those that want the card now
 *   online       all that it wants, before all containers without a share of their own
 *   best-effort  what is left, by weight
 *   offline      what is left after that
 *
 * Shares are served first (scaled down together if they exceed the card), then weighted and weak by
 * what these leave. What those do not want now is lent: first to online, then to burst, weak and
 * best-effort by weight, then to offline. Every container with pending work is guaranteed
 * ARBITRATION_FLOOR: no policy lets a launch wait for ever.
 *
 * The demand of a container shows in its account: it waits, or its `charged` moves. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "share/compute.h"

/* Parts per million of the card. */
#define ARBITRATION_FLOOR 5000u

/* One container on one card. */
struct arbitration_tenant {
    /* The caller sets these before each step. */
    enum share_policy policy;   /* SHARE_DEFAULT: fixed with a share, otherwise best-effort */
    uint32_t share_percent;     /* 0: none */
    uint32_t ceiling_percent;   /* 0: 100 */
    uint32_t weight;            /* 0: share_percent, or 1 */
    struct compute_usage usage; /* any numbers: wrong ones only cost the tenant that wrote them */
    /* GPU time that the driver has seen the container take, ns, a counter; 0: not known. It shows
     * up to a second late, so it only trims the rate slowly. */
    uint64_t driver_ns;
    uint64_t pending_ns; /* part of `charged` that the caller added and that may be taken back */

    /* The step sets this; `changed`: hand it to compute_grant. */
    struct compute_grant grant;
    bool changed;
    uint64_t unpaid_ns; /* to be added to `charged`: what the driver saw and the account lacks */
    bool active;        /* wants the card */
    uint32_t taken;     /* ppm of the card that it took of late, by its own account */
    uint32_t entitled;  /* ppm that it would get now if it had demand */

    /* The arbiter's own; all zero for a container that is new. */
    struct {
        bool known;
        uint64_t seen_ns, active_ns, rise_ns, waits_ns;
        uint64_t sent, waits, running;
        uint64_t pending, ran; /* ns of work charged that is still to run, and that ran last */
        uint64_t driver_ns, trim_charged;
        uint64_t excused_ns; /* of the driver's figures, explained by `pending_ns` so far */
        uint64_t owes;       /* ns of lent time that it has to make up for */
        uint32_t trim;       /* what the driver saw, in 1024ths of what was charged */
        uint32_t sure;       /* guaranteed ppm */
        uint32_t wanted;     /* demand, ppm */
        uint32_t room;
        uint32_t entitled; /* ppm, the step before */
    } state;
};

/* Decides for all containers of one card. `now_ns` never goes back (a jump forward is taken as time
 * in which nothing was seen). Returns after how many ns to step again; a bell makes it earlier. */
uint64_t arbitration_step(struct arbitration_tenant *tenants, size_t n, uint64_t now_ns);
