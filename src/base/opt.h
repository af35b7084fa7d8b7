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
 * Parsing stops at the first argument that is not an option, or behind "--". The same tables are
 * the man page (--help=man) and what a shell completes (--help=list). */

#include <stdbool.h>
#include <stddef.h>
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

/* What can follow the options: a command, a verb, a view. */
struct opt_word {
    const char *name;
    const char *arg;  /* what follows it, for --help; NULL: nothing */
    const char *help; /* a line or a few */
    bool has_help;    /* a command with a --help of its own */
};

struct opt_usage {
    const char *synopsis;         /* "aliquot run [options] -- COMMAND [ARG ...]" */
    const char *purpose;          /* a line or a few on what it does */
    const char *epilog;           /* examples, exit codes; may be NULL */
    const char *title;            /* of the words: "Verbs"; NULL: there are none */
    const struct opt_word *words; /* ends with one without a name */
    size_t stride;                /* bytes from one word to the next; 0: they are an array */
    bool is_daemon;               /* its man page is in section 8, not 1 */
};

/* Returns the index in argv of the first argument that is not an option; -EINVAL with a text that
 * names the option and the remedy; or -ECANCELED after --help has been printed on stdout (the
 * program then ends with status 0). */
int opt_parse(const struct opt *options, const struct opt_usage *usage, int argc, char **argv,
              struct err *err) __attribute__((nonnull(1)));

/* The word of that name, which is the first member of a row where `stride` says so; NULL: none. */
const void *opt_word_find(const struct opt_usage *usage, const char *name);

/* The word behind `w`. */
const struct opt_word *opt_word_next(const struct opt_usage *usage, const struct opt_word *w);

/* "did you mean 'X'?" where `word` is probably a misspelling of a word, otherwise "see --help". */
#define OPT_MEANT_SIZE 96
const char *opt_meant(const struct opt_usage *usage, const char *word,
                      char ret[static OPT_MEANT_SIZE]);

/* Parsers for the table. */
int opt_flag(const char *value, void *target, struct err *err);   /* bool *      */
int opt_string(const char *value, void *target, struct err *err); /* const char ** (borrows argv) */
int opt_u32(const char *value, void *target, struct err *err);    /* uint32_t *  */
int opt_size(const char *value, void *target,
             struct err *err); /* uint64_t * bytes: 4Gi, 512Mi, 1G, 1000 */
