/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A change of a card by single instances, each at an exact place: all others stay. Pure, and plain
 * data. */

#include "mig/want.h"

#define MIG_EDIT_MAX 16

/* A whole GPU instance. */
struct mig_place {
    struct mig_name name;
    uint32_t start; /* memory slice */
};

struct mig_edit {
    uint32_t nmake, nremove;
    struct mig_place make[MIG_EDIT_MAX];
    struct mig_place remove[MIG_EDIT_MAX];
};

/* The instance of the card at that place, with one compute instance; NULL: there is none. */
const struct mig_instance *mig_edit_find(const struct mig_card *card,
                                         const struct mig_place *place);

/* What the card has after the edit, all at exact places. One to be removed goes with whatever
 * compute instances it has; if it is in use, it stays. One to be made that is there is no change.
 * -ENOSPC: one to be made has no room beside those that stay; -EINVAL: the card can have no such
 * instance there. */
int mig_want_edit(const struct mig_card *card, const struct mig_edit *edit, struct mig_want *ret,
                  struct err *err);
