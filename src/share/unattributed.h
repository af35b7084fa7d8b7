/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Memory of a card that is in use and belongs to no process that the driver lists and to no ledger.
 * Pure: no I/O, no clock.
 *
 * The figures are not read at one moment: memory that is taken or given back in between seems to
 * belong to no process. So a remainder counts when it was there at each of several polls in a
 * row: two if no ledger of the card moved meanwhile, UNATTRIBUTED_RESTLESS_POLLS if one did. What
 * counts is the least of the last two polls. */

#include <stdbool.h>
#include <stdint.h>

/* Remainders up to this are the driver's own: page tables, rounding. */
#define UNATTRIBUTED_NOISE ((uint64_t) 64 << 20)
/* More than this an idle card cannot have: the memory of an unseen process would count as noise. */
#define UNATTRIBUTED_NOISE_MAX ((uint64_t) 1 << 30)
#define UNATTRIBUTED_CONFIRM_MS 80
#define UNATTRIBUTED_RESTLESS_POLLS 8

struct unattributed_poll {
    uint64_t now_ms;
    uint64_t used;       /* bytes in use on the card, the driver's reserve left out */
    uint64_t attributed; /* bytes of processes and ledgers */
    bool still;          /* no ledger of the card moved since the poll began */
    bool idle;           /* no share of the card is given out, and no process is listed */
};

/* What is remembered of a card. All zero at first. */
struct unattributed {
    uint64_t noise;    /* remainder that the idle card showed, at most UNATTRIBUTED_NOISE_MAX */
    bool noise_known;  /* the card was idle once */
    uint64_t since_ms; /* the first poll of the run with a remainder; 0: there is none */
    uint64_t last;     /* the remainder of the last poll */
    uint32_t polls;    /* of the run */
    uint32_t still;    /* polls of the run at which no ledger moved */
    bool fading;       /* the last poll had no remainder, those before it had */
    uint64_t bytes;    /* the result; 0: everything is attributed */
};

/* The largest remainder, in bytes, that counts as the driver's own. */
uint64_t unattributed_tolerated(const struct unattributed *u);

/* Takes a poll in. Returns whether the next one should come soon, because this one found something
 * that is not certain yet. `u->bytes` may have changed. */
bool unattributed_poll(struct unattributed *u, const struct unattributed_poll *poll);
