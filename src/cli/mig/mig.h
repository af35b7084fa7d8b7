/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/err.h"

/* The commands of `aliquot mig`; argv[0] is the command. 0, or 1 for whatever went wrong, as
 * mig-parted has it. `debug`: say on standard error what is done. */
int mig_apply(int argc, char **argv, bool debug);
int mig_assert(int argc, char **argv, bool debug);
int mig_export_command(int argc, char **argv, bool debug);
int mig_generate_command(int argc, char **argv, bool debug);

/* Prints the error and returns 1; 0 for a result of 0 or more, and for --help. */
int mig_exit(const char *command, int r, const struct err *err);

/* Rows of struct opt by which a command selects its configuration (struct mig_selection). */
#define MIG_SELECTION_OPTIONS(selection)                                                           \
    {"config-file", 'f',                                                                           \
     "FILE",        "mig-parted's configuration file, or - (default: what the GPUs can have)",     \
     opt_string,    &(selection)->file},                                                           \
    {                                                                                              \
        "selected-config", 'c', "CONFIG", "which of its configurations (default: the only one)",   \
            opt_string, &(selection)->name                                                         \
    }
