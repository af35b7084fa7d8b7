/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* In which form a command prints what it shows, and whether again and again. */

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/opt.h"
#include "wire/json_write.h"

struct output_form;

extern struct output {
    const struct output_form *form; /* NULL: the table */
    bool watch;
} output;

/* Rows of struct opt for every command that shows something. */
#define OUTPUT_OPTIONS                                                                             \
    {                                                                                              \
        "output",          'o', "json|yaml|wide|name", "another form than the table",              \
        output_parse_form, NULL},                                                                  \
        {"json", 0, NULL, "the same as -o json", output_parse_json, NULL},                         \
        {"no-headers", 0, NULL, "no titles above columns", opt_flag, &table_no_titles}, {          \
        "watch", 'w', NULL, "print again whenever it has changed", opt_flag, &output.watch         \
    }

int output_parse_form(const char *value, void *target, struct err *err);
int output_parse_json(const char *value, void *target, struct err *err);

/* What a command shows, in the forms that there are. `view` is the command's own. */
struct output_view {
    int (*table)(const void *view, bool wide, struct err *err); /* on standard output */
    void (*document)(const void *view, struct json_writer *w);  /* a JSON object */
    void (*names)(const void *view, struct buf *out);           /* KIND/NAME, a line for each */
};

/* Prints it in the form that was asked for. 0 or a negative errno. */
int output_print(const struct output_view *how, const void *view, struct err *err);

/* Runs `show`, which reads and prints: once, or with --watch until a signal ends the command.
 * Then what is the same as before is not printed again, and a failure after the first time is
 * reported and `show` runs again. It rests ten times as long as it took, and 2 s at least. */
int output_run(const char *command, int (*show)(void *arg, struct err *err), void *arg,
               struct err *err);

/* The end of a command that does that: `parsed` is the result of args_parse(), and the value the
 * exit status. */
int output_command(const char *command, int parsed, int (*show)(void *arg, struct err *err),
                   void *arg, struct err *err);
