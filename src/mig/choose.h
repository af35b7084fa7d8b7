/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Where an instance is made on demand: on which of several cards, and at which memory slice. Pure.
 */

#include "mig/want.h"

/* A card on which it can be made. All instances of `card` stay but those that are removable. */
struct mig_site {
    const struct mig_card *card;
    uint32_t removable; /* bit by instance: may be destroyed where its room is needed */
};

struct mig_choice {
    uint32_t site;
    uint32_t profile; /* index in the profiles of the card */
    uint32_t start;   /* memory slice */
    uint32_t removed; /* bit by instance: those to be destroyed first */
    uint64_t harm;    /* by how much it reduces mig_potential() */
    uint64_t left;    /* mig_potential() afterwards */
};

/* What can still be made on the card beside its instances, without those in `removed`: for each
 * profile the memory slices of as many instances as fit, all profiles added up. */
uint64_t mig_potential(const struct mig_card *card, uint32_t removed);

/* Whether one placement is better than another one; equal ones are not. */
bool mig_choice_is_better(const struct mig_choice *a, const struct mig_choice *b);

/* The placement of one whole instance of the profile `name` that destroys the fewest instances,
 * each of which is in its way, of those the one that reduces mig_potential() least, of those on the
 * card that has least of it; then the first card and the lowest slice. Instances that may be
 * destroyed count as gone in mig_potential(). -ENOSPC: there is no room on any card; -ENODEV: no
 * card has such a profile. */
int mig_choose(const struct mig_site *sites, uint32_t n, const struct mig_name *name,
               struct mig_choice *ret);
