/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Memory that other processes may hold, by way of the daemon, which counts it once. */

#include "sim/cuda/cuda.h"

struct shared {
    uint64_t id[2];
    int device;
    size_t bytes;
    int fd; /* the memory, in whole pages; -1 when it is not needed any longer */
};

/* Bytes that have been taken from the device become a share; it gives them back by shared_close(),
 * when nobody else holds it. */
CUresult shared_new(int device, size_t bytes, struct shared *ret);

/* INVALID_VALUE for what is no share. */
CUresult shared_open(const uint64_t id[2], struct shared *ret);
CUresult shared_import(int fd, struct shared *ret);
CUresult shared_export(const struct shared *s, int *ret_fd);

void shared_close(struct shared *s);

/* Maps a part, whose offset is a whole number of pages; at `where` if not NULL. NULL when there is
 * no room. */
void *shared_map(const struct shared *s, size_t offset, size_t bytes, void *where);

/* Whole pages. */
size_t shared_room(size_t bytes);
