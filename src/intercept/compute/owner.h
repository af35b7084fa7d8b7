/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* This process's place in the container's account (struct compute_file, `owner`). It belongs to the
 * thread that claims it and is marked by the kernel when that thread ends, however it ends. */

#include <linux/futex.h>
#include <stdint.h>

#include "share/compute_core.h"

struct owner {
    struct robust_list_head head; /* of the thread's robust list */
    struct robust_list place;     /* the entry in it, at a fixed distance from the word */
};

/* Returns the index, or -1 when all are in use, the kernel does not mark ends, or the file system
 * has no memory for a place. `owner` must stay where it is until the thread ends, which must not
 * use robust mutexes itself. */
int owner_claim(struct owner *owner, struct compute_file *file);
