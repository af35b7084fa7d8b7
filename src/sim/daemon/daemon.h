/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The simulated driver's daemon: one thread, one epoll, the sockets of src/sim/proto.h. */

#include <stdint.h>

#include "base/err.h"
#include "sim/daemon/config.h"
#include "sim/proto.h"

struct daemon;

struct daemon_options {
    const char *dir;                 /* exists; sockets left in it by a dead daemon are replaced */
    const char *seed;                /* UUIDs and serial numbers derive from it */
    const struct sim_config *config; /* with 1 to SIM_MAX_GPUS GPUs */
};

int daemon_new(const struct daemon_options *options, struct daemon **ret, struct err *err);

/* Removes the sockets and disconnects every client. NULL is allowed. */
void daemon_free(struct daemon *d);

/* Calls `ready` whenever `fd` can be read. The daemon does not own the fd. */
int daemon_watch(struct daemon *d, int fd, void (*ready)(int fd, void *user), void *user);

/* Serves until daemon_stop() is called from a callback. */
int daemon_run(struct daemon *d, struct err *err);
void daemon_stop(struct daemon *d);
