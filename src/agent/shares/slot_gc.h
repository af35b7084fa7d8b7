/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Slots of pods that are gone. */

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "agent/os/procfs.h"

struct shares;
struct slot;

struct slot_gc {
    uv_timer_t timer;
    struct procfs_walk walk;
    uint64_t since;                                          /* when the latest release began */
    void (*on_remove)(const struct slot *s, void *userdata); /* about to be removed; NULL: none */
    void (*on_removed)(void *userdata); /* shares were removed: there is room; NULL: none */
    void *userdata;
};

/* Sets up the timer; the caller sets the callbacks. */
void slot_gc_init(struct shares *s);

/* Every slot of the pod that is no claim's: no container starts with it from now on; when its
 * processes have ended it is removed. `stopped`: kubelet has confirmed that all its containers
 * ended, so none is just being started. */
void slot_gc_release(struct shares *s, const char *pod_uid, bool stopped);

/* The same for the slot of a claim: kubelet has confirmed that all containers that use it have
 * ended (`stopped`), or no pod names the claim. */
void slot_gc_release_claim(struct shares *s, struct slot *slot, bool stopped);

/* kubelet can have forgotten a claim, and never says that its use has ended: ends the share of
 * those that no pod has used for SLOT_GC_UNUSED_MS. To be called periodically. */
void slot_gc_claims(struct shares *s);

#define SLOT_GC_UNUSED_MS (5 * 60 * 1000)

/* The pod is there after all (the API server's copy was old): its slots are its own again. */
void slot_gc_cancel(struct shares *s, const char *pod_uid);

/* After the first whole list of pods: what belongs to no pod of it, and files that belong to no
 * slot. */
void slot_gc_orphans(struct shares *s);
