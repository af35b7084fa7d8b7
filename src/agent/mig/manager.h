/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The division that the node's label nvidia.com/mig.config, or the configuration, names: applied to
 * all cards by jobs of the executor, again where instances have gone, and until what pods hold no
 * longer is in the way. Of several wishes the last one counts: what has not begun for an earlier
 * one does not begin. On a node with dynamic instances it is applied once after a boot and once for
 * each wish. One thread, on a libuv loop. */

#include <stdbool.h>
#include <uv.h>

#include "agent/mig/executor.h"

struct mig_manager;

#define MIG_REASON_MAX 1024

/* What mig-manager writes as nvidia.com/mig.config.state. */
enum mig_state {
    MIG_STATE_NONE, /* nothing is wanted */
    MIG_STATE_PENDING,
    MIG_STATE_REBOOTING, /* a card is reset, as its mode changes by that only */
    MIG_STATE_SUCCESS,
    MIG_STATE_FAILED,
};

const char *mig_state_name(enum mig_state state); /* "" for MIG_STATE_NONE */

struct mig_status {
    enum mig_state state;
    char config[MIG_CONFIG_NAME_MAX];
    char reason[MIG_REASON_MAX]; /* what it waits for, or why it failed; else "" */
    unsigned in_use;             /* not 0: `reason` names what uses so many instances and cards */
    bool recorded;               /* success of a former agent, which is being checked */
};

#define MIG_PROBLEM_MAX 1280

/* What is wrong, "" where nothing is; for every client: it names no pod. */
void mig_status_problem(const struct mig_status *status, char ret[static MIG_PROBLEM_MAX]);

struct mig_manager_handlers {
    /* Why there is no file now; NULL: there is one, or none is named. */
    const char *(*no_file)(void *userdata);
    /* Cards (bits, by index) that do not answer. */
    uint64_t (*left_out)(void *userdata);
    /* Has a card reset, whose MIG mode changes by that only. A negative errno: it is not; -EAGAIN:
     * not yet. */
    int (*reset)(const char *uuid, void *userdata, struct err *err);
    /* Whether a card is being reset, or waits for it: no job runs meanwhile. */
    bool (*is_resetting)(void *userdata);
    void (*on_status)(const struct mig_status *status, void *userdata); /* it has changed */
};

struct mig_manager_options {
    struct mig_executor *executor;
    const char *file;   /* mig-parted's file; "": what the cards can have */
    const char *hooks;  /* mig-parted's hooks file; "": none */
    const char *record; /* file that has what was applied last, and of which files; gone after a
                         * boot */
    const struct mig_manager_handlers *handlers;
    void *userdata;
};

int mig_manager_new(uv_loop_t *loop, const struct mig_manager_options *options,
                    struct mig_manager **ret);

/* What is wanted now, "" for nothing. `dynamic`: see above. */
void mig_manager_want(struct mig_manager *m, const char *config, bool dynamic);

/* The devices of the node, as a hash of what they are divided into; at each complete reading. */
void mig_manager_update(struct mig_manager *m, uint64_t division);

/* The file, or what `no_file` says of it, can be another. */
void mig_manager_see_file(struct mig_manager *m);

/* A pod may have ended. */
void mig_manager_retry(struct mig_manager *m);

/* Whether this is the first division after a boot, and not ended: no pod may take a card before. */
bool mig_manager_holds(const struct mig_manager *m);

const struct mig_status *mig_manager_status(const struct mig_manager *m);

/* To be called before the executor is closed; frees later, with the loop running. */
void mig_manager_close(struct mig_manager *m);
