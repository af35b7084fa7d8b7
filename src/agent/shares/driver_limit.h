/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Memory limits that the driver enforces. Drivers from 615 on limit the memory of a card that the
 * processes of a control group can allocate, without the interception library. The limit is set on
 * the container's own group: before its first instruction by a hook of the runtime
 * (driver_limit_hook.c), or, for containers that started without one, when the first of its
 * processes is on the card. It follows the share's limit, is asked for again when the driver has
 * refused it, is put back when another program has changed it, and is taken away when the group is
 * empty, before the runtime removes it: the driver would hold a later group at the same address to
 * it. One thread, that of the agent's loop. */

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "gpu/driver/driver.h"
#include "gpu/nvml/monitor.h"

struct err;
struct shares;
struct slot;
struct driver_limit;
struct driver_limit_call;

/* The agent's option --driver-limits. */
enum driver_limit_policy {
    DRIVER_LIMIT_AUTO,     /* where the driver has them; a container starts without, if need be */
    DRIVER_LIMIT_REQUIRED, /* no container with a share starts without */
    DRIVER_LIMIT_OFF,
};

struct driver_limits {
    enum {
        DRIVER_LIMIT_UNKNOWN,
        DRIVER_LIMIT_NONE,
        DRIVER_LIMIT_BUILT
    } driver;            /* whether it has limits of its own, as far as it was asked */
    uint64_t restarts;   /* of the monitor's status, when that was found out */
    uint64_t generation; /* limit_generation of it, when limits were requested */
    struct driver_limit *list;
    uint64_t left;     /* limits that could not be taken away before their group went */
    char program[300]; /* of the hook, the same path on the host; "": there is none */
    char socket[108];  /* the socket of the hook */
    bool listening;
    bool unaccepted; /* a hook's connection waits until there is memory for it */
    uv_pipe_t listener;
    struct driver_limit_call *calls;       /* of hooks, that wait for the driver */
    void (*on_progress)(struct shares *s); /* the driver has answered, or was asked; NULL: none */
};

enum driver_limit_progress {
    DRIVER_LIMIT_ASKED,   /* the driver has not answered yet */
    DRIVER_LIMIT_SET,     /* on every card of the share */
    DRIVER_LIMIT_REFUSED, /* on one at least */
};

/* Takes up again what an earlier agent has set; with DRIVER_LIMIT_OFF takes those limits away. */
void driver_limit_restore(struct shares *s);

/* Forgets all limits; they stay in force. */
void driver_limit_forget(struct shares *s);

/* Whether the driver that is here has such limits, as far as is known. */
bool driver_limit_possible(const struct shares *s);

/* Limits the group of the container that `pid` belongs to; does nothing when that is the one that
 * is limited already. -EPERM: the process is not of the slot's pod, or in no container;
 * -EOPNOTSUPP: the share is a claim's, which several groups have; -ENOENT: the control group is not
 * one of the second version; -ENOMEM. */
int driver_limit_begin(struct shares *s, struct slot *slot, int pid, struct err *err);

/* How far it is for the container of the slot; `why` (may be NULL) receives the driver's error. */
enum driver_limit_progress driver_limit_progress(const struct shares *s, const struct slot *slot,
                                                 struct err *why);

/* What the driver holds the container to on the n-th card of its share; 0: nothing. */
uint64_t driver_limit_bytes(const struct shares *s, const struct slot *slot, uint32_t at);

/* Tells the driver what is new. Call it after the processes were named. */
void driver_limit_update(struct shares *s);

/* The driver's result. */
void driver_limit_answer(struct shares *s, const struct gpu_limit_answer *answer);

/* The slot is being removed: no process of its pod is left. */
void driver_limit_end(struct shares *s, const struct slot *slot);
