/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Processes of this PID namespace, from /proc. Any thread. */

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROCFS_NAME_MAX 16

/* Whether all threads of the process are exiting, or the process is gone: its memory is being
 * released. A process of which only the main thread has ended is alive. True if it cannot be
 * checked, so that the process is not reported. Bounded: a process with many threads counts as
 * alive. */
bool procfs_is_ending(int pid);

/* Whether no thread of the process can run any more: all are zombies, or the process is gone. False
 * if it cannot be checked, and with many threads. */
bool process_has_ended(int pid);

/* A walk over all processes, in bounded steps. All zero at first. */
struct procfs_walk {
    DIR *proc; /* NULL: the next step starts from the beginning */
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
