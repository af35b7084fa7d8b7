/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The MIG instances that a card can have, each as a device for claims: what can be made, whether it
 * is there or not. Counters keep kube-scheduler from allocating two of one part of the card. */

#include <stdbool.h>
#include <stdint.h>

#include "kube/objects/resource_slice.h"
#include "mig/edit.h"

struct gpu_device;
struct gpu_snapshot;

#define DRA_PLACEMENTS_MAX 64 /* of a card */

/* All places of whole GPU instances, the largest first: the first one is the whole card, where it
 * has such a profile. */
uint32_t dra_placements(const struct mig_card *card,
                        struct mig_place ret[static DRA_PLACEMENTS_MAX]);

/* The name of the device, of the card's UUID. */
void dra_placement_name(const char *uuid, const struct mig_place *place,
                        char ret[static DEVICE_NAME_MAX]);

/* What it is and has: name, profile, parent, core, memory and counters. */
void dra_placement_describe(const char *uuid, const struct mig_card *card,
                            const struct mig_place *place, struct slice_device *ret);

/* The counters of the card, all of which its placements share. */
void dra_placement_set(const char *uuid, const struct mig_card *card, struct slice_counters *ret);

/* The place whose device on that card has the name. */
bool dra_placement_find(const char *uuid, const struct mig_card *card, const char *name,
                        struct mig_place *ret);

/* The instance that is there, with one compute instance; NULL: none is. */
const struct gpu_device *dra_placement_instance(const struct gpu_snapshot *s, const char *uuid,
                                                const struct mig_card *card,
                                                const struct mig_place *place);
