/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A container's account of one card's time, as one process sees it (share/compute_core.h). Only
 * arithmetic: the caller brings the time and does the waiting, so the same code runs in virtual
 * time. All is atomic; any thread of any process at any time. */

#include <stdbool.h>
#include <stdint.h>

#include "share/compute_core.h"

/* How much unused time an account keeps without an arbiter; the arbiter's value while no container
 * has long kernels. */
#define ACCOUNT_DEPTH_NS 20000000ull

/* A debt beyond this comes from a damaged file and is forgiven. */
#define ACCOUNT_DEBT_MAX_NS 60000000000ull

struct account {
    struct compute_device *shared;
    const struct grants_file *grants; /* NULL: there is no arbiter and never will be */
    const struct grant_device *grant; /* the card's in `grants` */
    uint32_t *bell;                   /* or NULL */
    /* State of this process. */
    uint64_t pass;    /* how far `charged` may advance without reading the clock */
    uint64_t beat;    /* the arbiter's last beat that we saw */
    uint64_t beat_ns; /* and when it moved */
    uint64_t rung_ns; /* when we last rang the bell */
};

/* What is in force now. */
struct account_terms {
    uint32_t rate; /* ppm, or RATE_UNLIMITED */
    uint64_t depth;
    uint64_t window; /* ns of queued work; 0: any */
};

/* Adds what a launch costs; returns its place in the account. */
static inline uint64_t account_charge(struct account *account, uint64_t cost) {
    return __atomic_fetch_add(&account->shared->charged, cost, __ATOMIC_RELAXED);
}

/* Whether a launch with this ticket may proceed without reading the clock. */
static inline bool account_passes(const struct account *account, uint64_t place) {
    return (int64_t) (place - __atomic_load_n(&account->pass, __ATOMIC_RELAXED)) <= 0;
}

/* Corrects the charge by what a measurement has shown; negative: takes back. */
void account_correct(struct account *account, int64_t ns);

/* The terms: the arbiter's while it is at work, otherwise `own_rate` (ppm; 0: no limit). */
struct account_terms account_terms(struct account *account, uint32_t own_rate, uint64_t now_ns);

/* Fills the account up to now; returns how far it may go. */
uint64_t account_fill(struct account *account, const struct account_terms *terms, uint64_t now_ns);

/* How long a launch with this place must wait from now on, at most COMPUTE_WAIT_NS; 0: not at all.
 * Tells the arbiter that a launch waits; *ret_ring: the bell is to be woken. */
uint64_t account_wait(struct account *account, const struct account_terms *terms, uint64_t place,
                      uint64_t now_ns, bool *ret_ring);
