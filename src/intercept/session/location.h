/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The place of the files of this process's share. The library is built twice from the same source:
 * one for containers, where the agent mounts the files, and one for `aliquot run`, which names a
 * directory in the environment. */

#include <stdbool.h>
#include <stddef.h>

#include "share/limits_core.h"

/* Maps the limits and writes the path of the ledger to `ret_ledger` (`size` bytes). The mapping
 * lives until the process ends.
 * -ENOENT: this process is in no share (never in a container);
 * -EPERM: the share's files are missing or are not the agent's, so the driver must not be used;
 * another error: the share is damaged. */
int location_find(const struct limits_file **ret_limits, char *ret_ledger, size_t size);

/* "dir/name" in `ret`; false when it does not fit into `size` bytes. */
bool location_join(char *ret, size_t size, const char *dir, const char *name);
