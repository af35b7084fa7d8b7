/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Events of several processes: a page that all of them map counts the records, and the daemon
 * writes there which of them the GPU has passed. */

#include "sim/cuda/cuda.h"

struct shared_event {
    uint64_t id[2];
    uint32_t slot; /* by which the ring names it */
    struct sim_shared_event_page *page;
};

/* NULL `id`: a new one. */
CUresult shared_event_open(const uint64_t *id, struct shared_event **ret);
void shared_event_close(struct shared_event *e);

CUresult shared_event_record(CUstream stream, struct shared_event *e);
CUresult shared_event_wait(CUstream stream, struct shared_event *e);
bool shared_event_is_complete(const struct shared_event *e);
CUresult shared_event_synchronize(struct shared_event *e);
