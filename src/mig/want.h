/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a card shall be divided into: MIG devices by name and number, and from them the GPU
 * instances with their compute instances. Pure. */

#include "base/err.h"
#include "mig/card.h"

#define MIG_DEVICES_MAX 16 /* kinds of MIG devices of one configuration */
#define MIG_ANYWHERE UINT32_MAX

struct mig_devices {
    struct mig_name name;
    uint32_t count;
};

/* One GPU instance. */
struct mig_wanted {
    uint32_t profile; /* index in the card's profiles */
    uint32_t start;   /* exactly this memory slice, or MIG_ANYWHERE */
    uint32_t ncompute;
    uint32_t compute[MIG_COMPUTE_MAX]; /* slices, the largest first */
};

struct mig_want {
    bool enabled; /* MIG mode; without it there are no instances */
    uint32_t n;
    struct mig_wanted instances[MIG_CARD_INSTANCES_MAX];
};

/* MIG mode with these devices, wherever they fit. Devices that are a part of a GPU instance
 * (1c.3g.40gb) share instances as far as they fit, the largest first. -EINVAL where the card has no
 * such profile, -ENOSPC where that are more instances than a card can have. */
int mig_want_devices(const struct mig_card *card, const struct mig_devices *devices, uint32_t n,
                     struct mig_want *ret, struct err *err);

/* The devices of the instances that exist, by kind, in the order of the instances. At most `max`
 * kinds are written; returns how many there are. */
uint32_t mig_want_present(const struct mig_card *card, struct mig_devices *ret, uint32_t max);

/* Whether two lists without repeated names have the same devices. A count of 0 is none. */
bool mig_want_same(const struct mig_devices *a, uint32_t na, const struct mig_devices *b,
                   uint32_t nb);
