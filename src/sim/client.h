/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A library's end of the line to the daemon: libc only, and nothing newer than glibc 2.17. */

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/proto.h"

struct client_device {
    int fd;
    uint32_t minor;
    const struct sim_page *page; /* read-only */
};

struct client {
    pthread_mutex_t lock; /* one request at a time */
    int ctl;
    bool lost; /* the daemon hung up; nothing works any more */
    uint32_t ndevices;
    struct client_device device[SIM_MAX_GPUS]; /* in minor order */
};

#define CLIENT_INIT                                                                                \
    { .lock = PTHREAD_MUTEX_INITIALIZER, .ctl = -1 }

/* Connects and attaches every device that can be reached. 0, or a negative errno: -ENOENT where
 * there is no driver. A driver without devices is no failure. On failure nothing is open. */
int client_open(struct client *c);

/* Closes the descriptors and forgets the pages, which stay mapped: somebody may still be reading
 * a name. For a forked child too, whose parent goes on using its own copies. */
void client_close(struct client *c);

struct client_answer {
    struct sim_reply reply;
    void *list;      /* caller's room for the entries that follow, may be NULL */
    size_t list_max; /* bytes */
    int fds[2];      /* -1 where none came; the caller owns them */
};

/* One request and its answer. Returns reply.status, or -EPIPE when the daemon is gone.
 * Thread-safe. */
int client_call(struct client *c, uint32_t op, uint32_t minor, uint64_t a,
                struct client_answer *answer);

/* The same for requests of which only the status matters. */
int client_do(struct client *c, uint32_t op, uint32_t minor, uint64_t a);

/* True when the daemon has hung up, without asking it anything. */
bool client_is_lost(struct client *c);
