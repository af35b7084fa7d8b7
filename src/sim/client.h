/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A library's connection to the daemon: libc only, and nothing newer than glibc 2.17. */

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/proto.h"

struct client_device {
    int fd;
    int node; /* the device's file, opened by path as the driver opens its nodes */
    uint32_t minor;
    const struct sim_page *page; /* read-only */
};

/* A capability of MIG that the process has. */
struct client_capability {
    int fd;
    int node;
    uint32_t number;
};

struct client {
    pthread_mutex_t lock; /* one request at a time */
    char dir[108];        /* the machine's directory */
    uint64_t token[2];    /* of the session */
    int ctl;
    int node;                    /* the file of nvidiactl, likewise */
    bool lost;                   /* the daemon closed the connection; every call fails */
    const struct sim_host *host; /* read-only; stays mapped */
    uint32_t ndevices;
    struct client_device device[SIM_MAX_GPUS]; /* in the machine's order */
    uint32_t ncapabilities;
    struct client_capability capability[2 * SIM_MAX_UNITS];
};

#define CLIENT_INIT                                                                                \
    { .lock = PTHREAD_MUTEX_INITIALIZER, .ctl = -1, .node = -1 }

/* Connects and attaches every device that can be reached. 0, or a negative errno: -ENOENT where
 * there is no driver. A driver without devices is no failure. On failure nothing is open. */
int client_open(struct client *c);

/* Closes the descriptors and forgets the pages, which stay mapped: another thread may still be
 * reading a name. In a forked child this closes the child's copies only. */
void client_close(struct client *c);

/* In a forked child: leaves the parent's connection alone. Its descriptors stay open, as those of
 * a device node do, unless the machine says that a fork closes them. */
void client_forget(struct client *c);

struct client_answer {
    struct sim_reply reply;
    void *list;      /* caller's room for the entries that follow, may be NULL */
    size_t list_max; /* bytes */
    int fds[2];      /* -1 where none came; the caller owns them */
};

/* One request and its answer. Where the request needs a capability that the process can reach, it
 * is attached. Returns reply.status, or -EPIPE when the daemon is gone. Thread-safe. */
int client_call(struct client *c, uint32_t op, uint32_t minor, uint64_t a,
                struct client_answer *answer);

/* Any request, with its `token`, and with a descriptor that goes along (-1: none). Returns as
 * client_call(). Thread-safe. */
int client_request(struct client *c, const struct sim_request *request, int fd,
                   struct client_answer *answer);

/* The same for SIM_MIG; the token carries its arguments. `fds[0]` is for SIM_MIG_ATTACH. */
int client_mig(struct client *c, uint32_t minor, enum sim_mig what, uint64_t x, uint64_t y,
               struct client_answer *answer);

/* Attaches a part of a card: its page, read-only, or NULL. `capability`: SIM_CAP_MONITOR for its
 * figures, 0 for its use. */
const struct sim_page *client_attach_part(struct client *c, uint32_t minor, uint32_t unit,
                                          uint32_t capability);

/* The same for requests of which only the status matters. */
int client_do(struct client *c, uint32_t op, uint32_t minor, uint64_t a);

/* The number of armed faults: points into the machine's page once there is one. */
extern const _Atomic uint32_t *client_faults;

/* To be called at the start of the call `name` while faults are armed. `card`: the minor number of
 * the card that the call is about, CLIENT_NO_CARD: none. Returns 0 or the status that the call is
 * to return; waits while such calls hang. */
#define CLIENT_NO_CARD UINT32_MAX
uint32_t client_fault(struct client *c, const char *name, uint32_t card);

/* Sleeps until *word, in the machine's page or a ring, is no longer `seen`, for at most `ns`. */
void client_wait(const _Atomic uint32_t *word, uint32_t seen, uint64_t ns);

/* True when the daemon has closed the connection. Sends nothing. */
bool client_is_lost(struct client *c);
