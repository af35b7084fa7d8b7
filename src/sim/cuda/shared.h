/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Memory that other processes may hold. The daemon counts it once. */

#include "sim/cuda/cuda.h"

struct shared {
    uint64_t id[2];
    int device;
    size_t bytes;
    int fd; /* the memory, in whole pages; -1: closed */
};

/* Makes a share of bytes taken from the device. The last holder's shared_close() returns them. */
CUresult shared_new(int device, size_t bytes, struct shared *ret);

/* INVALID_VALUE for anything but a share. */
CUresult shared_open(const uint64_t id[2], struct shared *ret);
CUresult shared_import(int fd, struct shared *ret);
CUresult shared_export(const struct shared *s, int *ret_fd);

void shared_close(struct shared *s);

/* Maps a part; `offset` is a whole number of pages; at `where` if not NULL. NULL when there is no
 * room. */
void *shared_map(const struct shared *s, size_t offset, size_t bytes, void *where);

/* Whole pages. */
size_t shared_room(size_t bytes);
