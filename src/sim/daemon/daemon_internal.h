/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the files of the daemon itself call of each other. None calls one that is later in this
 * list: watch.c; connection.c, export.c and listener.c; capability.c; serve_limits.c, serve_mig.c
 * and serve_share.c; serve.c and control.c; daemon.c. */

#include <stdbool.h>

#include "sim/daemon/channel.h"
#include "sim/daemon/control.h"
#include "sim/daemon/daemon.h"
#include "sim/daemon/group.h"
#include "sim/daemon/ipc_memory.h"
#include "sim/daemon/machine.h"
#include "sim/daemon/memlimit.h"
#include "sim/daemon/pidns.h"
#include "sim/daemon/request.h"
#include "sim/daemon/session.h"

#define NO_MINOR UINT32_MAX

enum watch_kind {
    WATCH_LISTENER,
    WATCH_CTL,
    WATCH_DEVICE,
    WATCH_CAPABILITY_LISTENER,
    WATCH_CAPABILITY,
    WATCH_CONTROL_LISTENER,
    WATCH_CONTROL,
    WATCH_BELL,
    WATCH_TIMER,
    WATCH_EXPORT, /* the daemon's end of a FIFO whose other end keeps a share */
    WATCH_USER,
};

struct watch {
    struct watch *next, *previous;
    enum watch_kind kind;
    int fd;
    uint32_t minor; /* NO_MINOR: nvidiactl; of a capability: its number */
    struct sim_session *session;
    struct sim_share *share; /* WATCH_EXPORT */
    uint64_t inode;          /* of its FIFO */
    uint64_t file_system;    /* which that number counts in */
    uint64_t number;         /* behind SIM_EXPORT_PREFIX in its name */
    void (*ready)(int fd, void *user);
    void *user;
};

struct daemon {
    struct sim_machine machine;
    struct pidns own_pids;
    struct group_dir *groups; /* with limits: watched for their removal */
    char *dir;
    int epoll;
    int timer;
    int spare; /* closed for a moment when descriptors run out */
    int host_fd;
    int page_fd[SIM_MAX_UNITS];
    bool mig_needs_reset; /* MIG mode changes by a reset only */
    bool lists_dead;      /* process lists name processes that have ended, too */
    uint64_t nexports;    /* so far */
    bool stepped;
    uint64_t clock; /* of a stepped machine */
    bool unloaded;  /* refuses clients until the driver is loaded again */
    uint64_t timer_at;
    bool stop;
    struct watch *watches;
    struct watch *dead;
    union { /* buffer for answers */
        struct sim_process processes[SIM_LIST_MAX];
        struct sim_sample samples[SIM_LIST_MAX];
        struct sim_mig_entry mig[SIM_GPU_INSTANCES_MAX * 8];
        struct sim_account accounts[SIM_ACCOUNTS_MAX];
    } list;
};

static inline void daemon_freep(struct daemon **d) {
    daemon_free(*d);
}

/* An answer under construction: header, list, descriptors to pass. */
struct answer {
    struct sim_reply reply;
    void *list; /* reply.count entries, in the daemon's buffer */
    size_t list_bytes;
    int fds[2];
    int nfds;
    bool close_fds; /* when it has been sent */
};

/* ---- watch.c ---- */

/* CLOCK_MONOTONIC in nanoseconds. */
uint64_t daemon_now(void);

/* The machine's clock: the same, or `clock` where it is stepped. */
uint64_t daemon_clock(const struct daemon *d);

/* The readers' clock: microseconds since the epoch. */
uint64_t daemon_wall_us(void);

/* Seconds since the epoch as time(2) counts them, up to a tick of the kernel behind: never in the
 * future for a reader of either clock. */
uint64_t daemon_wall_s(void);

/* Watches a descriptor for input, and owns it unless it is WATCH_USER. NULL: out of memory. */
struct watch *watch_add(struct daemon *d, enum watch_kind kind, int fd, uint32_t minor);
/* Ends it; its memory stays until watch_free_dead(), since pending events may name it. */
void watch_close(struct daemon *d, struct watch *w);
void watch_free_dead(struct daemon *d);

/* Memory of `size` bytes, sealed against shrinking, which would kill the processes that map it.
 * Mapped if `ret_map`. */
int daemon_memory(const char *name, size_t size, void **ret_map);

/* ---- connection.c ---- */

/* The process at the other end. 0 or negative errno. */
int connection_pid(int fd, pid_t *ret);

/* The process is what the driver takes for an administrator: it has CAP_SYS_ADMIN in the daemon's
 * user namespace. Where the daemon itself is no root, its user's processes are administrators. */
