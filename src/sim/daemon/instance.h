/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Multi-instance GPUs: a card divided into GPU instances, which have memory of their own, and these
 * into compute instances, which have multiprocessors of their own. A compute instance is a unit of
 * the machine like a card: it has a minor, a page, and GPU time of its own. */

#include "sim/daemon/machine.h"
#include "sim/mig.h"

#define COMPUTE_INSTANCES_MAX 7u

struct sim_compute_instance {
    uint32_t unit; /* minor; 0: there is none */
    uint8_t slices, start;
};

struct sim_gpu_instance {
    const struct mig_profile *profile; /* NULL: there is none */
    int start;
    struct sim_bank bank;
    struct sim_compute_instance ci[COMPUTE_INSTANCES_MAX];
};

struct sim_division {
    struct sim_gpu_instance gi[SIM_GPU_INSTANCES_MAX]; /* by id */
};

/* MIG mode of a card. -EOPNOTSUPP when its model has none, -EBUSY while a process uses it. Off ends
 * all instances. */
int instance_set_mode(struct sim_machine *m, uint32_t minor, bool on);

/* Makes a GPU instance of NVML profile id `profile`, at `start` or (-1) where it fits best. Returns
 * its id; -EINVAL for a wrong profile or place, -ENOSPC, -ENODEV when the card is not divided. */
int instance_create(struct sim_machine *m, uint32_t minor, uint32_t profile, int start);
/* -EBUSY while it has compute instances. */
int instance_destroy(struct sim_machine *m, uint32_t minor, uint32_t gi);

/* Makes a compute instance of so many slices in `page`, which is zeroed, becomes the machine's and
 * describes `unit`, a minor that is free. Returns its id in the GPU instance. */
int instance_add_compute(struct sim_machine *m, uint32_t minor, uint32_t gi, uint32_t slices,
                         uint32_t unit, struct sim_page *page);
/* Its unit, which the caller takes apart; -EBUSY while a process has a context there. */
int instance_end_compute(struct sim_machine *m, uint32_t minor, uint32_t gi, uint32_t ci);

/* A minor for one more compute instance, or -ENOSPC. */
int instance_free_unit(const struct sim_machine *m);

/* NULL when there is none such. */
struct sim_gpu_instance *instance_at(struct sim_machine *m, uint32_t minor, uint32_t gi);
