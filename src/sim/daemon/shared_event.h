/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Events between processes. Each record has a number, counted in a page that all holders map. The
 * daemon knows which numbers the GPU has passed, and releases the queues that wait for them. */

#include "sim/daemon/machine.h"

struct sim_shared_event {
    struct sim_shared_event *next;
    uint64_t id[2];
    uint64_t passed;
    struct sim_shared_event_page *page; /* mapped */
    int fd;                             /* of the page; owned */
    uint32_t holders;
};

/* A new event for the process, in the slot that is returned. Owns the page and its descriptor when
 * it succeeds. */
int shared_event_new(struct sim_session *s, struct sim_shared_event_page *page, int fd,
                     const uint64_t id[2], uint32_t *ret_slot);
struct sim_shared_event *shared_event_find(struct sim_machine *m, const uint64_t id[2]);
/* One more holder, with a slot of its own. */
int shared_event_open(struct sim_session *s, struct sim_shared_event *e, uint32_t *ret_slot);
int shared_event_close(struct sim_session *s, uint64_t slot);

/* The GPU has passed record number `n`. */
void shared_event_pass(struct sim_machine *m, struct sim_shared_event *e, uint64_t n);

void shared_event_close_all(struct sim_session *s);
