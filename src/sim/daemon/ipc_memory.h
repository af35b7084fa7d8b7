/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Memory of a GPU that several processes hold. It is counted once: for one of the holders, or for
 * no process while only an exported descriptor keeps it. The last holder or descriptor frees it. No
 * clock; the descriptors come from the caller. */

#include "sim/daemon/machine.h"

struct sim_share_holder {
    struct sim_share_holder *next;
    struct sim_session *session;
    uint64_t count;
};

struct sim_share {
    struct sim_share *next;
    uint64_t id[2];
    struct sim_gpu *gpu;
    uint32_t minor;
    uint64_t bytes;
    int fd;                      /* the memory; owned */
    struct sim_session *charged; /* the holder that it counts for */
    struct sim_share_holder *holders;
    uint32_t exports;           /* descriptors that keep it */
    struct sim_charge *charges; /* of its creator's group, until it is freed */
};

/* Turns bytes that the channel's process has taken into a share that it holds. Owns `fd` when it
 * succeeds. -EINVAL: the process has fewer; -EMFILE: it has too many shares. */
int ipc_memory_new(struct sim_channel *c, uint64_t bytes, int fd, const uint64_t id[2]);
struct sim_share *ipc_memory_find(struct sim_machine *m, const uint64_t id[2]);

/* -ENODEV: the process does not have the GPU. */
int ipc_memory_hold(struct sim_share *share, struct sim_session *s);
/* -EINVAL: it does not hold it. The share may be gone afterwards. */
int ipc_memory_release(struct sim_share *share, struct sim_session *s);

void ipc_memory_export(struct sim_share *share);
void ipc_memory_unexport(struct sim_machine *m, struct sim_share *share);

/* Releases all that a process holds of a GPU. */
void ipc_memory_release_all(struct sim_session *s, uint32_t minor);
