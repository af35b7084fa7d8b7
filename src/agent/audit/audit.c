/* SPDX-License-Identifier: Apache-2.0 */

/* Compares containers' ledgers with NVML's figures after each poll of the driver. Overhead of the
 * driver is subtracted from the memory that a container has left. A container over its limit is
 * reported and, depending on the policy, killed. The decisions are in overhead.c and
 * audit_memory.c. */

#include <stdio.h>
#include <string.h>

#include "agent/audit/audit.h"
#include "agent/audit/audit_internal.h"
#include "agent/audit/known.h"
#include "agent/audit/orphans.h"
#include "agent/cluster/pod_events.h"
#include "agent/os/cgroup.h"
#include "agent/os/procfs.h"
#include "agent/shares/slot_owner.h"
#include "agent/shares/slot_users.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "base/num.h"
#include "base/step.h"
#include "share/ledger.h"

#define POLL_IDLE_MS 1000U
#define POLL_SHARES_MS 500U /* overuse is to be found within a second, confirmation included */
#define SHARELESS_MS 5000   /* processes not seen for this time are forgotten */

/* The part of the ledger that processes hold: no figure of a process includes orphaned memory. */
static uint64_t booked_by_processes(const struct slot *slot, uint32_t at,
                                    const struct ledger_usage *u) {
    uint32_t n = slot_card_account(slot, at);
    uint64_t orphaned = orphans_of(&slot->grant.devices[at], at, n);

    return u->used[n] > orphaned ? u->used[n] - orphaned : 0;
}

/* ---- before the driver is asked ---- */

void audit_begin(struct audit *a) {
    unsigned interval = a->options.interval_ms > 0 ? a->options.interval_ms : POLL_IDLE_MS;
    struct ledger_usage u;
    bool any = false;

    orphans_begin(a);
    for (struct slot *slot = a->shares->slots.slots; slot; slot = slot->hh.next) {
        step_end();
        any = any || slot->grant.ndevices > 0;
        if (!slot->ledger || ledger_snapshot(slot->ledger, &u) < 0)
            continue;
        for (uint32_t i = 0; i < slot->grant.ndevices; i++) {
            uint32_t n = slot_card_account(slot, i);

            overhead_begin(&slot->grant.devices[i].overhead, booked_by_processes(slot, i, &u),
                           u.operation[n]);
        }
    }
    gpu_monitor_set_interval(a->shares->monitor,
                             any && interval > POLL_SHARES_MS ? POLL_SHARES_MS : interval);
}

/* ---- while the processes are gone through ---- */

void audit_process(struct audit *a, struct slot *slot, struct slot_device *d, uint32_t pid,
                   uint64_t bytes) {
    bool bypass = !audit_knows(a, slot, pid) && !procfs_is_ending((int) pid);

    d->living += bytes;
    if (bypass > (d->bypassing > 0) || (bypass == (d->bypassing > 0) && bytes >= d->worst_bytes)) {
        d->worst_pid = pid;
        d->worst_bytes = bytes;
    }
    d->bypassing += bypass;
}

/* ---- processes without a share ---- */

/* Which of several containers of a pod a process belongs to is known a moment after its start. */
static bool pod_has_share(const struct audit *a, const char *pod_uid, const char *uuid) {
    for (const struct slot *slot = a->shares->slots.slots; slot; slot = slot->hh.next)
        for (uint32_t i = 0; i < slot->grant.ndevices; i++)
            if (slot_is_of_pod(&slot->grant, pod_uid) &&
                strcmp(slot->grant.devices[i].uuid, uuid) == 0)
                return true;
    return false;
}

/* The entry of the process in the list. A new process replaces the one not seen for longest. */
static struct shareless_process *shareless_of(struct audit *a, uint32_t pid) {
    struct shareless_process *oldest = &a->shareless[0];

    for (size_t i = 0; i < SHARELESS_MAX; i++) {
        if (a->shareless[i].pid == pid &&
            uv_now(a->shares->loop) - a->shareless[i].seen_ms < SHARELESS_MS)
            return &a->shareless[i];
        if (a->shareless[i].seen_ms < oldest->seen_ms)
            oldest = &a->shareless[i];
    }
    *oldest = (struct shareless_process){.pid = pid, .since_ms = uv_now(a->shares->loop)};
    return oldest;
}

