/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The arbiter's side of a container's account of GPU time (share/compute_core.h).
 *
 * The tenant writes the `compute` file and may put anything there, truncate it or take a lease on
 * it. It is therefore read under share/sigbus_guard.h; what comes out is any number. The
 * `grants` file is written by mapping; the tenant has it read-only. */

#include <stdint.h>

#include "base/err.h"
#include "share/compute_core.h"
#include "share/limits_core.h"
#include "share/unsettled.h"

struct compute;

/* The account of a container on one card, as its processes have written it. */
struct compute_usage {
    uint64_t charged;
    uint64_t held;
    uint64_t waits;
    uint64_t running;
    uint64_t longest;
    uint64_t launches;
    uint64_t waited;
    uint64_t corrected;
    uint32_t processes; /* that may have something unsettled, at most COMPUTE_PROCESSES */
};

/* What it may use there. */
struct compute_grant {
    uint32_t rate;
    uint64_t depth;
    uint64_t window;
    uint64_t others;
    uint64_t others_at;
    uint32_t others_rate;
    uint32_t neighbours;
};

/* Creates both files, readable by all and `compute` writable by all, or leaves existing ones as
 * they are. The directories must exist. */
int compute_create(const char *grants_path, const char *compute_path, struct err *err);

/* Opens both. -EBADMSG: one of them is something else, or of another version. One thread at a time
 * per handle. */
int compute_open(const char *grants_path, const char *compute_path, struct compute **ret,
                 struct err *err);

/* Returns NULL; accepts NULL. */
struct compute *compute_free(struct compute *compute);

/* Reads the account of a card, about 20 ns. -EBADMSG when the file is damaged or truncated; `ret`
 * is then untouched. */
int compute_read(const struct compute *compute, unsigned int device, struct compute_usage *ret);

/* Adds to what the container has taken of a card; nothing where its file is truncated. */
void compute_charge(struct compute *compute, unsigned int device, uint64_t ns);

/* Charges for processes that are stopped or dead (share/unsettled.h). Nothing happens in a file
 * that is damaged, truncated or of a version without processes. */
void compute_settle(struct compute *compute, unsigned int device, struct unsettled *unsettled,
                    uint64_t now_ns);

/* Sets the grant of a card and wakes the processes that wait for a change. */
void compute_grant(struct compute *compute, unsigned int device, const struct compute_grant *grant);

/* Publishes what the container has taken of a card over the last second, ppm. */
void compute_load(struct compute *compute, unsigned int device, uint32_t ppm);

/* The last launch, as struct grant_device has it. */
struct compute_launch {
    uint64_t at_ns;
    uint64_t charged;
};

void compute_keep_launch(struct compute *compute, unsigned int device,
                         const struct compute_launch *launch);
void compute_kept_launch(const struct compute *compute, unsigned int device,
                         struct compute_launch *ret);

/* Shows that the arbiter is at work; to be called at least every ARBITER_BEAT_NS. */
void compute_beat(struct compute *compute);

/* The bell of the container: a futex word (shared, for FUTEX_WAIT or futex_waitv) in tenant memory.
 * Do not read it by a plain load, which may be SIGBUS in a truncated file: take the value to wait
 * for from compute_bell_value. */
uint32_t *compute_bell(struct compute *compute);
int compute_bell_value(const struct compute *compute, uint32_t *ret);

/* "fixed", "burst", "weighted", "best-effort", "online", "offline", "weak", "default". */
const char *share_policy_name(enum share_policy policy);
/* -EINVAL: no such policy. */
int share_policy_parse(const char *name, enum share_policy *ret);
