/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>

#include "base/err.h"
#include "cli/mig/mig.h"

int mig_exit(const char *command, int r, const struct err *err) {
    if (r >= 0 || r == -ECANCELED)
        return 0;
    (void) fflush(stdout);
    (void) fprintf(stderr, "aliquot mig%s%s: %s\n", command[0] ? " " : "", command, err->text);
    return 1;
}
