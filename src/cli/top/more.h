/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What another command of `aliquot` says of a row. */

#include "base/buf.h"
#include "cli/top/views.h"

/* A command that runs. */
struct more {
    int pid; /* 0: none runs */
    int out; /* to poll, and not to be closed by others; -1: none runs */
};

/* Starts it; it ends with this process. `system`: namespace of Aliquot. 0 or a negative errno. */
int more_start(const struct top_row *row, const char *system, struct more *ret);

/* Appends what it has printed, and does not wait for more. When it has ended, or has printed more
 * than `ret` holds, *more is as if none ran. */
void more_read(struct more *more, struct buf *ret);

/* Ends it, if one runs. */
void more_cancel(struct more *more);
