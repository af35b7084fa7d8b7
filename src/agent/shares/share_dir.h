/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The directory of a share on the node, <state>/shares/<nonce>: the files that a container only
 * reads (`limits`, `grants`) and the agent's record lie in it; those that a container writes
 * (`ledger`, `compute`) lie in its directory "tenant". That is a tmpfs of the size of both files,
 * so a container cannot fill the node's file system by writing more. Shares of older agents have
 * all files beside each other. */

#include <stdbool.h>
#include <sys/types.h>

struct err;

/* Makes the directory `name` in `state_dir` where it is missing; `ret` is its path. */
int share_dir_beside(const char *state_dir, const char *name, mode_t mode, char ret[static 384],
                     struct err *err);

/* Whether a mount that this process makes in `state_dir` is one of the node, too: the process may
 * mount, and its mounts propagate. `host_root` is where the node's / is in the agent's view. -EPERM
 * otherwise. */
int share_dir_can_bound(const char *state_dir, const char *host_root, struct err *err);

/* Makes the directories where they are missing; "tenant" is a tmpfs of its own if `bounded`. Both
 * are labelled for containers (selinux_label). */
int share_dir_make(const char *dir, bool bounded, const char *selinux, struct err *err);

/* Path of a file of the share. */
void share_dir_path(const char *dir, const char *file, char ret[static 384]);

/* Undoes what a container has done to its files beside their contents: cuts off what was written
 * beyond their end, and restores owner, mode and access control list. Only while none runs. */
int share_dir_mend(const char *dir, struct err *err);

/* Unmounts and removes all; a missing directory is no error. */
int share_dir_remove(const char *dir, struct err *err);
