/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Memory of a GPU that several processes hold. It is counted once: as the use of one of those who
 * hold it, or of nobody while only an exported descriptor keeps it. It is given back when the last
 * of them is gone. No clock; the descriptors come from the caller. */

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
    struct sim_session *charged; /* whose use it counts as */
    struct sim_share_holder *holders;
    uint32_t exports;           /* descriptors that keep it */
    struct sim_charge *charges; /* of its maker's group, until it is given back */
};

/* Turns bytes that the channel's process has taken into a share that it holds. Takes over `fd` when
 * it succeeds. -EINVAL: the process has not so many; -EMFILE: it shares too much already. */
int share_new(struct sim_channel *c, uint64_t bytes, int fd, const uint64_t id[2]);
struct sim_share *share_find(struct sim_machine *m, const uint64_t id[2]);

/* -ENODEV: the process does not have the GPU. */
int share_hold(struct sim_share *share, struct sim_session *s);
/* -EINVAL: it does not hold it. The share may be gone afterwards. */
int share_release(struct sim_share *share, struct sim_session *s);

void share_export(struct sim_share *share);
void share_unexport(struct sim_machine *m, struct sim_share *share);

/* All that a process holds of a GPU. */
void share_release_all(struct sim_session *s, uint32_t minor);
