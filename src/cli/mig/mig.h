/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "base/err.h"

/* The commands of `aliquot mig`; argv[0] is the command. 0, or 1 for whatever went wrong, as
 * mig-parted has it. `debug`: say on standard error what is done. */
int mig_apply(int argc, char **argv, bool debug);
int mig_assert(int argc, char **argv, bool debug);
int mig_export_command(int argc, char **argv, bool debug);
int mig_generate_command(int argc, char **argv, bool debug);

/* Prints the error and returns 1; 0 for a result of 0 or more, and for --help. */
static inline int mig_exit(const char *command, int r, const struct err *err) {
    if (r >= 0 || r == -ECANCELED)
        return 0;
    (void) fflush(stdout);
    (void) fprintf(stderr, "aliquot mig%s%s: %s\n", command[0] ? " " : "", command, err->text);
    return 1;
}
