/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* libaliquot.so on the node: copied to <state>/lib/<hash of its content>/, so that a file that
 * containers use is never written to, and a new version stands beside the old one. */

struct err;
struct gpu_edits;

struct library {
    char dir[288];    /* <state>/lib/<hash> */
    char shadow[304]; /* its directory "shadow", or "" */
};

/* Where containers see it. */
#define LIBRARY_IN_CONTAINER "/usr/local/aliquot/libaliquot.so"
#define SHARE_IN_CONTAINER "/run/aliquot/share"

/* Installs the library at `source`, and the two shadow libraries where they are beside it or in
 * "shadow" beside it. They limit the programs that a preload does not reach: they have the names of
 * the driver's libraries in containers. -ENOEXEC when one is no shared object. */
int library_install(const char *source, const char *state_dir, struct library *ret,
                    struct err *err);

/* Adds the mounts of the library, of /etc/ld.so.preload and of the files in the directory of the
 * share. */
int library_edits(const struct library *l, const char *share, struct gpu_edits *edits);
