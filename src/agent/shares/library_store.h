/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* libaliquot.so on the node: copied to <state>/lib/<hash of its content>/, so that a file in use is
 * never overwritten. Old versions are removed when an agent starts and no share uses them.
 *
 * Containers get that directory as one read-only mount directly below /dev, and the files of the
 * share as mounts inside it: neither a mount point nor a directory of a read-only mount can be
 * renamed, and the parent, /dev, is a mount point, too. */

#include <stdbool.h>

struct err;
struct gpu_edits;
struct slot_store;

#define LIBRARY_NAME_LEN 16 /* of the directory of a library, in hexadecimal digits */

struct library {
    char dir[288];    /* <state>/lib/<hash> */
    char shadow[304]; /* its directory "shadow", or "" */
};

/* Where containers see it. */
#define SHARE_IN_CONTAINER "/dev/aliquot"
#define LIBRARY_IN_CONTAINER SHARE_IN_CONTAINER "/libaliquot.so"

/* Installs the library at `source`, labelled for containers (selinux_label), and the two shadow
 * libraries where they are beside it or in "shadow" beside it. They limit the programs that a
 * preload does not reach: they have the names of the driver's libraries in containers. Where
 * nothing may be executed in `state_dir`, here or below `host_root` ("" or where the host's root
 * is), <state>/lib becomes a tmpfs, or -EPERM where this process may not mount there (`may_mount`,
 * see share_dir_can_bound): in a user namespace a container could not map the library. -ENOEXEC
 * when one is no shared object. A warning in the log: the host's directory cannot be looked at. */
int library_install(const char *source, const char *state_dir, const char *host_root,
                    bool may_mount, const char *selinux, struct library *ret, struct err *err);

/* Adds the mounts of the library, of /etc/ld.so.preload and of the files in the directory of the
 * share. */
int library_edits(const struct library *l, const char *share, struct gpu_edits *edits);

/* Notes in the directory of the share that its container uses this library. Before the container
 * can start. */
int library_note(const struct library *l, const char *share, struct err *err);

/* Removes libraries of earlier agents that no share's record names. None is removed while there is
 * a share without a record: its container may use any of them. */
void library_clean(const struct library *current, const char *state_dir,
                   const struct slot_store *slots);

/* In a container that has the node's /dev, the mount point is a directory of the node's /dev, made
 * by the runtime. Removes it if it is empty; only while no container has a share, because the mount
 * on it would go, too. `host_root` is where the node's / is in the agent's view. */
void library_remove_mount_point(const char *host_root);
