/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The state of a simulated machine: GPUs, the sessions of client processes, and what each holds.
 * No I/O and no clock of its own (times are passed in, CLOCK_MONOTONIC nanoseconds). Not
 * thread-safe. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "sim/meter.h"
#include "sim/model.h"
#include "sim/proto.h"

struct sim_session;
struct sim_queue;

/* One process on one GPU. */
struct sim_channel {
    struct sim_session *session;
    struct sim_gpu *gpu;
    uint64_t used; /* bytes, contexts included */
    uint32_t contexts;
    struct meter meter;
    struct sim_queue *ready; /* queues whose next entry is a kernel; first come, first served */
    struct sim_queue *ready_last;
    bool in_round;
    struct sim_channel *next; /* in the GPU's round of channels with work */
};

struct sim_gpu {
    struct sim_page *page; /* shared with the clients */
    uint64_t now;          /* time up to which its work is accounted for */
    uint64_t used;
    uint64_t slice_left;
    struct sim_channel *round; /* the first one is running */
    struct sim_channel *round_last;
    struct meter meter;
};

struct sim_machine {
    uint32_t ngpus;
    struct sim_gpu gpu[SIM_MAX_GPUS];
    struct sim_session *sessions;
};

struct sim_work_item {
    struct sim_work_item *next;
    uint8_t kind;
    uint8_t minor;
    uint32_t slot;
    uint64_t a; /* SIM_KERNEL: nanoseconds left */
};

struct sim_queue {
    struct sim_session *session;
    uint16_t id;
    bool blocked; /* its next entry waits for another queue, or is held */
    uint64_t done;
    uint32_t released; /* entries SIM_HOLD that have gone on */
    struct sim_work_item *head, *tail;
    struct sim_queue *next_ready;
};

/* A client process. `ring` is NULL until it asks for one. */
struct sim_session {
    struct sim_session *next;
    struct sim_machine *machine;
    pid_t pid; /* in the daemon's namespace */
    uint64_t token[2];
    uint64_t attached;                         /* bit per minor */
    struct sim_channel *channel[SIM_MAX_GPUS]; /* made when first used */
    struct sim_ring *ring;
    uint32_t head;   /* own copy of ring->head */
    uint32_t nitems; /* entries taken and not completed */
    uint32_t nblocked;
    bool progressed; /* something completed since the ring was last looked at */
    struct sim_queue *queue[SIM_QUEUES];
};

/* Fills in a GPU's page, which the caller has mapped (zeroed) and keeps. */
void machine_describe(struct sim_page *page, uint32_t minor, const struct sim_model *model,
                      const char *seed);

/* Both own what they return; session_end releases all that the process held. */
struct sim_session *session_begin(struct sim_machine *m, pid_t pid, const uint64_t token[2]);
void session_end(struct sim_session *s);
struct sim_session *session_by_token(struct sim_machine *m, const uint64_t token[2]);

/* The process cannot use the device any longer; what it held there is released. */
void session_detach(struct sim_session *s, uint32_t minor);

/* The session's channel on a device that it has attached; NULL if it has not, or out of memory. */
struct sim_channel *session_channel(struct sim_session *s, uint32_t minor);

/* Bytes of a device: 0, or -ENOMEM when the card has not that many left. */
int channel_take(struct sim_channel *c, uint64_t bytes);
/* Gives back at most what the process holds. */
void channel_give(struct sim_channel *c, uint64_t bytes);

int channel_context_create(struct sim_channel *c, uint64_t *ret_bytes);
/* -EINVAL when the process has no context there. */
int channel_context_destroy(struct sim_channel *c);
