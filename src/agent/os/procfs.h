/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What /proc says of the processes of this PID namespace. Any thread. */

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROCFS_NAME_MAX 16

/* Whether every thread of the process is on its way out, or it is gone: what it holds is being
 * given back. A process whose first thread alone has ended lives on. True where that cannot be
 * looked at: the process is not accused. Bounded: one with many threads is not ending. */
bool procfs_is_ending(int pid);

/* Whether it has no thread left that could run: all are zombies, or it is gone. False where that
 * cannot be looked at, and of one with many threads. */
bool process_has_ended(int pid);

/* A walk over all processes, in bounded steps. All zero at first. */
struct procfs_walk {
    DIR *proc; /* NULL: the next step begins anew */
};

/* Looks at the next `max` entries of /proc. Returns 1 when that were all, 0 when there are more, or
 * negative errno when /proc cannot be read. */
int procfs_walk_step(struct procfs_walk *w, unsigned max, void (*visit)(int pid, void *userdata),
                     void *userdata);
/* Whether the next step goes on with a walk under way. */
bool procfs_walk_is_under_way(const struct procfs_walk *w);
void procfs_walk_end(struct procfs_walk *w);

/* What changes when the process executes another program: a hash of when it started and where its
 * program and arguments lie. 0: it is gone. Takes none of its locks. */
uint64_t procfs_life(int pid);

/* Its name with anything unprintable replaced, for messages: "python3"; "?" when it is gone. */
void procfs_name(int pid, char ret[static PROCFS_NAME_MAX]);

/* Whether the agent's PIDs are those of the machine: PIDs from a driver before 545 are, always. */
bool procfs_namespace_is_initial(void);
