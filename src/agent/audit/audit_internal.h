/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The state of the audit: what its files share. */

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "agent/audit/card_audit.h"
#include "agent/audit/container_stop.h"
#include "agent/shares/shares.h"
#include "agent/verdicts/audit_memory.h"

struct mapped_query;

#define KNOWN_PROCESSES 2048
#define KNOWN_WINDOW 32 /* entries that a PID can be in */
#define SHARELESS_MAX 32

struct audit_options {
    const char *namespace; /* of the agent's own pods, whose processes are never reported */
    enum overuse_policy on_overuse, on_escape;
    const char *overuse_rules; /* NULL: none */
    unsigned interval_ms;      /* between polls while no container has a share; 0: 1 s */
};

struct audit {
    struct shares *shares;
    struct audit_options options;
    /* The GPU object of the card with that UUID; false while there is none. NULL: there is none. */
    bool (*find_object)(const char *uuid, char ret_name[static KUBE_NAME_MAX],
                        char ret_uid[static KUBE_UID_MAX], void *userdata);
    void *userdata;

    uv_timer_t sweep_timer;
    uint64_t
        outside[GPU_MAX]; /* bytes of each card (by position) held by no container with a share */

    uv_timer_t poll_timer; /* polls the driver again to confirm a suspicion */
    uint64_t read_polls;   /* of the monitor's status, at the last audit */
    bool initial_pids;     /* the agent lives in the machine's own PID namespace */
    uint64_t overuse_found, overuse_stopped;
    struct container_stops stops;
    struct card_audit audits[GPU_MAX]; /* by position in the snapshot */
    struct holder_scan *holder_scan;   /* under way, or NULL */
    struct shareless_process {
        uint32_t pid;      /* 0: unused */
        uint64_t since_ms; /* the first poll of it */
        uint64_t seen_ms;  /* the last one */
        bool reported;
    } shareless[SHARELESS_MAX]; /* processes of pods on cards of which they have no share */

    struct known_process {
        uint32_t pid;                         /* 0: unused */
        const struct slot *slot;              /* for comparison only: it may be gone */
        uint64_t life;                        /* another one after each exec */
        uint64_t since_ms, seen_ms, until_ms; /* loop time; the verdict is valid until `until_ms` */
        bool judged, bypasses;
        struct mapped_query *query;
    } known[KNOWN_PROCESSES]; /* processes that were checked against their ledgers */
    bool mapped_pending;      /* of some there is no answer yet */
};
