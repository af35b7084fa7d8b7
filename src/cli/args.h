/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Options and words in any order, as kubectl takes them, and how a command ends. */

#include <stddef.h>
#include <stdio.h>

#include "base/opt.h"
#include "cli/clean.h"
#include "cli/cli.h"

/* As opt_parse(), and collects the words between the options. Returns how many there are; more than
 * `max` are an error that names the first one too many. */
static inline int args_parse(const struct opt *options, const struct opt_usage *usage, int argc,
                             char **argv, const char **words, int max, struct err *err) {
    int n = 0, next = opt_parse(options, usage, argc, argv, err);
    while (next >= 0 && next < argc) {
        if (n == max)
            return err_set(err, EINVAL, "unexpected argument '%s'; see --help", argv[next]);
        words[n++] = argv[next];
        argc -= next;
        argv += next;
        next = opt_parse(options, usage, argc, argv, err);
    }
    return next < 0 ? next : n;
}

/* Prints the error and returns the exit status: 2 where the arguments were not `understood`, 1 for
 * later errors; 0 for a result of 0 or more, and for --help. */
static inline int args_exit(const char *command, int r, bool understood, const struct err *err) {
    if (r >= 0 || r == -ECANCELED)
        return 0;
    fflush(stdout);
    clean_print(stderr, "aliquot %s: %s\n", command, err->text);
    return understood ? 1 : EXIT_USAGE;
}
