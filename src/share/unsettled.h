/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* GPU time of processes that cannot charge it themselves: a process that is stopped while its work
 * runs, or that has ended before its work did.
 *
 * A process shows in the account (struct compute_work) that it has work on a card. While it runs it
 * charges that work and moves a counter. When the counter does not move for UNSETTLED_NS, or
 * the kernel has marked the process as dead, the account is charged for the time that passes, by
 * the same rule. When a process continues, it credits what was added here and charges the cost of
 * its work. For a dead process, the time up to the step that detects the death is charged, the
 * charges of launches that had not started are credited, and its slot becomes free.
 *
 * No clock and no locks; the file is tenant memory and may hold any values. Memory that a caller
 * guards with share/sigbus_guard.h: unsettled_step allocates nothing. */

#include <stdbool.h>
#include <stdint.h>

#include "share/compute_core.h"

/* Longer than COMPUTE_WAIT_NS. */
#define UNSETTLED_NS 50000000ull

/* The most that is charged for a process that does not move. */
#define UNSETTLED_MAX_NS 60000000000ull

struct unsettled_process;

/* One container on one card; all zero at first. */
struct unsettled {
    uint64_t devices; /* bit mask of the devices that are stepped; the caller sets it */
    struct unsettled_process *process;
    uint32_t reserved;      /* of `process` */
    uint32_t next;          /* where the next step begins */
    uint32_t still;         /* processes that did not move: they share the time */
    uint64_t charged_ns;    /* what was charged, all together */
    uint64_t pending_ns;    /* what was charged and may be taken back by processes that go on */
    uint64_t own_ns;        /* time that the container could have had the card, all together */
    uint64_t own_before_ns; /* the same, one step earlier */
};

void unsettled_done(struct unsettled *unsettled);

/* How many indices of processes the file has in use, at most COMPUTE_PROCESSES. */
uint32_t unsettled_count(const struct compute_file *file);

/* Makes room for `n` processes; false: there is no memory. */
bool unsettled_reserve(struct unsettled *unsettled, uint32_t n);

/* Time has passed: `passed_ns`, of which others took `others_ns`, while `neighbours` containers
 * wanted the card. */
void unsettled_pass(struct unsettled *unsettled, uint64_t passed_ns, uint64_t others_ns,
                    uint32_t neighbours);

/* Reads at most 128 processes, and charges. */
void unsettled_step(struct unsettled *unsettled, struct compute_file *file, uint32_t device,
                    uint64_t now_ns);
