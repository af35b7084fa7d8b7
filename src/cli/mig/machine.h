/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The cards of this machine for `aliquot mig`, and the configuration that a command names. */

#include "base/cleanup.h"
#include "gpu/nvml/nvml.h"
#include "mig/generate.h"

#define MIG_MACHINE_CARDS_MAX 64

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

/* Loads the driver's library and reads all cards. One that cannot be read is not in the list; it is
 * reported by mig_machine_check(). -EIO, -ENOENT. */
int mig_machine_open(struct mig_machine *machine, struct err *err);

/* After the other cards are processed: -EIO where a card could not be read. */
int mig_machine_check(const struct mig_machine *machine, struct err *err);
void mig_machine_close(struct mig_machine *machine);

#define _cleanup_machine_ _cleanup_(mig_machine_close)

/* Options of commands that select a configuration. */
struct mig_selection {
    const char *file; /* NULL or "": what the cards can have; "-": standard input */
    const char *name; /* NULL or "": the only one */
    struct mig_file configs;
    const struct mig_spec *first; /* of the selected one */
};

/* Reads or makes the configurations and selects one. The selection's `configs` are to be freed with
 * mig_file_done(), after failures too. */
int mig_selection_read(struct mig_selection *s, const struct mig_machine *machine, struct err *err);

/* The environment's value of an option; NULL where it is not set. */
const char *env_text(const char *name);
bool env_flag(const char *name);
