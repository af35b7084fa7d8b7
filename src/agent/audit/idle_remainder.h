/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What remainder each idle card showed, in the file "noise" of the state directory. An agent that
 * is restarted while shares are given out sees no idle card, and would take the driver's own memory
 * for memory that belongs to no container. What another version of the driver showed counts no
 * more; a boot of the node empties the state directory. */

#include "share/unattributed.h"

/* Begins with what an earlier agent has noted of the card with that driver; nothing where there is
 * no such note, or one that makes no sense. */
void idle_remainder_load(const char *state_dir, const char *driver, const char *uuid,
                         struct unattributed *u);

/* Notes what was learned of the card by a look, when that changes what is tolerated. `before` is
 * the state before the look. A note that cannot be written is logged. */
void idle_remainder_save(const char *state_dir, const char *driver, const char *uuid,
                         const struct unattributed *before, const struct unattributed *u);
