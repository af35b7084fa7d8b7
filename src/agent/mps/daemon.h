/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The MPS control daemon of one card: started, given its limits, watched, and started again after
 * its end with the limits given again, because a new daemon has the defaults. The daemon outlives
 * the agent; the next agent adopts it. The card's compute mode is EXCLUSIVE_PROCESS meanwhile and
 * is restored at the end; the former mode is on disk before it is changed. One thread, on a libuv
 * loop. */

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "agent/mps/directories.h"
#include "agent/mps/launch.h"
#include "agent/mps/limits.h"
#include "gpu/device.h"

struct err;
struct mps_daemon;

struct mps_daemon_options {
    const char *program; /* the agent's binary; "/proc/self/exe" */
    const char *selinux; /* "/sys/fs/selinux" */
    bool bounded;        /* mounts of this process are mounts of the node (share_dir_can_bound) */
    /* Where the driver is now. False: there is none, and `ret_why` says so. */
    bool (*driver)(struct mps_driver *ret, char ret_why[static GPU_REASON_MAX], void *userdata);
    void (*on_change)(void *userdata); /* the state or the reason has changed */
    void *userdata;
    unsigned deadline_ms;  /* of one command; 0: 5 s */
    unsigned interval_ms;  /* between checks that the daemon answers; 0: 10 s */
    unsigned retry_min_ms; /* after the first failure, doubled after each further one; 0: 100 ms */
    unsigned retry_max_ms; /* 0: 10 s */
};

/* Does nothing yet. `uuid` is the card's. -ENAMETOOLONG, -ENOMEM. */
int mps_daemon_new(uv_loop_t *loop, const struct mps_daemon_options *options, const char *dir,
                   const char *uuid, struct mps_daemon **ret, struct err *err);

/* Starts the daemon with these limits, or gives them to the daemon that runs. */
void mps_daemon_run(struct mps_daemon *d, const struct mps_limits *limits);

/* Ends the daemon and its servers, restores the compute mode and removes the directories; failures
 * are tried again. */
void mps_daemon_stop(struct mps_daemon *d);

/* The card was reset or its driver loaded anew: both may change the compute mode. It is set again;
 * a daemon that is ready stays so unless that fails. */
void mps_daemon_check_mode(struct mps_daemon *d);

enum mps_state {
    MPS_STOPPED,  /* no daemon, no directories, the card has its former compute mode */
    MPS_STARTING, /* or starting again */
    MPS_READY,    /* clients can connect and get the limits */
    MPS_STOPPING,
};

struct mps_status {
    enum mps_state state;
    int pid;           /* of the daemon; 0: none */
    bool busy;         /* a process works for it: a command, or a change of the compute mode */
    uint64_t restarts; /* after a daemon ended or was killed because it did not answer */
    const char *why;   /* what keeps it from its state, for a person; "" in MPS_READY */
};
void mps_daemon_status(const struct mps_daemon *d, struct mps_status *ret);

/* Whether it runs, is to run, or has left something, as one of a former agent has. */
bool mps_daemon_exists(const struct mps_daemon *d);

const struct mps_directories *mps_daemon_directories(const struct mps_daemon *d);

/* Frees it; the daemon itself goes on. Then calls on_closed (may be NULL). */
void mps_daemon_close(struct mps_daemon *d, void (*on_closed)(void *userdata), void *userdata);
