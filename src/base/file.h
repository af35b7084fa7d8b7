/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Whole files and directories. */

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

/* Reads a whole file (also one of /proc or /sys, whose size is not known before), at most
 * `max` bytes: a longer file is -EFBIG. `ret` is appended to and must be initialised. */
int file_read(const char *path, size_t max, struct buf *ret, struct err *err);

/* Replaces `path` as one step: readers see the old content or the new one, never a part. The
 * directory must exist. The content is on disk when this returns. */
int file_replace(const char *path, const void *data, size_t len, mode_t mode, struct err *err);

/* Copies a file as file_replace does, keeping the permission bits given in `mode`. */
int file_copy(const char *from, const char *to, mode_t mode, struct err *err);

/* mkdir -p; an existing directory is no error. New directories get `mode` as it is, whatever the
 * umask. */
int dir_make(const char *path, mode_t mode, struct err *err);

/* rm -r that does not follow links and stays below `path`; a missing path is no error. */
int dir_remove(const char *path, struct err *err);
