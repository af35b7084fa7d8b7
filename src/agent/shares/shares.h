/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The shares of this node and what they are made from. One thread, one libuv loop. */

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "agent/cluster/pod_events.h"
#include "agent/cluster/pods.h"
#include "agent/shares/cdi_guard.h"
#include "agent/shares/driver_limit.h"
#include "agent/shares/library_store.h"
#include "agent/shares/slot.h"
#include "agent/shares/slot_gc.h"
#include "gpu/driver/driver.h"
#include "gpu/nvml/monitor.h"
#include "model/scaling.h"
#include "share/limits_core.h"

struct keys;
struct mps;

/* All texts borrow from argv or the environment. */
struct share_options {
    const char *node_name;
    const char *host_root; /* "" for / */
    const char *state_dir;
    const char *cdi_dir;
    const char *mps_dir;  /* of an MPS daemon that is not the agent's; "": none */
    const char *hook;     /* the program aliquot-hook, and where it is put on the host */
    const char *hook_dir; /* "": only state_dir */
    enum driver_limit_policy driver_limits;
    enum share_policy compute_policy; /* of containers whose pod sets none */
    uint32_t pod_policies;            /* bit 1 << policy: what a pod may ask for */
    bool hardware_slices;
    uint32_t memory_scaling; /* in thousandths, 1000 and more; 0: not given */
};

struct shares {
    uv_loop_t *loop;
    struct share_options options;
    struct gpu_driver_places places;
    unsigned int extras; /* of enum gpu_extra: what containers with a card get, too */
    struct gpu_monitor *monitor;
    const struct gpu_driver *driver; /* as found last; NULL: none */
    struct library library;
    struct cdi_guard guard;
    struct slot_store slots;
    struct slot_gc gc;
    struct pods *pods;
    struct keys *keys;
    struct pod_events events;
    struct driver_limits driver_limits;
    struct mps *mps; /* NULL: the agent runs no MPS */
    struct arbiter *arbiter;
    uint64_t gputime_sampled; /* uv_hrtime of the last sample of the driver's figures */
    uint64_t reclaimed;       /* ledger slots given back for dead processes */
    bool closing;             /* the agent stops: no timer starts any more */
};

/* Bytes that the node offers of the device in shares: its memory by its own factor of
 * oversubscription, or by that of the node. */
static inline uint64_t shares_capacity(const struct shares *s, const struct gpu_device *d) {
    if (gpu_is_part(d))
        return d->memory; /* instances are not oversubscribed */
    return scaling_capacity(d->memory, d->scaling > 0 ? d->scaling : s->options.memory_scaling);
}
