/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Whether containers use what agents have on the node, by the mounts of processes. */

#include <stdbool.h>

struct err;

/* The mount point in a line of mountinfo, in place; NULL: there is none. */
const char *mount_point_of(char *line);

/* Whether the process, as `proc` (/proc) has it, has a mount where containers have something of the
 * state directory. True as well if that cannot be seen, with a text; false: it has none, or has
 * ended. `proc` is shorter than 200 bytes. */
bool clean_is_user(const char *proc, int pid, struct err *err);

/* Looks at all processes. Not seen counts as used, and is logged. */
int clean_find_users(bool *ret, struct err *err);
