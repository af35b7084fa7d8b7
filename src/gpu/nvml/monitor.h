/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Maintains a snapshot of the machine's cards without blocking on the driver. All calls of NVML are
 * made by a child process; one whose driver is unloaded exits. A child that hangs in a call for one
 * card is left with it, and another child reads the others; one that hangs in any other call is
 * killed and started again. Meanwhile the snapshot stays. A card becomes unhealthy when a call for
 * it has not returned for the deadline, or after MONITOR_STALE_MS without an answer (interval and
 * deadline together, if they are longer). One thread, on
 * a libuv loop. */

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "gpu/device.h"

struct err;
struct gpu_monitor;

#define MONITOR_STALE_MS 5000

enum gpu_limit_result {
    GPU_LIMIT_SET,
    GPU_LIMIT_UNSUPPORTED, /* this driver, or this machine, has no such limits */
    GPU_LIMIT_REFUSED,
};

struct gpu_limit_answer {
    const char *uuid, *cgroup; /* as in the request, like bytes */
    uint64_t bytes;
    uint64_t before; /* the previous limit, if the driver reports it */
    enum gpu_limit_result result;
    const char *text; /* of the driver */
};

struct gpu_monitor_options {
    const char *program; /* what to run as the child: this binary; "/proc/self/exe" */
    /* Path of the NVML library to use now, or NULL while no driver is there. Called before each
     * start. */
    const char *(*library)(void *userdata);
    void (*on_update)(void *userdata); /* the snapshot has changed, or the state of the child */
    /* Called for each device before on_update, also again for one that has not changed. It sets
     * `service`, and `reason` where that is not GPU_SERVES. NULL: all serve. */
    void (*judge)(struct gpu_device *device, void *userdata);
    /* An XID has been reported; the poll that it causes has not begun. NULL: not called. */
    void (*on_xid)(const struct gpu_xid *xid, void *userdata);
    /* The driver is going to be asked now; NULL: not called. */
    void (*on_poll)(void *userdata);
    /* The driver's answer to gpu_monitor_limit(). May be NULL. */
    void (*on_limit)(const struct gpu_limit_answer *answer, void *userdata);
    /* The end of a probe: see gpu_monitor_probe(). `error`: why no context could be made, or NULL.
     * May be NULL. */
    void (*on_probe)(const char *uuid, const char *error, void *userdata);
    /* A child has ended, for whatever reason. NULL: not called. */
    void (*on_ended)(void *userdata);
    void *userdata;
    unsigned interval_ms; /* between polls; 0: 1 s */
    unsigned deadline_ms; /* for the calls of one card, and for the child's start; 0: 4 s */
};

/* `initial` (may be NULL) is what was known before a restart of the agent; it is moved from. */
int gpu_monitor_start(uv_loop_t *loop, const struct gpu_monitor_options *options,
                      struct gpu_snapshot *initial, struct gpu_monitor **ret, struct err *err);

/* Kills the children, waits for their end, frees the monitor, then calls on_closed (may be NULL).
 * The loop must run. A child that is stuck in the kernel ends late or never: bound the wait. */
void gpu_monitor_close(struct gpu_monitor *m, void (*on_closed)(void *userdata), void *userdata);

/* Never NULL; valid until the next turn of the loop. */
const struct gpu_snapshot *gpu_monitor_snapshot(const struct gpu_monitor *m);

/* Has all devices judged again. Not to be called by `judge`. */
void gpu_monitor_judge(struct gpu_monitor *m);

/* Polls now instead of at the next interval (once the running poll has ended). Returns the value
 * that `polls` of the status has once the snapshot is newer than this call, or 0 when the driver
 * cannot be polled now. */
uint64_t gpu_monitor_poll(struct gpu_monitor *m);

/* Has the driver (615 or later) limit the processes of a control group, given by its directory, to
 * `bytes` of a card; UINT64_MAX: no limit. on_limit() gets the result, in the order of the calls; a
 * new `limit_generation` of the status drops pending ones. -EAGAIN: no child takes a request for
 * the card now. */
int gpu_monitor_limit(struct gpu_monitor *m, const char *uuid, const char *cgroup, uint64_t bytes);

/* Makes a context on a card or instance, in a process of its own: whether it takes work. on_probe()
 * gets the result, at the latest after the deadline. -EAGAIN: too many probes run, or there is no
 * driver. */
int gpu_monitor_probe(struct gpu_monitor *m, const char *uuid);

/* Closes a card, for a reset or an unload of its driver: children that have it open are killed, and
 * none opens it again. Its devices stay in the snapshot as `released`, without figures. With all
 * cards released there is no child. -ENOENT: the snapshot has no such card. */
int gpu_monitor_release(struct gpu_monitor *m, const char *uuid);

/* Whether no child has the card open any more. One that is stuck in the kernel keeps it. */
bool gpu_monitor_has_released(const struct gpu_monitor *m, const char *uuid);

/* Reads the card again, if it was released. */
void gpu_monitor_resume(struct gpu_monitor *m, const char *uuid);

/* `library` of the options names another one now: all children end, and a new one reads the cards.
 * The snapshot stays meanwhile. */
void gpu_monitor_reload(struct gpu_monitor *m);

/* From the end of the next poll on. */
void gpu_monitor_set_interval(struct gpu_monitor *m, unsigned interval_ms);
/* Also of the calls that run. */
void gpu_monitor_set_deadline(struct gpu_monitor *m, unsigned deadline_ms);

/* Whether a call for the card of that number has not returned in time and is still waited for. */
bool gpu_monitor_hangs(const struct gpu_monitor *m, uint32_t card);

struct gpu_monitor_status {
    /* The last poll was answered, and not too long ago (MONITOR_STALE_MS), and not for every card a
     * call hangs; or all cards are released, and there is none. */
    bool answering;
    bool complete;     /* at least one poll of the real driver was answered since the start */
    int pid;           /* of the child that reads the cards, 0: none */
    uint64_t polls;    /* answered */
    uint64_t restarts; /* of the child, after the first start */
    uint64_t hangs;    /* calls that did not return in time */
    /* Changes with the child that sets limits. Requests without a result are dropped then, and a
     * dropped one may have overwritten a later one: all limits are to be requested again. */
    uint64_t limit_generation;
    const char *text; /* what is wrong, for a person; "" when nothing is */
};
void gpu_monitor_status(const struct gpu_monitor *m, struct gpu_monitor_status *ret);
