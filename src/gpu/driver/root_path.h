/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Paths below a root that is not ours: a driver in a container of its own has absolute links, which
 * are meant below its root. */

#include <stddef.h>

/* The path below `root` that `path` ("/usr/lib/libx.so.1") leads to when all links are followed as
 * a process whose root it is would follow them; it may be a file of any type. 0, -ENOENT, -ELOOP,
 * -ENAMETOOLONG, or what readlink gives. Components may change while it looks: for trees whose
 * owner is trusted. */
int root_path_resolve(const char *root, const char *path, char *ret, size_t size);