void audit_shareless(struct audit *a, const struct gpu_device *card, uint32_t pid) {
    const struct pod_entry *e;
    struct shareless_process *process;
    struct cgroup_id id;
    char text[256], name[PROCFS_NAME_MAX];

    if (!audit_pids_fit(a) || cgroup_of_pid((int) pid, &id) != 1)
        return;
    /* We measure ourselves what a context costs. A pod that is not known yet is not reported. */
    e = a->shares->pods ? pods_find(a->shares->pods, id.pod_uid) : NULL;
    if (!e || strcmp(e->pod.namespace, a->options.namespace) == 0 ||
        pod_has_share(a, id.pod_uid, card->uuid))
        return;
    process = shareless_of(a, pid);
    process->seen_ms = uv_now(a->shares->loop);
    if (process->reported || process->seen_ms - process->since_ms < AUDIT_MEMORY_CONFIRM_MS ||
        procfs_is_ending((int) pid))
        return;
    process->reported = true;
    procfs_name((int) pid, name);
    (void) snprintf(text, sizeof(text),
                    "process %u (%s) of this pod uses GPU %u, of which it has no share: it came to "
                    "the card's device node by another way, and nothing limits it",
                    pid, name, card->index);
    pod_events_pod(&a->shares->events, e->pod.namespace, e->pod.name, e->pod.uid, "GPUWithoutShare",
                   text);
    a->overuse_found++;
}

/* ---- when all is known ---- */

static const char *const reasons[AUDIT_MEMORY_STATES] = {
    [AUDIT_MEMORY_LOWERED] = "GPUMemoryAboveLimit",
    [AUDIT_MEMORY_DAMAGED] = "GPULedgerDamaged",
    [AUDIT_MEMORY_ESCAPED] = "GPULibraryBypassed",
    [AUDIT_MEMORY_OVER] = "GPUMemoryOveruse",
};

static void describe(const struct slot *slot, uint32_t at, const char *container, uint64_t booked,
                     struct buf *out) {
    const struct slot_device *d = &slot->grant.devices[at];
    uint64_t orphaned = orphans_held(slot, at);
    char held[24], limit[24], ledger[24], name[PROCFS_NAME_MAX];

    (void) num_format_bytes(d->living + orphaned, held);
    (void) num_format_bytes(slot_card_limit(slot, at), limit);
    (void) num_format_bytes(booked, ledger);
    procfs_name((int) d->worst_pid, name);
    switch (d->memory_audit.state) {
    case AUDIT_MEMORY_OVER:
        buf_printf(
            out,
            "container %s holds %s of GPU %u by the driver's figures, its limit is %s and "
            "its ledger says %s: a program has gone past the library or forged its ledger, or "
            "the driver took more for its code than was left (look at process %u, %s)",
            container, held, d->index, limit, ledger, d->worst_pid, name);
        if (d->charged > 0) {
            (void) num_format_bytes(d->charged, held);
            buf_printf(out, ". %s of it belong to no process that the driver lists", held);
        }
        if (orphaned > 0) {
            (void) num_format_bytes(orphaned, held);
            buf_printf(out, ". %s of it were exported by descriptor, by its ledger", held);
        }
        break;
    case AUDIT_MEMORY_ESCAPED:
        buf_printf(out,
                   "container %s has %u process(es) on GPU %u that do not use the library, so "
                   "nothing limits them (a static program, or one that talks to the driver itself; "
                   "look at process %u, %s)",
                   container, d->bypassing, d->index, d->worst_pid, name);
        break;
    case AUDIT_MEMORY_DAMAGED:
        buf_printf(out,
                   "container %s has destroyed its ledger: its programs get no more GPU memory "
                   "until it is started again",
                   container);
        break;
    default:
        buf_printf(out,
                   "container %s holds %s of GPU %u, its limit was lowered to %s: it gets no more "
                   "until it has given back the difference",
                   container, held, d->index, limit);
    }
}

static enum overuse_policy policy_of(const struct audit *a, const struct slot_user *user,
                                     enum audit_memory_state state) {
    const struct pod_entry *e = user->entry;
    const struct audit_options *c = &a->options;
    char value[64];

    if (state != AUDIT_MEMORY_OVER && state != AUDIT_MEMORY_ESCAPED)
        return OVERUSE_REPORT;
    return overuse_policy_of(
        state == AUDIT_MEMORY_OVER ? c->on_overuse : c->on_escape, c->overuse_rules,
        user->namespace,
        e && pod_setting(&e->pod, SETTING_OVERUSE, user->container, value) ? value : NULL);
}

