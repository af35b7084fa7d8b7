/* SPDX-License-Identifier: Apache-2.0 */

/* The commands of `aliquot` that need no cluster, and so no library but libc: for machines where
 * nothing can be installed. */

#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "sim") == 0)
        return cmd_sim(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "run") == 0)
        return cmd_run(argc - 1, argv + 1);
    (void) fprintf(stderr, "usage: aliquot sim|run [options] -- COMMAND [ARG ...]\n");
    return EXIT_USAGE;
}
