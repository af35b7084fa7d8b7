/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Kills containers and verifies that their processes have ended. On some kernels cgroup.kill misses
 * a process whose main thread has ended. So SIGKILL goes to the control group where cgroup.kill
 * exists, and also to each process found in the group, through pidfds because PIDs are reused. This
 * repeats until two consecutive passes over all processes find none of the container. kubelet then
 * restarts the container according to the pod's restartPolicy. All on the loop, in bounded steps,
 * for all containers together. */

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
    bool late;           /* that was reported */
    int clean;           /* consecutive passes that found none */
    uint32_t alive;      /* processes that the current pass has found */
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

/* Starts to kill the container of a process. `id` is the result of cgroup_of_pid(), `slot` the
 * nonce of its share, `host_root` the mount point of the host's / ("" for /). No effect while the
 * container is being killed. -EINVAL: the process is in no container; -ENOMEM. */
int container_stops_begin(struct container_stops *s, int pid, const struct cgroup_id *id,
                          const char *slot, const char *host_root);

/* Forgets all of them; the timer is still to be closed. */
void container_stops_end(struct container_stops *s);
