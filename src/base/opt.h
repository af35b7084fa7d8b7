/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Command-line options from one table, which is also the --help text.
 *
 *     static const struct opt options[] = {
 *         {"memory", 'm', "SIZE", "device memory limit, such as 4Gi", opt_size, &arg_memory},
 *         {"verbose", 'v', NULL, "print more", opt_flag, &arg_verbose},
 *         OPT_END,
 *     };
 *
 * Parsing stops at the first argument that is not an option, or behind "--". */

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct opt {
    const char *name; /* long name without dashes */
    char letter;      /* short name, or 0 */
    const char *arg;  /* name of its argument for --help, NULL where it takes none */
    const char *help;
    int (*parse)(const char *value, void *target, struct err *err); /* value is NULL for a flag */
    void *target;
};

#define OPT_END                                                                                    \
    { 0 }

struct opt_usage {
    const char *synopsis; /* "aliquot run [options] -- COMMAND [ARG ...]" */
    const char *purpose;  /* a line or a few on what it does */
    const char *epilog;   /* examples, exit codes; may be NULL */
};

/* Returns the index in argv of the first argument that is not an option; -EINVAL with a text that
 * names the option and the remedy; or -ECANCELED after --help has been printed on stdout (the
 * program then ends with status 0). */
int opt_parse(const struct opt *options, const struct opt_usage *usage, int argc, char **argv,
              struct err *err);

/* Parsers for the table. */
int opt_flag(const char *value, void *target, struct err *err);   /* bool *      */
int opt_string(const char *value, void *target, struct err *err); /* const char ** (borrows argv) */
int opt_u32(const char *value, void *target, struct err *err);    /* uint32_t *  */
int opt_size(const char *value, void *target,
             struct err *err); /* uint64_t * bytes: 4Gi, 512Mi, 1G, 1000 */
