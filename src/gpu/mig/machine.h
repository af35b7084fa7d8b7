/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The cards of this machine, and the configuration that is selected for them. */

#include "base/cleanup.h"
#include "gpu/nvml/nvml.h"
#include "mig/generate.h"

#define MIG_MACHINE_CARDS_MAX 64
#define MIG_MACHINE_LIBRARY "libnvidia-ml.so.1"

struct mig_machine {
    struct nvml nvml;
    bool open;
    uint32_t n;
    nvmlDevice_t devices[MIG_MACHINE_CARDS_MAX];
    struct mig_card *cards;
    struct mig_machine_card of[MIG_MACHINE_CARDS_MAX]; /* by place in the list */
    bool incomplete;
    struct err unread; /* where incomplete: the first card that cannot be read, and why */
};

/* Loads the driver's library and reads all cards but those of `left_out` (bits, by index). One that
 * is left out or cannot be read is not in the list; it is reported by mig_machine_check(). -EIO,
 * -ENOENT. */
int mig_machine_open(struct mig_machine *machine, const char *library, uint64_t left_out,
                     struct err *err);

/* After the other cards are processed: -EIO where a card could not be read. */
int mig_machine_check(const struct mig_machine *machine, struct err *err);
void mig_machine_close(struct mig_machine *machine);

#define _cleanup_machine_ _cleanup_(mig_machine_close)

/* What selects a configuration. */
struct mig_selection {
    const char *file; /* NULL or "": what the cards can have; "-": standard input */
    const char *name; /* NULL or "": the only one */
    struct mig_file configs;
    const struct mig_spec *first; /* of the selected one */
};

/* Reads or makes the configurations and selects one. The selection's `configs` are to be freed with
 * mig_file_done(), after failures too. */
int mig_selection_read(struct mig_selection *s, const struct mig_machine *machine, struct err *err);

/* The entry of a card in the selected configuration; NULL where the card is left as it is.
 * -EOPNOTSUPP: MIG is wanted of a card, by its index, that has none. */
int mig_selection_spec(const struct mig_selection *s, const struct mig_machine_card *of,
                       const struct mig_spec **ret, struct err *err);

/* Before anything is changed: whether each card can be what is wanted of it at all. */
int mig_selection_check(const struct mig_selection *s, const struct mig_machine *m, bool mode_only,
                        struct err *err);
