/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How much of what a ledger has orphaned (share/ledger_core.h) is back on the card. Pure: no I/O,
 * no clock.
 *
 * Memory that only descriptors keep is in the card's figure and in that of no process. So of the
 * bytes that are orphaned at most those are held that the card has in use beyond its processes. The
 * two figures are not of one moment: bytes are credited that were orphaned at the start of two
 * polls of the driver in a row, and by the higher of the two results. If a ledger moved during one
 * of the two, memory that came and went may have been in the figure of its process and not in the
 * card's: then eight polls count in the place of two. */

#include <stdbool.h>
#include <stdint.h>

/* What a card may have in use for no process, without anything being held: the driver's own, and
 * what it is about to give back. */
#define ORPHANED_NOISE ((uint64_t) 64 << 20)

#define ORPHANED_POLLS 8

/* Of one account of a ledger. All zero at first. */
struct orphaned {
    uint64_t now, before;           /* orphaned when this poll and the one before it began */
    uint64_t bytes[ORPHANED_POLLS]; /* the same of the latest polls, in a ring */
    uint64_t rest[ORPHANED_POLLS];  /* their results */
    uint32_t polls;                 /* how many there were */
    uint32_t still;                 /* at how many of the latest no ledger moved */
};

/* A poll of the driver begins. */
void orphaned_begin(struct orphaned *o, uint64_t bytes);

/* It has ended: the card has `rest` bytes in use that neither its processes nor other ledgers
 * account for. `still`: no ledger of the card moved during the poll. Returns the bytes to credit.
 */
uint64_t orphaned_end(struct orphaned *o, uint64_t rest, bool still);

/* Whether some of it was seen once only, so that the next poll should come soon. */
bool orphaned_is_new(const struct orphaned *o);