bool connection_is_administrator(int fd);

/* Makes the session's ring and doorbell; the caller owns the two descriptors. */
int daemon_session_queue(struct daemon *d, struct sim_session *s, int ret_fds[2]);

/* Ends a connection, with its session or its use of the device; ends a session. */
void connection_hang_up(struct daemon *d, struct watch *w);
void connection_end_session(struct daemon *d, struct sim_session *s);

/* Tells all clients that the driver is gone: before their sessions end. */
void connection_tell_lost(struct daemon *d);

/* Disconnects all clients and refuses new ones until the driver is loaded again. */
void daemon_unload(struct daemon *d);
void daemon_load(struct daemon *d);

/* ---- export.c ---- */

/* A descriptor for a client: while it or a copy is open, the share stays. It is an end of a FIFO in
 * the machine's directory, so that stat() identifies it as a descriptor of the driver. */
int daemon_export(struct daemon *d, struct sim_share *share);
/* The share that such a descriptor keeps; NULL for another descriptor. */
struct sim_share *daemon_exported(struct daemon *d, int fd);

/* Its clients have closed all their copies, where `events` say so. */
void export_ready(struct daemon *d, struct watch *w, uint32_t events);
void export_end(struct daemon *d, struct watch *w);

/* Those of a daemon that was killed. */
void export_remove_stale(const struct daemon *d);

/* ---- listener.c ---- */

struct listener {
    const char *name; /* in the machine's directory */
    enum watch_kind kind;
    uint32_t minor;
    mode_t mode;
};

/* The device nodes of two cards lead to the other one each. */
void listener_swap(struct daemon *d, uint32_t a, uint32_t b);

/* A socket whose name appears when connections are taken, not before. */
int listener_add(struct daemon *d, const struct listener *l, struct err *err);

/* ---- capability.c ---- */

/* The nodes of capabilities, and the files below /proc that describe them. Removes what a daemon
 * that was killed left. */
int capability_start(struct daemon *d, struct err *err);
void capability_end(struct daemon *d);

/* Two cards have exchanged the numbers of their device nodes. */
int capability_swap(struct daemon *d, uint32_t a, uint32_t b, struct err *err);

/* Brings both in line with the instances of a card. Device nodes stay when an instance has gone:
 * only the files say which exist. */
int capability_update(struct daemon *d, uint32_t minor, struct err *err);

/* 0, or -EACCES with the number in the answer where the process has not that capability. */
int capability_check(const struct daemon *d, const struct sim_session *s, uint32_t number,
                     struct answer *a);

/* ---- serve_*.c, serve.c, control.c ---- */

/* The requests of serve_share.c: as daemon_serve(), with the answer still to be sent. */
int serve_share(struct daemon *d, struct sim_session *s, const struct sim_request *q, int fd,
                struct answer *a);

/* Takes memory for a process: from the card and, with memory limits, from its control group. */
int serve_take(struct daemon *d, struct sim_channel *c, const struct sim_request *q);
void serve_give(struct sim_channel *c, const struct sim_request *q);
int serve_context(struct daemon *d, struct sim_channel *c, uint64_t *ret_bytes);
int serve_resume(struct daemon *d, struct sim_channel *c);

/* SIM_LIMITS, with the descriptor that came along, or -1. Returns the answer's status. */
int serve_limits(struct daemon *d, struct watch *w, const struct sim_request *q, int fd,
                 struct answer *a);

/* SIM_MIG. Returns the answer's `a` or, negative, its status. */
int serve_mig(struct daemon *d, struct sim_session *s, const struct sim_request *q,
              struct answer *a);

/* Ends a GPU instance with its compute instances, also while processes use them. -ENOENT; -EBUSY
 * while a descriptor keeps memory of it. */
int daemon_end_instance(struct daemon *d, uint32_t minor, uint32_t gi);

/* The card has been reset, or the driver unloaded: no instance is left, and a pending MIG mode is
 * the mode now. A mode that was not to change is in the InfoROM of cards before Hopper and stays on
 * there; on later cards it is off. */
void daemon_forget_instances(struct daemon *d, uint32_t minor);

/* Divides a card as a machine file says. */
int daemon_divide(struct daemon *d, uint32_t minor, const char *how, struct err *err);

/* Answers one request, which came with descriptor `fd` or -1. Negative: the client is to be
 * disconnected. */
int daemon_serve(struct daemon *d, struct watch *w, const struct sim_request *request, int fd);

/* Answers one request of the machine's owner. Negative: the connection is to be closed. */
int control_serve(struct daemon *d, int fd, const struct sim_control *c);
