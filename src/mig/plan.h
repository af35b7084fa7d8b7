/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The plan of a repartition beside instances in use. What is wanted and exists stays; what is in
 * use is never destroyed; idle surplus is destroyed; the rest is made at exact placements. Nothing
 * is destroyed unless all that is wanted can be reached. Pure: nothing is executed, no clock. */

#include "mig/want.h"

enum mig_outcome {
    MIG_REACHED, /* nothing is to be done */
    MIG_CHANGE,  /* the steps below lead there */
    MIG_PENDING, /* the blockers are in use; nothing is to be done until they are idle */
};

enum mig_fate {
    MIG_STAYS,  /* as it is */
    MIG_REFITS, /* the GPU instance stays, its idle compute instances change */
    MIG_DESTROY,
};

struct mig_make {
    uint32_t wanted; /* index in the wanted instances */
    uint32_t start;  /* memory slice */
};

struct mig_plan {
    enum mig_outcome outcome;
    bool set_mode;     /* to what is wanted: before the rest to divide, after it to undivide */
    bool card_blocks;  /* pending: the card itself is in use, and its mode is to change */
    uint32_t blockers; /* pending: bit by instance; the fewest whose end makes the plan possible */
    enum mig_fate fate[MIG_CARD_INSTANCES_MAX]; /* by instance */
    uint32_t becomes[MIG_CARD_INSTANCES_MAX];   /* of one that stays or refits: the wanted one */
    uint32_t nmake;
    struct mig_make make[MIG_CARD_INSTANCES_MAX]; /* after all that is destroyed is gone */
};

/* All placements are searched: of the plans that reach what is wanted the one that destroys the
 * fewest instances, then refits the fewest, then leaves most room for others. -ENOSPC where the
 * wanted instances do not fit on an idle card; -EOPNOTSUPP where MIG is wanted of a card without
 * it. */
int mig_plan(const struct mig_card *card, const struct mig_want *want, struct mig_plan *ret,
             struct err *err);

/* Whether one card can have the wanted instances at all, wherever they are: -ENOSPC where there are
 * more of a profile, or of media engines, than it has. */
int mig_plan_check_limits(const struct mig_card *card, const struct mig_want *want,
                          struct err *err);

/* The slices of the compute instances that a refit destroys (bits by index in `instance`) and makes
 * (the largest first). -EBUSY where the ones in use do not fit among the wanted. */
struct mig_refit {
    uint32_t destroy;
    uint32_t nmake;
    uint32_t make[MIG_COMPUTE_MAX];
};
int mig_plan_refit(const struct mig_instance *instance, uint32_t slices,
                   const struct mig_wanted *wanted, struct mig_refit *ret);

/* "waits for 3g.40gb at 4 (in use by ...), ..." for a pending plan. */
struct buf;
void mig_plan_explain(const struct mig_card *card, const struct mig_plan *plan, struct buf *out);
