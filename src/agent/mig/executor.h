/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Divides cards into MIG instances, in a child process: the loop never waits for the driver. One
 * job at a time, in the order of their submission. What a plan ends is withdrawn first: from
 * mig_executor_withdraws() kubelet is told that it is unhealthy, and an Allocate of it fails. What
 * has been taken before that stays, and the child plans anew.
 *
 * A child that is killed, with the agent or alone, leaves the card as it is then; the next job
 * begins with what the driver says. One thread, on a libuv loop. */

#include <stdbool.h>
#include <uv.h>

#include "gpu/mig/messages.h"

struct err;
struct mig_executor;

#define MIG_JOB_DEADLINE_MS 60000 /* of one call of the driver */

struct mig_executor_handlers {
    /* Path of the NVML library; NULL: there is no driver now. */
    const char *(*library)(void *userdata);
    /* What is in use beside what the driver and kubelet's checkpoint say: adds to `ret`, with
     * mig_executor_add_held(). */
    void (*held)(struct gpu_mig_held *ret, void *userdata);
    /* Whether the job may open its cards now. A negative errno: the job ends with -EBUSY and the
     * text. NULL: it may. */
    int (*may_start)(const struct gpu_mig_order *order, void *userdata, struct err *err);
    /* What mig_executor_withdraws() says has changed. After this call no Allocate succeeds for
     * what is withdrawn. */
    void (*on_withdraw)(void *userdata);
    /* The MIG mode of a card changes only while no process has it open: closes the card in this
     * agent, and returns whether that is done. Called again until then. NULL: it has none open. */
    bool (*close_card)(const char *uuid, void *userdata);
    void (*open_card)(const char *uuid, void *userdata); /* it may be opened again */
};

struct mig_executor_options {
    const char *program;                                   /* NULL: this one */
    const char *lock, *kubelet_dir, *pod_logs, *hook_root; /* see struct gpu_mig_order */
    const struct mig_executor_handlers *handlers;
    void *userdata;
};

struct mig_job {
    /* Filled by the submitter: all but lock, kubelet_dir, pod_logs and hook_root. */
    struct gpu_mig_order order;
    /* A card of the order has been processed. Valid during the call. May be NULL. */
    void (*on_card)(struct mig_job *job, const struct gpu_mig_card *card);
    /* The job has ended: 0, or a negative errno with its text. -EBUSY: another process divides the
     * cards of this machine, or a card is closed; -ECANCELED: mig_executor_cancel(). It may be
     * submitted again. */
    void (*on_done)(struct mig_job *job, int status, const char *error);
    void *userdata;

    bool submitted, canceled; /* of the executor */
    struct mig_job *next;
};

int mig_executor_new(uv_loop_t *loop, const struct mig_executor_options *options,
                     struct mig_executor **ret);

/* Queues the job, which lives until its on_done(), called in a later turn of the loop. */
void mig_executor_submit(struct mig_executor *x, struct mig_job *job);

/* The job ends before its next change of a card, and at once where it waits in the queue. on_done()
 * follows in every case. */
void mig_executor_cancel(struct mig_executor *x, struct mig_job *job);

/* Whether there is a process that may have cards open: until the end of a job, or shortly after. */
bool mig_executor_has_child(const struct mig_executor *x);

/* Whether a job has the agent keep that card closed. */
bool mig_executor_closes(const struct mig_executor *x, const char *uuid);

/* Whether a job is about to end the device: no pod may take it any more. */
bool mig_executor_withdraws(const struct mig_executor *x, const char *uuid);

/* A complete reading of all cards has come that was requested after the end of the last job: what
 * is still there is offered again. `polls`: how many have come so far. */
void mig_executor_update(struct mig_executor *x, uint64_t polls);

/* kubelet was told that these are a container's: they count as held until its checkpoint has them.
 * Replicas of a device are UUID::N. */
void mig_executor_allocated(struct mig_executor *x, const char *const *ids, size_t n);

/* Adds a device and its holder, "pod namespace/name"; of several holders the first one is named.
 * What has no room stays out, and the list says `stop`. */
void mig_executor_add_held(struct gpu_mig_held *held, const char *uuid, const char *by);

/* Kills the child, and frees; then calls on_closed. No on_done() comes any more. */
void mig_executor_close(struct mig_executor *x, void (*on_closed)(void *userdata), void *userdata);
