/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Paths below another root: the absolute links of a containerized driver are relative to its root.
 */

#include <stddef.h>

/* Resolves `path` ("/usr/lib/libx.so.1") below `root`, with all links followed as after chroot(2);
 * the result may be a file of any type. 0, -ENOENT, -ELOOP, -ENAMETOOLONG, or the error of
 * readlink. Not atomic: only for trees whose owner is trusted. */
int root_path_resolve(const char *root, const char *path, char *ret, size_t size);
