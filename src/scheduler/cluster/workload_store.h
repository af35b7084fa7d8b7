/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Keeps what the policies have learned over restarts: the ConfigMap aliquot-workload, read once
 * before anything is learned, written by the replica that leads when something new has arrived. */

#include <stdbool.h>
#include <stdint.h>

#include "scheduler/cluster/api.h"
#include "scheduler/state/state.h"

#define WORKLOAD_STORE_NAME "aliquot-workload"
#define WORKLOAD_STORE_INTERVAL_MS 60000

struct workload_store {
    struct state *state;
    struct api api;
    const char *name_space;
    struct place_model *model; /* handed to the state once the store has been read */
    bool reading, writing;
    uint64_t written_ms;    /* when it was tried last */
    uint64_t arrived;       /* as of what is written */
    uint64_t writes_until;  /* and of what is being written */
    int reported;           /* 1 + status of the failure that was logged last; 0: none */
    uint64_t reads, writes; /* counters, and those that failed */
    uint64_t failed;
};

/* 0 or -ENOMEM; the fields before `model` are given. */
int workload_store_init(struct workload_store *w);
void workload_store_done(struct workload_store *w);

/* To be called about once a second; writes only if `leads`. */
void workload_store_run(struct workload_store *w, uint64_t now_ms, bool leads);
