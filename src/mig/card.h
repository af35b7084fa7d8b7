/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A card that can be divided, as the driver reports it: GPU instance profiles, their possible
 * placements, and the instances that exist. Plain data, filled by gpu/mig/card_read.h. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mig/name.h"

#define MIG_CARD_PROFILES_MAX 24
#define MIG_CARD_INSTANCES_MAX 8
#define MIG_COMPUTE_MAX 8 /* compute instances of a GPU instance */
#define MIG_SLICES_MAX 32 /* memory slices of a card */
#define MIG_ENGINES 4     /* decoder, encoder, JPEG, OFA */
#define MIG_HOLDERS_MAX 160

/* A kind of GPU instance. */
struct mig_card_profile {
    uint32_t number; /* NVML_GPU_INSTANCE_PROFILE_... */
    uint32_t id;     /* in calls that create, and in the infos of instances */
    struct mig_name name;
    uint32_t most;   /* instances on a card that has no others */
    uint32_t starts; /* bit by memory slice at which an instance may begin */
    uint32_t size;   /* memory slices of an instance */
    uint64_t memory; /* bytes of an instance; 0 in a report (order.h) */
    uint32_t engines[MIG_ENGINES];
};

struct mig_compute {
    uint32_t id;
    uint32_t slices;
    uint32_t start; /* among the compute slices of its GPU instance */
    bool in_use;
};

struct mig_instance {
    uint32_t id;
    uint32_t profile; /* index in the card's profiles */
    uint32_t start;   /* memory slice */
    uint32_t ncompute;
    struct mig_compute compute[MIG_COMPUTE_MAX];
    bool in_use;                   /* by a process or a pod: never destroyed */
    char holders[MIG_HOLDERS_MAX]; /* by which, for a person; "" where the driver does not say */
};

struct mig_card {
    bool capable; /* of MIG; otherwise nothing below has a meaning */
    bool enabled; /* MIG mode */
    bool in_use;  /* the card itself, or any of its instances: its mode cannot change */
    char holders[MIG_HOLDERS_MAX]; /* of a card that is not in MIG mode */
    uint32_t nprofiles;
    struct mig_card_profile profiles[MIG_CARD_PROFILES_MAX];
    uint32_t ninstances;
    struct mig_instance instances[MIG_CARD_INSTANCES_MAX];
};

/* The profile with that name, whatever the compute slices in it; NULL: the card has none. */
const struct mig_card_profile *mig_card_find(const struct mig_card *card,
                                             const struct mig_name *name);

/* The memory slices, as bits, of an instance of that profile that begins at `start`. */
uint32_t mig_card_bits(const struct mig_card_profile *profile, uint32_t start);

/* How many media engines of that kind the card has. */
uint32_t mig_card_engines(const struct mig_card *card, uint32_t engine);

/* Whether the driver lets an instance of that profile begin at `start` on an empty card. */
bool mig_card_may_start(const struct mig_card_profile *profile, uint32_t start);

/* Adds a holder to a text of them: "a, b". What has no room is left out and shown as "...". */
void mig_card_add_holder(char holders[static MIG_HOLDERS_MAX], const char *holder);

/* Whether the compute instances of an instance have these slices, in any order. */
bool mig_card_has_compute(const struct mig_instance *instance, const uint32_t *slices, uint32_t n);
