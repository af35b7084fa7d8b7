/* SPDX-License-Identifier: Apache-2.0 */

/* Shares of pods that are gone. A pod that was deleted by force leaves the API server while its
 * containers run on, and kubelet gives its plugin IDs to the next one at once. So a share counts as
 * held until the pod's last process has ended, whatever the API server says. */

#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/cdi.h"
#include "agent/cgroup.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/log.h"
#include "base/num.h"

#define SCAN_MS 25        /* between looks at the processes, at first */
#define SCAN_SLOW_MS 1000 /* when a pod takes long to end */
#define SLOW_AFTER_MS 20000
#define START_GRACE_MS                                                                             \
    1500 /* a container whose CDI file was read before we removed it appears within that */

static void on_timer(uv_timer_t *timer);

static void revoke_slot(struct agent *a, struct slot *slot) {
    struct err err;

    slot->revoked = cdi_remove(a->config.cdi_dir, slot->nonce, &err) == 0;
    if (!slot->revoked)
        log_error("%s", err.text);
}

void release_pod(struct agent *a, const char *pod_uid, bool stopped) {
    for (struct slot *slot = a->slots.slots; slot; slot = slot->hh.next) {
        if (slot->releasing || strcmp(slot->grant.pod_uid, pod_uid) != 0)
            continue;
        slot->releasing = true;
        slot->release_after = uv_now(a->loop) + (stopped ? 0 : START_GRACE_MS);
        revoke_slot(a, slot);
        a->release_since = uv_now(a->loop);
        (void) uv_timer_start(&a->release_timer, on_timer, 0, 0);
    }
}

/* ---- processes ---- */

static bool same_pod(const struct slot *slot, const char *pod_uid) {
    return strcmp(slot->grant.pod_uid, pod_uid) == 0;
}

/* Pushes back the slots being released whose pods still have a process. */
static void mark_alive(struct agent *a, const char *pod_uid) {
    for (struct slot *slot = a->slots.slots; slot; slot = slot->hh.next)
        if (slot->releasing && same_pod(slot, pod_uid))
            slot->release_after = uv_now(a->loop) + 1;
}

static int scan_processes(struct agent *a) {
    _cleanup_closedir_ DIR *proc = opendir("/proc");
    struct dirent *e;

    if (!proc)
        return -errno;
    while ((e = readdir(proc))) {
        struct cgroup_id id;
        uint64_t pid;

        if (!isdigit((unsigned char) e->d_name[0]) || num_parse_u64(e->d_name, INT32_MAX, &pid) < 0)
            continue;
        if (cgroup_of_pid((int) pid, &id) == 1)
            mark_alive(a, id.pod_uid);
    }
    return 0;
}

static void remove_slot(struct agent *a, struct slot *slot) {
    struct err err;

    log_info("released %s/%s container %s (slot %s)", slot->grant.namespace, slot->grant.pod,
             slot->grant.container, slot->nonce);
    if (slot_remove(&a->slots, slot, &err) < 0)
        log_error("%s", err.text);
}

static void on_timer(uv_timer_t *timer) {
    struct agent *a = timer->data;
    uint64_t now = uv_now(a->loop);
    bool removed = false, more = false;
    struct slot *slot, *next;

    if (scan_processes(a) < 0)
        log_error("cannot read /proc; no share is released");
    else {
        HASH_ITER(hh, a->slots.slots, slot, next) {
            if (!slot->releasing)
                continue;
            if (!slot->revoked)
                revoke_slot(a, slot);
            if (slot->revoked && now >= slot->release_after) {
                remove_slot(a, slot);
                removed = true;
            } else {
                more = true;
            }
        }
    }
    if (more)
        (void) uv_timer_start(timer, on_timer,
                              now - a->release_since > SLOW_AFTER_MS ? SCAN_SLOW_MS : SCAN_MS, 0);
    if (removed)
        prestart_wake(a);
}

/* ---- what an earlier agent left ---- */

static void remove_orphan_file(const char *nonce, void *userdata) {
    struct agent *a = userdata;

    if (!slot_find(&a->slots, nonce))
        (void) cdi_remove(a->config.cdi_dir, nonce, NULL);
}

void release_orphans(struct agent *a) {
    for (struct slot *slot = a->slots.slots; slot; slot = slot->hh.next) {
        const struct pod_entry *e = pods_find(a->pods, slot->grant.pod_uid);

        if (!e)
            release_pod(a, slot->grant.pod_uid, false);
        else if (e->pod.finished)
            release_pod(a, slot->grant.pod_uid, true);
    }
    (void) cdi_each(a->config.cdi_dir, remove_orphan_file, a, NULL);
}
