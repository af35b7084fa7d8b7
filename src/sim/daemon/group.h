/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Control groups of the second version: which are a process's, and which are still there. A group
 * is known by the number of its directory, which no other gets while the machine runs. */

#include <stdint.h>
#include <sys/types.h>

#include "sim/daemon/memlimit.h"

/* The directory of a process in /proc: it never becomes that of another. -1: it is gone. The caller
 * owns it. */
int group_process(pid_t pid);

/* The groups of the process; none when it has ended, or its group cannot be seen. */
void group_of_process(int proc, struct sim_groups *ret);

/* The groups from a directory upwards. -EINVAL: it is no control group of the second version. */
int group_of_directory(int fd, struct sim_groups *ret);

/* Directories that are watched. */
struct group_dir;

/* Takes a descriptor of its own. -ENOMEM, or the errno of the descriptor's copy. */
int group_dirs_add(struct group_dir **dirs, uint64_t id, int fd);

/* The number of one whose group is gone, which is forgotten; 0: there is none. */
uint64_t group_dirs_gone(struct group_dir **dirs);

void group_dirs_done(struct group_dir **dirs);