static void put_event(struct audit *a, const struct slot_user *user, const char *reason,
                      const char *text) {
    pod_events_container(&a->shares->events, user->namespace, user->pod, user->uid, user->container,
                         reason, text);
}

/* ---- policy stop ---- */

static void on_stopped(const struct container_stop *s, void *userdata) {
    struct audit *a = userdata;
    const struct slot *slot = slot_find(&a->shares->slots, s->slot);
    struct slot_user user;
    char text[160];

    a->overuse_stopped++;
    if (!slot)
        return;
    slot_user_of_group(a->shares, slot, &s->id, &user);
    (void) snprintf(text, sizeof(text), "container %s was stopped because of that (policy stop)",
                    user.container);
    put_event(a, &user, "GPUOveruseStopped", text);
}

static void on_late(const struct container_stop *s, void *userdata) {
    uint32_t shown = s->alive < CONTAINER_STOP_PIDS ? s->alive : CONTAINER_STOP_PIDS;
    _cleanup_buf_ struct buf text = BUF_INIT(1024);
    struct audit *a = userdata;
    const struct slot *slot = slot_find(&a->shares->slots, s->slot);
    struct slot_user user;

    if (!slot)
        return;
    slot_user_of_group(a->shares, slot, &s->id, &user);
    buf_printf(&text, "container %s does not end: SIGKILL was sent to it, and process",
               user.container);
    for (uint32_t i = 0; i < shown; i++)
        buf_printf(&text, "%s %u", i > 0 ? "," : "", s->pids[i]);
    if (s->alive > shown)
        buf_printf(&text, " and %u more", s->alive - shown);
    buf_puts(&text, " still run. It is sent again every second; the share stays occupied");
    put_event(a, &user, "GPUOveruseNotStopped", buf_str(&text));
}

void audit_start(struct audit *a) {
    (void) uv_timer_init(a->shares->loop, &a->sweep_timer);
    (void) uv_timer_init(a->shares->loop, &a->poll_timer);
    a->sweep_timer.data = a;
    a->poll_timer.data = a;
    container_stops_init(&a->stops, a->shares->loop);
    a->stops.on_stopped = on_stopped;
    a->stops.on_late = on_late;
    a->stops.userdata = a;
}

static void stop(struct audit *a, struct slot *slot, const struct slot_user *user,
                 const struct slot_device *d) {
    struct cgroup_id id;
    int r = cgroup_of_pid((int) d->worst_pid, &id);

    if (r != 1 || slot_of_process(a->shares, d->worst_pid) != slot)
        return; /* it has ended by itself; the next poll shows it */
    r = container_stops_begin(&a->stops, (int) d->worst_pid, &id, slot->nonce,
                              a->shares->options.host_root);
    if (r < 0)
        log_error("cannot stop container %s of %s/%s: %s", user->container, user->namespace,
                  user->pod, strerror(-r));
}

/* ---- the verdict ---- */

static void act(struct audit *a, struct slot *slot, uint32_t at, enum audit_memory_state before,
                uint64_t booked) {
    struct slot_device *d = &slot->grant.devices[at];
    enum audit_memory_state state = d->memory_audit.state;
    struct slot_user user;

    if (state == before && state < AUDIT_MEMORY_ESCAPED)
        return;
    slot_user_of_process(a->shares, slot, d->worst_pid, &user);
    if (state != before && reasons[state]) {
        _cleanup_buf_ struct buf text = BUF_INIT(1024);
        bool stops = policy_of(a, &user, state) == OVERUSE_STOP;

        describe(slot, at, user.container, booked, &text);
        if (state >= AUDIT_MEMORY_ESCAPED && !stops)
            buf_puts(&text, ". Nothing is done about it: --on-overuse=stop of the agent or "
                            "annotation elasticgpu.io/on-overuse: stop of the pod would");
        put_event(a, &user, reasons[state], buf_str(&text));
        a->overuse_found += state >= AUDIT_MEMORY_ESCAPED;
    } else if (state != before) {
        log_info("%s/%s: container %s keeps to its share of GPU %u again", user.namespace, user.pod,
                 user.container, d->index);
    }
    if (policy_of(a, &user, state) == OVERUSE_STOP)
        stop(a, slot, &user, d);
}

/* Memory of ending processes is being released and may already be in use by another process. The
 * time is bounded: a process can end and leave its memory allocated. */
