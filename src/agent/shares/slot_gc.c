/* SPDX-License-Identifier: Apache-2.0 */

/* Removes shares of pods that are gone. A pod deleted with --force leaves the API server while its
 * containers still run, and kubelet gives its device IDs to the next pod at once. So a share counts
 * as allocated until the last process of the pod has ended. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/os/cgroup.h"
#include "agent/shares/cdi.h"
#include "agent/shares/driver_limit.h"
#include "agent/shares/shares.h"
#include "base/err.h"
#include "base/log.h"

#define SCAN_MS 25        /* first interval between scans */
#define SCAN_SLOW_MS 1000 /* when a pod takes long to end */
#define SLOW_AFTER_MS 20000
#define SCAN_STEP 256 /* processes scanned in one step of the loop */
#define CLEAN_SCANS 2 /* a fork can hide behind the scan once, and its parent is gone then */
#define START_GRACE_MS                                                                             \
    1500 /* a container whose CDI file was read before we removed it starts in that */

static void on_timer(uv_timer_t *timer);

void slot_gc_init(struct shares *s) {
    (void) uv_timer_init(s->loop, &s->gc.timer);
    s->gc.timer.data = s;
}

static void revoke_slot(struct shares *s, struct slot *slot) {
    struct err err;

    slot->revoked = cdi_remove(s->options.cdi_dir, slot->nonce, &err) == 0;
    if (!slot->revoked)
        log_error("%s", err.text);
}

static void release_slot(struct shares *s, struct slot *slot, bool stopped) {
    if (slot->releasing)
        return;
    slot->releasing = true;
    slot->release_after = uv_now(s->loop) + (stopped ? 0 : START_GRACE_MS);
    /* A scan in progress does not count. */
    slot->clean_scans = procfs_walk_is_under_way(&s->gc.walk) ? -1 : 0;
    revoke_slot(s, slot);
    s->gc.since = uv_now(s->loop);
    if (!procfs_walk_is_under_way(&s->gc.walk))
        (void) uv_timer_start(&s->gc.timer, on_timer, 0, 0);
}

void slot_gc_release(struct shares *s, const char *pod_uid, bool stopped) {
    for (struct slot *slot = s->slots.slots; slot; slot = slot->hh.next)
        if (!slot->grant.claim && strcmp(slot->grant.pod_uid, pod_uid) == 0)
            release_slot(s, slot, stopped);
}

void slot_gc_release_claim(struct shares *s, struct slot *slot, bool stopped) {
    release_slot(s, slot, stopped);
}

void slot_gc_cancel(struct shares *s, const char *pod_uid) {
    for (struct slot *slot = s->slots.slots; slot; slot = slot->hh.next) {
        if (slot->grant.claim || strcmp(slot->grant.pod_uid, pod_uid) != 0)
            continue;
        slot->releasing = false;
        slot->revoked = false;
    }
}

/* ---- processes ---- */

/* `pod_uid` NULL: it may be any pod's. */
static void mark_alive(struct shares *s, const char *pod_uid) {
    for (struct slot *slot = s->slots.slots; slot; slot = slot->hh.next)
        if (slot->releasing && (!pod_uid || slot_is_of_pod(&slot->grant, pod_uid)))
            slot->clean_scans = -1;
}

/* A process that cannot be checked now (no descriptor, no memory) counts as alive. */
static void look_at(int pid, void *userdata) {
    struct shares *s = userdata;
    struct cgroup_id id;
    int r = cgroup_of_pid(pid, &id);

    if (r == 1)
        mark_alive(s, id.pod_uid);
    else if (r == -EMFILE || r == -ENFILE || r == -ENOMEM || r == -EINTR || r == -EIO)
        mark_alive(s, NULL);
}

static void remove_slot(struct shares *s, struct slot *slot) {
    struct err err;

    log_info("released %s/%s container %s (slot %s)", slot->grant.namespace, slot->grant.pod,
             slot->grant.container, slot->nonce);
    driver_limit_end(s, slot);
    if (s->gc.on_remove)
        s->gc.on_remove(slot, s->gc.userdata);
    if (slot_remove(&s->slots, slot, &err) < 0)
        log_error("%s", err.text);
    if (!s->slots.slots)
        library_remove_mount_point(s->options.host_root);
}

/* After a whole scan: removes what no process uses any more. Returns whether there is more to wait
 * for.
 */
static bool remove_unused(struct shares *s) {
    struct slot *slot, *next;
    bool removed = false, more = false;

    HASH_ITER(hh, s->slots.slots, slot, next) {
        if (!slot->releasing)
            continue;
        slot->clean_scans++;
        if (!slot->revoked)
            revoke_slot(s, slot);
        if (slot->revoked && slot->clean_scans >= CLEAN_SCANS &&
            uv_now(s->loop) >= slot->release_after) {
            remove_slot(s, slot);
            removed = true;
        } else {
            more = true;
        }
    }
    if (removed && s->gc.on_removed)
        s->gc.on_removed(s->gc.userdata);
    return more;
}

static void on_timer(uv_timer_t *timer) {
    struct shares *s = timer->data;
    bool slow = uv_now(s->loop) - s->gc.since > SLOW_AFTER_MS;
    int r = procfs_walk_step(&s->gc.walk, SCAN_STEP, look_at, s);

    if (r < 0)
        log_error("cannot read /proc; no share is released");
    if (r != 1) {
        (void) uv_timer_start(timer, on_timer, r < 0 ? SCAN_SLOW_MS : 1, 0);
        return;
    }
    if (remove_unused(s))
        (void) uv_timer_start(timer, on_timer, slow ? SCAN_SLOW_MS : SCAN_MS, 0);
}

/* ---- what an earlier agent left ---- */

static void remove_orphan_file(const char *nonce, void *userdata) {
    struct shares *s = userdata;

    if (!slot_find(&s->slots, nonce))
        (void) cdi_remove(s->options.cdi_dir, nonce, NULL);
}

/* Whether a pod that may start containers uses the claim. */
static bool claim_is_used(const struct shares *s, const struct slot_claim *claim) {
    for (uint32_t i = 0; i < claim->npods; i++) {
        const struct pod_entry *e = pods_find(s->pods, claim->pods[i]);

        if (e && !e->pod.finished)
            return true;
    }
    return false;
}

void slot_gc_claims(struct shares *s) {
    uint64_t now = uv_now(s->loop);

    if (!s->pods || !pods_ever_synced(s->pods))
        return;
    for (struct slot *slot = s->slots.slots; slot; slot = slot->hh.next) {
        const struct slot_claim *claim = slot->grant.claim;

        if (!claim || slot->releasing)
            continue;
        if (claim_is_used(s, claim))
            slot->unused_until = 0;
        else if (slot->unused_until == 0)
            slot->unused_until = now + SLOT_GC_UNUSED_MS;
        else if (now >= slot->unused_until)
            slot_gc_release_claim(s, slot, false);
    }
}

void slot_gc_orphans(struct shares *s) {
    for (struct slot *slot = s->slots.slots; slot; slot = slot->hh.next) {
        const struct pod_entry *e = pods_find(s->pods, slot->grant.pod_uid);

        if (slot->grant.claim && !claim_is_used(s, slot->grant.claim))
            slot_gc_release_claim(s, slot, false);
        else if (slot->grant.claim)
            continue;
        else if (!e)
            slot_gc_release(s, slot->grant.pod_uid, false);
        else if (e->pod.finished)
            slot_gc_release(s, slot->grant.pod_uid, true);
    }
    (void) cdi_each(s->options.cdi_dir, remove_orphan_file, s, NULL);
}
