/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Files in the machine's directory that stand for files of /proc and /sys: DIR/proc/..., and
 * DIR/sys/.... */

#include "base/buf.h"
#include "base/err.h"

/* Writes `name` below `dir`, with the directories that it needs. Readers see the old content or
 * the new one. A failed `text` fails here. */
int host_file_put(const char *dir, const char *name, const struct buf *text, struct err *err);

/* Removes it and its directory, if that is empty then. A missing one is no error. */
void host_file_remove(const char *dir, const char *name);
