/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The user's browser on an address that others of this machine must not see: arguments of a process
 * are public, so xdg-open gets a file of the user's own that leads to the address. */

#include "base/err.h"

struct opener {
    char *file; /* NULL: none */
};

int opener_open(struct opener *opener, const char *address, struct err *err);
void opener_done(struct opener *opener); /* removes the file */
