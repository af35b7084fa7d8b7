/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Configurations that are made, not read: those that the cards of a machine can have, under the
 * names that NVIDIA gives them, and the one that they have. */

#include "mig/file.h"

struct mig_machine_card {
    const struct mig_card *card;
    uint32_t index;
    struct mig_pci pci;
};

/* all-disabled, all-enabled, all-balanced, and all-<profile> for each profile: as many instances of
 * it as a card can have; '+' of a profile is '.' in the name. Models are told apart by their PCI
 * ids where there are several. -ENOMEM, -EFBIG. */
int mig_generate(const struct mig_machine_card *cards, uint32_t n, struct mig_file *ret,
                 struct err *err);

/* The present division of all cards as a configuration with that name; cards with equal divisions
 * are one entry. -EINVAL: no such name is possible; -ENOMEM, -EFBIG. */
int mig_export(const struct mig_machine_card *cards, uint32_t n, const char *name,
               struct mig_file *ret, struct err *err);
