/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Between daemon.c (descriptors and time) and serve.c (what each request means). */

#include <stdbool.h>

#include "sim/daemon.h"
#include "sim/machine.h"
#include "sim/pidns.h"
#include "sim/request.h"

#define NO_MINOR UINT32_MAX

enum watch_kind {
    WATCH_LISTENER,
    WATCH_CTL,
    WATCH_DEVICE,
    WATCH_BELL,
    WATCH_TIMER,
    WATCH_USER,
};

struct watch {
    struct watch *next, *previous;
    enum watch_kind kind;
    int fd;
    uint32_t minor; /* NO_MINOR: nvidiactl */
    struct sim_session *session;
    void (*ready)(int fd, void *user);
    void *user;
};

struct daemon {
    struct sim_machine machine;
    struct pidns own_pids;
    char *dir;
    int epoll;
    int timer;
    int spare; /* given up for a moment when descriptors run out */
    int page_fd[SIM_MAX_GPUS];
    uint64_t timer_at;
    bool stop;
    struct watch *watches;
    struct watch *dead;
    union { /* where answers are put together */
        struct sim_process processes[SIM_LIST_MAX];
        struct sim_sample samples[SIM_LIST_MAX];
    } list;
};

static inline void daemon_freep(struct daemon **d) {
    daemon_free(*d);
}

/* CLOCK_MONOTONIC in nanoseconds. */
uint64_t daemon_now(void);

/* Answers one request. Negative: the client is to be disconnected. */
int daemon_serve(struct daemon *d, struct watch *w, const struct sim_request *request);

/* Makes the session's ring and doorbell; the caller owns the two descriptors. */
int daemon_session_queue(struct daemon *d, struct sim_session *s, int ret_fds[2]);
