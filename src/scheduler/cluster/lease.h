/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Leader election by the Lease aliquot-scheduler. Other replicas keep their state up to date and
 * wait. Safety rests on time: the leader sends a write only if it renewed the Lease recently enough
 * that the write is decided before another replica may acquire the Lease. LEASE_SETTLE_MS bounds
 * the time from the decision to send a request until the API server has executed or dropped it. So
 * a new leader has no requests of others to wait for, but it must read again what was decided
 * before. The replica that kube-scheduler calls should be the leader. If it is not, it sets an
 * annotation on the Lease, and the leader hands over unless it is called itself. No I/O but struct
 * api, no clock but now(), so that tests control both.
 *
 * Of replicas with kube-schedulers of their own, a free Lease goes to the one whose kube-scheduler
 * leads: the first pod after an installation need not wait until another one hands over.
 *
 * Where the cluster's kube-scheduler is configured for Aliquot, a replica with a kube-scheduler of
 * its own stands back: one of the two would see what the other has placed too late. A replica that
 * the cluster's asks says so by a second annotation.
 */

#include <stdbool.h>
#include <stdint.h>

#include "kube/api/transport.h"
#include "scheduler/cluster/api.h"

#define LEASE_NAME "aliquot-scheduler"
#define LEASE_OF_KUBE_SCHEDULER "aliquot-kube-scheduler"
#define LEASE_DURATION_MS 15000
#define LEASE_RENEW_MS 2000
#define LEASE_POLL_MS 1000 /* poll interval of the other replicas */
#define LEASE_RETRY_MS 500
#define LEASE_TIMEOUT_MS 2000

/* The parts of LEASE_SETTLE_MS. A request that waits for a connection is given up after the first;
 * one that was sent and is not acknowledged by the API server's host is taken back after the
 * second; the API server ends one that has arrived after the third. */
#define LEASE_SEND_MS 4000
#define LEASE_UNACKED_MS KUBE_UNACKED_MS
#define LEASE_SERVER_S 2
#define LEASE_SETTLE_MS (LEASE_SEND_MS + LEASE_UNACKED_MS + LEASE_SERVER_S * 1000 + 1000)
_Static_assert(LEASE_SETTLE_MS + 2 * LEASE_RENEW_MS <= LEASE_DURATION_MS,
               "a renewal may fail once without a pause");

/* When a process ends, its connections are reset and nothing waits to be sent any more: what is
 * left of its requests is with the API server. */
#define LEASE_SETTLE_DEAD_MS (LEASE_SERVER_S * 1000 + 1000)

/* A holder that was asked within this time does not hand over; one that is not the holder and was
 * asked within it wants to be. */
#define LEASE_ASKED_MS 5000

/* For so long after the cluster's kube-scheduler has asked, replicas with their own stand back:
 * longer than a dead leader keeps the Lease. */
#define LEASE_CLUSTER_MS 30000

/* For so long a free Lease is left to the replica whose kube-scheduler leads. */
#define LEASE_FOLLOW_MS 5000

#define LEASE_TEXT_MAX 256

struct lease_handlers {
    /* Whether this replica could lead: it is synced and serves requests. */
    bool (*able)(void *userdata);
    /* Requests in flight. */
    unsigned (*open_requests)(void *userdata);
    /* This replica has acquired the Lease from another one, or is a new process: the state must be
     * read again before any write. */
    void (*on_acquired)(void *userdata);
    void (*on_lost)(void *userdata);
};

struct lease {
    struct api api;
    const char *name_space;
    const char *identity; /* this replica; stays the same when its container is started again */
    bool own;             /* it has a kube-scheduler of its own, and only that one asks it */
    uint64_t (*now)(void *userdata);
    const struct lease_handlers *handlers;
    void *userdata;

    uint64_t started_ms;         /* of this process */
    char holder[LEASE_TEXT_MAX]; /* as last seen, like the next four; "": none */
    char renewed[LEASE_TEXT_MAX];
    char version[LEASE_TEXT_MAX];
    char wanted_by[LEASE_TEXT_MAX]; /* the note */
    char cluster[LEASE_TEXT_MAX];   /* the replica that the cluster's kube-scheduler asks */
    uint64_t transitions;
    uint64_t duration_ms; /* the holder's own, at most a minute */
    uint64_t seen_ms;     /* when holder and renewal were first seen like this */
    uint64_t free_ms;     /* since when it has no holder and this replica could take it, or 0 */

    bool polled;         /* the fields above were read once */
    bool held;           /* held at the last poll */
    uint64_t renewed_ms; /* when the request that renewed it last was sent */
    uint64_t asked_ms;   /* when this replica was asked last */
    bool asked;
    bool yielding; /* on the way out: begins nothing, and gives the Lease back when it is quiet */
    uint64_t yielding_ms;
    void (*on_released)(void *userdata); /* of lease_release() */

    bool busy;        /* a request is under way */
    uint64_t next_ms; /* not sooner */
    uint64_t sent_ms;
    uint64_t acquired, lost, failed; /* counters */
};

/* Begins with what the caller has given; the rest, from started_ms on, is zero. */
void lease_init(struct lease *l);

/* To be called several times a second. */
void lease_run(struct lease *l);

/* kube-scheduler has asked this replica for something. */
void lease_note_asked(struct lease *l);

/* Whether a write may be sent now. */
bool lease_leads(const struct lease *l);

/* Whether this replica must not begin, or go on, since the cluster's kube-scheduler asks another
 * one, or since that is not known yet. */
bool lease_stands_back(const struct lease *l);

/* The replica that the cluster's kube-scheduler asks while this one stands back for it; "": none.
 */
const char *lease_cluster_asks(const struct lease *l);

/* Releases the Lease once no request is in flight, then calls `done`; at once if it is not held,
 * and after a timeout if the API server does not answer. No further writes are sent. */
void lease_release(struct lease *l, void (*done)(void *userdata));
