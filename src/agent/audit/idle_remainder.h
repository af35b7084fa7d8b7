/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The unattributed memory that each idle card had, in the file "noise" of the state directory. An
 * agent that restarts while shares exist sees no idle card, and would report the driver's own
 * memory as unattributed. Entries of another driver version are ignored; a boot of the node empties
 * the state directory. */

#include "share/unattributed.h"

/* Initializes `u` from the entry of an earlier agent for the card and driver; no effect without a
 * valid entry. */
void idle_remainder_load(const char *state_dir, const char *driver, const char *uuid,
                         struct unattributed *u);

/* Saves the state of the card after a poll if the tolerance changed. `before` is the state before
 * the poll. A failed write is logged. */
void idle_remainder_save(const char *state_dir, const char *driver, const char *uuid,
                         const struct unattributed *before, const struct unattributed *u);
