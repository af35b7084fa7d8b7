/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Divides a card as a plan of mig/plan.h says, while other instances of it are in use. Safe to end
 * at any call and to run again: each run begins with what the driver says of the card. */

#include "abi/nvml.h"
#include "base/err.h"
#include "mig/plan.h"

struct nvml;

#define GPU_MIG_REASON_MAX 512

struct gpu_mig_request {
    bool enabled;   /* the MIG mode that is wanted */
    bool mode_only; /* instances matter only where the mode ends */
    bool mode_kept; /* -EINVAL where the card is not in the mode */
    /* The instances that are wanted in MIG mode. Not called before the driver tells of profiles. */
    int (*want)(const struct mig_card *card, void *userdata, struct mig_want *ret, struct err *err);
    /* Marks what is in use beside what the driver says: instances of pods. Called each time the
     * card has been read, also on the way back. A negative errno ends the run. May be NULL. */
    int (*mark)(struct mig_card *card, void *userdata, struct err *err);
    /* Before the steps of a plan, with what it ends. -EAGAIN: the card is read and planned anew;
     * another negative errno ends the run. May be NULL. */
    int (*begin)(const struct mig_card *card, const struct mig_plan *plan, void *userdata,
                 struct err *err);
    /* Before each change: "destroy instance 2 (2g.20gb at 4)". May be NULL. */
    void (*step)(const char *text, void *userdata);
    void *userdata;
};

struct gpu_mig_result {
    bool pending; /* instances in use are in the way: nothing was changed, or it has been undone */
    uint32_t in_use;                 /* of `pending`: how many instances, or the card as one */
    char reason[GPU_MIG_REASON_MAX]; /* of `pending`, with the names of what uses them */
    bool needs_reset; /* the driver has taken the mode, and changes it when the card is reset */
    /* What could not be put back after a failure or while pending: "2g.20gb at 4 (cause), ...". */
    char lost[GPU_MIG_REASON_MAX];
    uint32_t changes;   /* without those of the undoing */
    uint64_t driver_ns; /* in calls that change the card */
    uint64_t total_ns;
};

/* 0: reached, or pending. -EBUSY: needs_reset. -EIO, -ENOSPC, -EINVAL, -EOPNOTSUPP: failed. What
 * was changed before a failure or `pending` is undone, each instance by itself; *ret, which is
 * filled after failures too, names those that could not be put back. Blocks as long as the driver
 * does. */
int gpu_mig_apply(const struct nvml *n, nvmlDevice_t device, const struct gpu_mig_request *request,
                  struct gpu_mig_result *ret, struct err *err);
