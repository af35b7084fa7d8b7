/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "base/opt.h"

/* Prints the tables on stdout: as text (`format` NULL), as a man page ("man"), or as a list for the
 * completion of shells ("list"): a line each of KIND, NAME, LETTER, ARGUMENT and HELP with tabs
 * between, KIND one of command, word and option. -EINVAL: there is no such format. */
int opt_help_print(const char *format, const struct opt *options, const struct opt_usage *usage,
                   struct err *err);
