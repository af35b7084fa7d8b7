/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The state of a simulated machine: GPUs, the sessions of client processes, and what each holds.
 * Sessions begin and end in session.c; a session takes memory of a GPU in channel.c; its work is
 * done in engine.c. No I/O and no clock of its own (times are passed in, CLOCK_MONOTONIC
 * nanoseconds). Not thread-safe. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "sim/daemon/meter.h"
#include "sim/model.h"
#include "sim/proto.h"

struct sim_session;
struct sim_queue;
struct sim_charge;
struct sim_group_entry;

/* How the driver enforces limits of control groups: see memlimit.h. */
enum sim_memory_accounting { SIM_MEMORY_OFF, SIM_MEMORY_MISC, SIM_MEMORY_DMEM };

/* One process on one GPU. */
struct sim_channel {
    struct sim_session *session;
    struct sim_gpu *gpu;
    uint64_t used;   /* bytes, contexts included */
    uint64_t shared; /* of `used`: other processes may hold it, see ipc_memory.h */
    bool suspended;  /* its memory is not on the card */
    uint64_t away;   /* bytes that a resume needs */
    uint32_t contexts_away;
    uint32_t contexts;
    bool mps;                   /* its contexts were made as a client of MPS */
    uint64_t managed;           /* of `used`: managed memory, which is charged to no group */
    struct sim_charge *charges; /* see memlimit.h */
    uint64_t peak;              /* of `used` */
    uint64_t start_us;          /* when its first context was made, since the epoch; 0: none was */
    struct meter meter;
    struct sim_queue *ready; /* queues whose next entry is a kernel; first come, first served */
    struct sim_queue *ready_last;
    bool in_round;
    struct sim_channel *next; /* in the GPU's round of channels with work */
};

/* Memory that several units take from. */
struct sim_bank {
    uint64_t total, used;
};

struct sim_gpu {
    struct sim_page *page; /* shared with the clients */
    const struct sim_model *model;
    struct sim_division *division; /* into instances; NULL: MIG mode is off */
    struct sim_bank *bank;         /* NULL: memory of its own */
    struct sim_machine *machine;   /* set where there is a bank */
    uint64_t now;                  /* time up to which its work is accounted for */
    uint64_t used;
    uint64_t pressure;  /* of `used`: belongs to no process; tests programs on a full card */
    uint64_t slice_ns;  /* 0: ENGINE_SLICE_NS */
    uint64_t switch_ns; /* cost of a context switch between processes */
    uint64_t slice_left;
    uint64_t switch_left;
    uint64_t switching;        /* total time of context switches */
    struct sim_channel *last;  /* the one with its context loaded */
    struct sim_channel *round; /* the first one is running */
    struct sim_channel *round_last;
    struct meter meter;
    enum sim_memory_accounting accounting;
    struct sim_group_entry *groups;
    struct sim_account *ended; /* a ring of SIM_ACCOUNTS_MAX, made when first used */
    uint32_t nended;           /* free-running */
};

/* The rule of one slot in the machine's page: see fault.h. */
struct fault_rule {
    bool hang;
    uint32_t status;
    uint32_t skip;  /* matching calls that still succeed */
    uint32_t times; /* calls that fail after those; 0: all */
    uint32_t done;  /* calls that have failed */
    pid_t pid;      /* only of this process; 0: of any */
    bool one_card;  /* only calls about `card` */
    uint32_t card;
};

struct sim_machine {
    struct sim_host *host; /* shared with the clients */
    struct fault_rule rule[SIM_FAULTS];
    uint32_t ngpus;
    uint32_t nunits; /* cards and parts of cards: minors are below it */
    struct sim_gpu gpu[SIM_MAX_UNITS];
    struct sim_session *sessions;
    struct sim_share *shares;
    struct sim_shared_event *events;
    bool event_passed; /* queues of any process may continue */
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
    bool blocked; /* its next entry waits for another queue, or for a release */
    uint64_t done;
    uint32_t released; /* SIM_HOLD entries that have completed */
    struct sim_work_item *head, *tail;
    struct sim_queue *next_ready;
};

/* A client process. `ring` is NULL until it asks for one. */
struct sim_session {
    struct sim_session *next;
    struct sim_machine *machine;
    pid_t pid;          /* in the daemon's namespace */
    int pidfd;          /* of the same process, -1: none; the daemon's, which closes it */
    bool administrator; /* may change the machine, and needs no capability of MIG */
    int proc;           /* its directory in /proc, which outlives it; -1: not needed */
    uint64_t token[2];
    uint64_t attached[SIM_MAX_UNITS / 64];      /* bit per minor */
    uint64_t opened;                            /* cards that it uses, by bits */
    uint64_t monitored[SIM_MAX_UNITS / 64];     /* instances of which it reads the figures only */
    uint32_t broken[SIM_MAX_UNITS];             /* CUresult that ended its contexts, 0: none */
    struct sim_channel *channel[SIM_MAX_UNITS]; /* made when first used */
    struct sim_ring *ring;
    uint32_t head;   /* own copy of ring->head */
    uint32_t nitems; /* entries taken and not completed */
    uint32_t nblocked;
    bool progressed; /* work completed since the last reading of the ring */
    struct sim_queue *queue[SIM_QUEUES];
    struct sim_shared_event *event[SIM_SHARED_EVENTS];
    uint32_t nshares;
};

static inline bool session_attached(const struct sim_session *s, uint32_t minor) {
    return s->attached[minor / 64] >> (minor % 64) & 1;
}

static inline bool session_monitors(const struct sim_session *s, uint32_t minor) {
    return s->monitored[minor / 64] >> (minor % 64) & 1;
}

static inline void session_monitor(struct sim_session *s, uint32_t minor) {
    s->monitored[minor / 64] |= 1ull << (minor % 64);
}

static inline void session_attach(struct sim_session *s, uint32_t minor) {
    s->attached[minor / 64] |= 1ull << (minor % 64);
}

/* Fills in a GPU's page, which the caller has mapped (zeroed) and keeps. */
void machine_describe(struct sim_page *page, uint32_t minor, const struct sim_model *model,
                      const char *seed);

/* The licence of a vGPU from now on: `now` in seconds since the epoch. A lease lasts a day. */
void machine_license(struct sim_page *page, enum sim_licence licence, uint64_t now);
