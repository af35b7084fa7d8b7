/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The files of a share, of a fixed size, as the agent creates them. */

#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

/* Creates the file unless it exists: `size` bytes, the first of them `head`, the others 0. It is
 * under its name only when it is whole: half a file would refuse its container for ever. The mode
 * holds whatever the umask: the container's processes may run as any user. 0 or a negative errno.
 */
int share_file_create(const char *path, const void *head, size_t head_size, size_t size,
                      mode_t mode, struct err *err);
