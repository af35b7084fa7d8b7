/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Control groups of version 2: those of a process, and those that still exist. The inode number of
 * its directory identifies a group; the kernel does not reuse it while the machine runs. */

#include <stdint.h>
#include <sys/types.h>

#include "sim/daemon/memlimit.h"

/* The directory of a process in /proc: it never becomes that of another. -1: the process has ended.
 * The caller owns the descriptor. */
int group_process(pid_t pid);

/* The groups of the process; none when it has ended, or its group cannot be seen. */
void group_of_process(int proc, struct sim_groups *ret);

/* The groups from a directory upwards. -EINVAL: no control group of version 2, or a removed one, as
 * the kernel (cgroup_get_from_fd) refuses it. */
int group_of_directory(int fd, struct sim_groups *ret);

/* Directories that are watched. */
struct group_dir;

/* Takes a descriptor of its own. -ENOMEM, or the errno of the descriptor's copy. */
int group_dirs_add(struct group_dir **dirs, uint64_t id, int fd);

/* The number of a group that is gone, and removes it from the list; 0: there is none. */
uint64_t group_dirs_gone(struct group_dir **dirs);

void group_dirs_done(struct group_dir **dirs);