static uint64_t without_ending(struct audit *a, const struct slot *slot,
                               const struct gpu_device *card, uint64_t living) {
    uint32_t at = (uint32_t) (card - gpu_monitor_snapshot(a->shares->monitor)->devices);

    for (size_t i = 0; i < card->nprocesses; i++) {
        const struct gpu_process *p = &card->processes[i];

        if (p->memory > 0 && procfs_is_ending((int) p->pid) &&
            !card_audit_has_ended(a, at, p->pid) && slot_of_process(a->shares, p->pid) == slot)
            living -= p->memory < living ? p->memory : living;
    }
    return living;
}

/* Returns whether the driver should be asked again soon. */
static bool audit_device(struct audit *a, struct slot *slot, uint32_t at,
                         const struct gpu_device *card, const struct ledger_usage *u,
                         bool *changed) {
    struct slot_device *d = &slot->grant.devices[at];
    struct audit_memory_poll poll = {
        .now_ms = uv_now(a->shares->loop),
        .limit = slot_card_limit(slot, at),
        .driver = d->living,
        .bypassing = d->bypassing,
        .damaged = u == NULL,
    };
    enum audit_memory_state before = d->memory_audit.state;
    uint64_t overhead = d->overhead.bytes, orphaned = orphans_held(slot, at);
    uint32_t n = slot_card_account(slot, at);
    bool again;

    if (d->memory_audit.ceiling == 0)
        d->memory_audit.ceiling = d->physical;
    if (poll.limit > 0 && d->living + orphaned > poll.limit + AUDIT_MEMORY_SLACK)
        d->living = without_ending(a, slot, card, d->living);
    poll.driver = d->living + orphaned;
    again = audit_memory_poll(&d->memory_audit, &poll);
    act(a, slot, at, before, u ? u->used[n] : 0);
    if (u)
        again |= overhead_end(&d->overhead, booked_by_processes(slot, at, u), u->operation[n],
                              d->living, d->driver_processes + (d->charged > 0));
    *changed = *changed || d->overhead.bytes != overhead;
    return again;
}

static void write_limits(struct audit *a, struct slot *slot) {
    bool reported = slot->limits_late;
    struct err err;

    slot->limits_late = slot_write_limits(&a->shares->slots, slot, &err) < 0;
    if (slot->limits_late && !reported)
        log_warn("the limits of %s/%s cannot be brought up to date, it is tried again: %s",
                 slot->grant.namespace, slot->grant.pod, err.text);
}

static bool audit_slot(struct audit *a, struct slot *slot) {
    const struct gpu_snapshot *s = gpu_monitor_snapshot(a->shares->monitor);
    bool again = false, changed = false, readable;
    struct ledger_usage u;

    if (slot->grant.newer)
        return false;
    readable = slot->ledger && ledger_snapshot(slot->ledger, &u) == 0;
    for (uint32_t i = 0; i < slot->grant.ndevices; i++) {
        const struct gpu_device *card = gpu_find_card(s, slot->grant.devices[i].uuid);

        if (card && gpu_can_be_audited(card) && audit_pids_fit(a))
            again |= audit_device(a, slot, i, card, readable ? &u : NULL, &changed);
    }
    if (changed || slot->limits_late)
        write_limits(a, slot);
    return again;
}

static void on_again(uv_timer_t *timer) {
    struct audit *a = timer->data;

    (void) gpu_monitor_poll(a->shares->monitor);
}

void audit_end(struct audit *a) {
    bool again = orphans_end(a) | a->mapped_pending;

    a->mapped_pending = false;

    again |= card_audit_poll(a);
    for (struct slot *slot = a->shares->slots.slots; slot; slot = slot->hh.next) {
        step_end();
        again |= audit_slot(a, slot);
    }
    if (again && !a->shares->closing)
        (void) uv_timer_start(&a->poll_timer, on_again, AUDIT_MEMORY_CONFIRM_MS + 10, 0);
}

const char *audit_trouble(const struct audit *a) {
    const struct gpu_snapshot *s = gpu_monitor_snapshot(a->shares->monitor);

    for (uint32_t i = 0; i < s->ndevices; i++)
        if (s->devices[i].healthy && gpu_has_limits(&s->devices[i]) &&
            s->devices[i].nprocesses > 0 && !audit_pids_fit(a))
            return "the driver's process numbers are not those of the agent: run it with hostPID, "
                   "or memory past the library is not found";
    return "";
}

void audit_stop(struct audit *a) {
    (void) uv_timer_stop(&a->sweep_timer);
    (void) uv_timer_stop(&a->poll_timer);
    container_stops_end(&a->stops);
    card_audit_stop(a);
}
