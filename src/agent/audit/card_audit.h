/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Unattributed memory of a card: its amount, the containers that can hold it, and the capacity that
 * is withheld for it. If a single container has a share of the card, the memory is charged to that
 * container. */

#include <stdbool.h>
#include <stdint.h>

#include "agent/audit/candidates.h"
#include "gpu/device.h"
#include "share/unattributed.h"

struct audit;
struct holder_scan;
struct slot;

/* So long a process that ends, or is gone, may have memory by the driver's figures: what it holds
 * is being given back. At least two polls fall into it. */
#define ENDED_MS 1000

struct ended_process {
    uint32_t pid;
    uint32_t since_ms, seen_ms; /* low bits of the loop's time */
};

struct card_audit {
    char uuid[GPU_UUID_MAX];
    struct unattributed memory;
    uint32_t polls; /* that were judged, up to some */
    /* From the last scan of processes with the driver's nodes open. */
    bool searched, complete;
    uint64_t searched_ms;
    struct candidates candidates;
    uint64_t left;      /* bytes of `memory` that a share which has ended may have left behind */
    uint64_t own;       /* bytes with which `owner` was charged last, of what there still is */
    char owner[40];     /* nonce of a slot */
    uint64_t charged;   /* bytes of `memory` that the only candidate is charged with */
    uint64_t held_back; /* bytes withheld from the scheduler, in steps of HELD_BACK_GRAIN */
    uint64_t lower_ms;  /* since when less would do; 0: it would not */
    uint64_t reported;  /* hash of what was reported last; 0: nothing */
    struct ended_process ended[GPU_PROCESSES_MAX];
    uint32_t next; /* the entry that a new process takes */
};

/* Steps in which it is published: each is a write to the API server. */
#define HELD_BACK_GRAIN ((uint64_t) 64 << 20)
#define HELD_BACK_MS 10000 /* a lower amount is published after this time */

/* Whether the process has been ending or gone for ENDED_MS. `at` is the card's position in the
 * snapshot. To be called at each poll. */
bool card_audit_has_ended(struct audit *a, uint32_t at, uint32_t pid);

/* All processes of a new poll were named and no figure of the ledgers was taken in yet. Charges
 * what is to be charged. Returns whether the driver should be asked again soon. */
bool card_audit_poll(struct audit *a);

/* The slot is about to be removed. What it leaves on its cards is charged to no other one. */
void card_audit_release(struct audit *a, const struct slot *slot);

/* Bytes of the card to withhold from the scheduler. False: not known, after the agent's start or
 * while the driver does not answer. */
bool card_audit_held_back(const struct audit *a, const struct gpu_device *card, uint64_t *ret);

/* The agent stops. */
void card_audit_stop(struct audit *a);
