/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Ends containers and sees that they have ended. cgroup.kill alone does not do: some kernels spare
 * a process with it whose first thread has ended. So SIGKILL is sent to the control group where it
 * has cgroup.kill, and to each process found in it besides, through pidfds, so that no other
 * process is hit that got the number. It is sent again until two looks at all processes in a row
 * have found none of the container. kubelet then starts the container again, or not, as its pod
 * says.
 *
 * All on the loop, in bounded steps, for all containers together. */

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "agent/os/cgroup.h"
#include "agent/os/procfs.h"

#define CONTAINER_STOP_PIDS 8

/* A container that is being ended. */
struct container_stop {
    struct container_stop *prev, *next;
    struct cgroup_id id;
    char slot[40];       /* nonce of its share */
    char directory[512]; /* its control group of the second version; "": it has none */
    uint64_t since_ms;   /* loop time */
    bool met;            /* a process of it ran */
    bool late;           /* that was told */
    int clean;           /* looks in a row that found none */
    uint32_t alive;      /* processes that the look under way has found */
    uint32_t pids[CONTAINER_STOP_PIDS]; /* the first of them */
};

struct container_stops {
    uv_timer_t timer;
    struct container_stop *list;
    struct procfs_walk walk;
    bool walking;
    /* Its last process has ended; it is forgotten afterwards. */
    void (*on_stopped)(const struct container_stop *s, void *userdata);
    /* Processes of it go on a second after the first signal. Told once. */
    void (*on_late)(const struct container_stop *s, void *userdata);
    void *userdata;
};

/* Sets up the timer; the caller sets the callbacks. */
void container_stops_init(struct container_stops *s, uv_loop_t *loop);

/* Begins to end the container of a process; `id` is what cgroup_of_pid() said of it, `slot` the
 * nonce of its share, `host_root` where the host's / is mounted ("" for /). A container that is
 * being ended already is left to that. -EINVAL: the process is in no container; -ENOMEM. */
int container_stops_begin(struct container_stops *s, int pid, const struct cgroup_id *id,
                          const char *slot, const char *host_root);

/* Forgets all of them; the timer is still to be closed. */
void container_stops_end(struct container_stops *s);
