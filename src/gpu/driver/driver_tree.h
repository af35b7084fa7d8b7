/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The files of an installed driver, and those that a container gets: the same as from NVIDIA's
 * container toolkit (compared by tests/interop/driver). Libraries are mounted in the images' search
 * path, under the names that programs load. */

#include <stddef.h>
#include <stdint.h>

struct err;
struct gpu_edits;

struct driver_tree {
    const char *name; /* of the driver, for messages */
    const char *root; /* what its paths begin at, in the agent's view: "" or a directory */
    const char *host; /* the same in the host's view */
};

/* The library of that name, in the agent's view, links resolved: 0, -ENOENT, -ENAMETOOLONG. */
int driver_tree_library(const struct driver_tree *t, const char *name, char *ret, size_t size);

/* The same for a program, which is in one of the directories of PATH. */
int driver_tree_program(const struct driver_tree *t, const char *name, char *ret, size_t size);

/* Adds the files for these capabilities (enum driver_capability). libcuda and libnvidia-ml always
 * come, since they carry the limits: -ENOENT where one is missing. `shadow` as for
 * gpu_driver_edits(). Other files are given where they are. */
int driver_tree_edits(const struct driver_tree *t, uint8_t capabilities, const char *shadow,
                      struct gpu_edits *edits, struct err *err);
