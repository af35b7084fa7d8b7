/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/audit/card_audit.h"

#include <stdio.h>
#include <string.h>

#include "agent/audit/audit_internal.h"
#include "agent/audit/holder_scan.h"
#include "agent/audit/idle_remainder.h"
#include "agent/audit/known.h"
#include "agent/audit/orphans.h"
#include "agent/shares/slot_owner.h"
#include "base/buf.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/num.h"
#include "base/text.h"
#include "share/ledger.h"

#define SEARCH_INTERVAL_MS 5000
#define SURE_POLLS 3 /* a remainder is certain after two, if it is there from the beginning */
#define SEEN_MS 3000 /* after this time a PID may belong to another process */

/* ---- processes that end ---- */

bool card_audit_has_ended(struct audit *a, uint32_t at, uint32_t pid) {
    struct card_audit *audit = &a->audits[at];
    uint32_t now = (uint32_t) uv_now(a->shares->loop);
    struct ended_process *e = NULL;

    for (size_t i = 0; i < GPU_PROCESSES_MAX && !e; i++)
        if (audit->ended[i].pid == pid)
            e = &audit->ended[i];
    if (!procfs_is_ending((int) pid)) {
        if (e)
            e->pid = 0;
        return false;
    }
    if (!e || now - e->seen_ms > SEEN_MS) {
        if (!e)
            e = &audit->ended[audit->next++ % GPU_PROCESSES_MAX];
        *e = (struct ended_process){.pid = pid, .since_ms = now};
    }
    e->seen_ms = now;
    return now - e->since_ms >= ENDED_MS;
}

/* ---- what is attributed ---- */

static struct slot_device *device_of(const struct slot *slot, const char *uuid, uint32_t *ret_at) {
    for (uint32_t i = 0; i < slot->grant.ndevices; i++) {
        if (strcmp(slot->grant.devices[i].uuid, uuid) != 0)
            continue;
        *ret_at = i;
        return &slot->grant.devices[i];
    }
    return NULL;
}

static void add_share(struct slot *slot, const struct slot_device *d, uint32_t at,
                      struct unattributed_poll *poll) {
    struct ledger_usage u;

    poll->idle = false;
    poll->attributed += orphans_accounted(slot, at);
    if (slot->ledger && ledger_snapshot(slot->ledger, &u) == 0)
        poll->still = poll->still && d->overhead.armed &&
                      d->overhead.before_operation == u.operation[slot_card_account(slot, at)];
}

/* As if the slot `without` (may be NULL) were not there. */
static struct unattributed_poll
poll_card(struct audit *a, uint32_t at, const struct gpu_device *card, const struct slot *without) {
    struct unattributed_poll poll = {.now_ms = uv_now(a->shares->loop),
                                     .used = card->sample.memory_allocated,
                                     .attributed = a->outside[at],
                                     .still = true,
                                     .idle = card->nprocesses == 0};

    for (struct slot *slot = a->shares->slots.slots; slot; slot = slot->hh.next) {
        uint32_t i;
        struct slot_device *d = device_of(slot, card->uuid, &i);

        if (d && slot != without)
            add_share(slot, d, i, &poll);
    }
    return poll;
}

/* What is in use beyond the shares. Not confirmed, and with what processes without a share hold:
 * a process that is gone is one of them at first, and none later. */
static uint64_t beyond_shares(const struct audit *a, uint32_t at,
                              const struct unattributed_poll *poll) {
    uint64_t shares = poll->attributed - a->outside[at];

    return poll->used > shares ? poll->used - shares : 0;
}

/* ---- which containers can hold it ---- */

static bool is_listed(const struct gpu_snapshot *s, uint32_t pid) {
    for (uint32_t i = 0; i < s->ndevices; i++)
        for (size_t k = 0; k < s->devices[i].nprocesses; k++)
            if (s->devices[i].processes[k].pid == pid)
                return true;
    return false;
}

/* A process in both the driver's list and the ledger holds the listed memory, and can hold memory
 * that it has received from others. Why any other process has the device nodes open, no figure
 * shows. */
static void judge_holder(struct audit *a, const struct holder *h) {
    const struct gpu_snapshot *s = gpu_monitor_snapshot(a->shares->monitor);
    struct slot *slot = slot_of_group(a->shares, &h->id);
    bool unlisted = slot && (h->how == HOLDER_UNREADABLE || h->how == HOLDER_SENT ||
                             !is_listed(s, h->pid) || !audit_knows(a, slot, h->pid));

    for (uint32_t i = 0; i < s->ndevices; i++) {
        uint32_t at;

        if (a->audits[i].memory.bytes == 0)
            continue;
        if (unlisted && device_of(slot, s->devices[i].uuid, &at))
            candidates_add(&a->audits[i].candidates, slot->nonce, h->pid, true);
    }
}

/* A container can hold memory by what no poll finds: a file that a system call keeps open, a
 * descriptor that is sent on between two processes while they are searched at, a process of another
 * container. So every one with a share of the card is a candidate. */
static void add_shares(struct audit *a, const char *uuid, struct candidates *ret) {
    uint32_t at;

    for (const struct slot *slot = a->shares->slots.slots; slot; slot = slot->hh.next)
        if (device_of(slot, uuid, &at))
            candidates_add(ret, slot->nonce, 0, false);
}

static void on_scanned(const struct holder *found, size_t nfound, bool complete, void *userdata) {
    struct audit *a = userdata;
    const struct gpu_snapshot *s = gpu_monitor_snapshot(a->shares->monitor);

    a->holder_scan = NULL;
    if (a->shares->closing)
        return;
    for (uint32_t i = 0; i < GPU_MAX; i++) {
        struct card_audit *audit = &a->audits[i];

        if (!audit->uuid[0])
            continue;
        audit->candidates = (struct candidates){0};
        audit->searched = audit->memory.bytes > 0;
        audit->searched_ms = uv_now(a->shares->loop);
        audit->complete = complete;
    }
    for (uint32_t i = 0; i < s->ndevices; i++)
        if (a->audits[i].memory.bytes > 0)
            add_shares(a, s->devices[i].uuid, &a->audits[i].candidates);
    for (size_t i = 0; i < nfound; i++)
        judge_holder(a, &found[i]);
    (void) gpu_monitor_poll(a->shares->monitor);
}

/* The directory of the driver's nodes in the agent's view. */
static bool node_directory(const struct audit *a, const struct gpu_device *card, char ret[256]) {
    char path[64];
    char *slash;

    if (!a->shares->driver)
        return false;
    gpu_driver_path(a->shares->driver, &a->shares->places, card, path);
    slash = strrchr(path, '/');
    if (!slash)
        return false;
    *slash = 0;
    (void) snprintf(ret, 256, "%s%s",
                    strcmp(gpu_driver_name(a->shares->driver), "simulated") == 0
                        ? ""
                        : a->shares->places.host_root,
                    path);
    return true;
}

static void investigate(struct audit *a, const struct card_audit *audit,
                        const struct gpu_device *card) {
    char dir[256];

    if (a->holder_scan || a->shares->closing ||
        (audit->searched && uv_now(a->shares->loop) - audit->searched_ms < SEARCH_INTERVAL_MS) ||
        !node_directory(a, card, dir))
        return;
    a->holder_scan = holder_scan_start(a->shares->loop, "/proc/self/exe", dir, on_scanned, a);
    if (!a->holder_scan)
        log_warn("processes that hold the driver's nodes cannot be searched for: out of memory");
}

/* ---- what follows from it ---- */

/* Since the last poll another share may have been given out. */
static bool is_alone(const struct audit *a, const struct slot *slot, const char *uuid) {
    uint32_t at;

    for (const struct slot *other = a->shares->slots.slots; other; other = other->hh.next)
        if (other != slot && device_of(other, uuid, &at))
            return false;
    return true;
}

static void charge(struct audit *a, struct card_audit *audit, const struct gpu_device *card) {
    const struct candidate_container *c = candidates_only(&audit->candidates);
    uint64_t limit, within, lacks = audit->memory.bytes;
    struct slot *slot = NULL;
    struct slot_device *d = NULL;
    uint32_t at = 0;

    audit->charged = 0;
    if (audit->searched && c)
        slot = slot_find(&a->shares->slots, c->slot);
    if (slot && is_alone(a, slot, card->uuid))
        d = device_of(slot, card->uuid, &at);
    if (d && lacks > 0) {
        uint64_t held = d->living + orphans_held(slot, at);

        limit = slot_card_limit(slot, at);
        within = limit > held ? limit - held : 0;
        audit->charged = lacks > audit->left ? lacks - audit->left : 0;
        within = within < audit->charged ? within : audit->charged;
        audit->own = d->charged = audit->charged;
        text_copy(audit->owner, sizeof(audit->owner), slot->nonce);
        d->living += d->charged;
        if (d->charged > 0 && d->charged >= d->worst_bytes && d->bypassing == 0) {
            d->worst_pid = c->pid;
            d->worst_bytes = d->charged;
        }
        lacks -= within;
    }
    lacks = (lacks + HELD_BACK_GRAIN - 1) / HELD_BACK_GRAIN * HELD_BACK_GRAIN;
    uint64_t now = uv_now(a->shares->loop);
    bool is_lower = audit->lower_ms > 0 && now - audit->lower_ms >= HELD_BACK_MS;
    if (lacks >= audit->held_back || is_lower) {
        audit->held_back = lacks;
        audit->lower_ms = 0;
    } else if (audit->lower_ms == 0) {
        audit->lower_ms = now;
    }
}

static void put_candidates(struct audit *a, const struct candidates *all, struct buf *out) {
    uint32_t named = 0;

    for (uint32_t i = 0; i < all->n && i < CANDIDATES_MAX; i++) {
        const struct candidate_container *c = &all->list[i];
        const struct slot *slot = c->unlisted ? slot_find(&a->shares->slots, c->slot) : NULL;
        char name[PROCFS_NAME_MAX];

        if (!slot)
            continue;
        procfs_name((int) c->pid, name);
        buf_printf(out, "%s%s/%s container %s (process %u, %s)", named++ > 0 ? ", " : "",
                   slot->grant.namespace, slot->grant.pod, slot->grant.container, c->pid, name);
    }
    if (all->unlisted > named)
        buf_printf(out, " and %u more", all->unlisted - named);
    if (all->n > all->unlisted)
        buf_printf(out, "; %u more with a share of the card can hold them, too",
                   all->n - all->unlisted);
}

/* Told again when other containers are named, or twice as much is found. */
static uint64_t hash_of(const struct card_audit *audit) {
    uint64_t size = 1, hash;
    bool charged = audit->charged > 0;

    while (size < audit->memory.bytes)
        size *= 2;
    hash = hash_bytes(HASH_START, &size, sizeof(size));
    hash = hash_bytes(hash, &audit->candidates.n, sizeof(audit->candidates.n));
    hash = hash_bytes(hash, &charged, sizeof(charged));
    for (uint32_t i = 0; i < audit->candidates.n && i < CANDIDATES_MAX; i++) {
        const char *slot = audit->candidates.list[i].slot;
        hash = hash_bytes(hash, slot, strlen(slot));
    }
    return hash | 1;
}

static void report_unattributed(struct audit *a, struct card_audit *audit,
                                const struct gpu_device *card) {
    _cleanup_buf_ struct buf text = BUF_INIT(4096);
    uint64_t hash = hash_of(audit);
    char bytes[24], name[KUBE_NAME_MAX], uid[KUBE_UID_MAX];

    if (!audit->searched || audit->reported == hash)
        return;
    audit->reported = hash;
    (void) num_format_bytes(audit->memory.bytes, bytes);
    buf_printf(&text,
               "%s of GPU %u are in use and belong to no process that the driver lists and to no "
               "ledger. ",
               bytes, card->index);
    if (audit->charged > 0)
        buf_puts(&text, "They are charged to the only container with a share of the card, which "
                        "holds the driver's device nodes by a process that is not listed: ");
    else if (audit->candidates.unlisted > 0)
        buf_puts(&text, "The scheduler does not allocate them. Containers that hold the driver's "
                        "device nodes by a process that is not listed: ");
    else
        buf_puts(&text, "The scheduler does not allocate them. No container with a share of the "
                        "card holds the driver's device nodes by a process that is not listed");
    put_candidates(a, &audit->candidates, &text);
    if (!audit->complete)
        buf_puts(&text, " (the look at all processes was not finished)");
    if (a->find_object && a->find_object(card->uuid, name, uid, a->userdata))
        pod_events_card(&a->shares->events, name, uid, "GPUMemoryUnattributed", buf_str(&text));
    else
        log_warn("%s", buf_str(&text));
}

/* ---- the end of a share ---- */

static uint64_t least(uint64_t x, uint64_t y) {
    return x < y ? x : y;
}

/* Its processes have ended, but a process of another container can keep what they had. */
void card_audit_release(struct audit *a, const struct slot *slot) {
    const struct gpu_snapshot *s = gpu_monitor_snapshot(a->shares->monitor);
    uint32_t n;

    for (uint32_t i = 0; i < s->ndevices; i++) {
        struct card_audit *audit = &a->audits[i];
        struct unattributed_poll poll;
        uint64_t rest;

        if (!device_of(slot, s->devices[i].uuid, &n) ||
            strcmp(audit->uuid, s->devices[i].uuid) != 0)
            continue;
        poll = poll_card(a, i, &s->devices[i], slot);
        rest = beyond_shares(a, i, &poll);
        if (strcmp(audit->owner, slot->nonce) == 0)
            audit->own = 0;
        rest -= least(audit->own, rest);
        if (rest > audit->left)
            audit->left = rest;
        (void) gpu_monitor_poll(a->shares->monitor); /* before another share is given out there */
    }
}

/* ---- a poll ---- */

static bool audit_card(struct audit *a, uint32_t at, const struct gpu_device *card) {
    const char *driver = gpu_monitor_snapshot(a->shares->monitor)->driver_version;
    struct card_audit *audit = &a->audits[at];
    struct unattributed_poll poll;
    struct unattributed before;
    bool again = false;

    if (!gpu_has_limits(card)) {
        if (audit->uuid[0])
            memset(audit, 0, sizeof(*audit));
        return false;
    }
    if (strcmp(audit->uuid, card->uuid) != 0) {
        memset(audit, 0, sizeof(*audit));
        text_copy(audit->uuid, sizeof(audit->uuid), card->uuid);
        idle_remainder_load(a->shares->options.state_dir, driver, audit->uuid, &audit->memory);
    }
    if (!gpu_can_be_audited(card) || !card->sample.attributable || !audit_pids_fit(a))
        return false;
    poll = poll_card(a, at, card, NULL);
    before = audit->memory;
    again = unattributed_poll(&audit->memory, &poll);
    idle_remainder_save(a->shares->options.state_dir, driver, audit->uuid, &before, &audit->memory);
    audit->left = least(audit->left, beyond_shares(a, at, &poll));
    audit->own = least(audit->own, audit->memory.bytes);
    audit->polls += audit->polls < SURE_POLLS;
    if (audit->memory.bytes > 0) {
        investigate(a, audit, card);
    } else {
        audit->searched = false;
        audit->candidates = (struct candidates){0};
        audit->reported = 0;
    }
    charge(a, audit, card);
    if (audit->memory.bytes > 0)
        report_unattributed(a, audit, card);
    return again;
}

bool card_audit_poll(struct audit *a) {
    const struct gpu_snapshot *s = gpu_monitor_snapshot(a->shares->monitor);
    bool again = false;

    for (struct slot *slot = a->shares->slots.slots; slot; slot = slot->hh.next)
        for (uint32_t i = 0; i < slot->grant.ndevices; i++)
            slot->grant.devices[i].charged = 0;
    for (uint32_t i = 0; i < s->ndevices; i++)
        again |= audit_card(a, i, &s->devices[i]);
    return again;
}

bool card_audit_held_back(const struct audit *a, const struct gpu_device *card, uint64_t *ret) {
    const struct gpu_snapshot *s = gpu_monitor_snapshot(a->shares->monitor);
    const struct card_audit *audit = &a->audits[card - s->devices];

    if (strcmp(audit->uuid, card->uuid) != 0 || audit->polls < SURE_POLLS)
        return false;
    *ret = audit->held_back;
    return true;
}

void card_audit_stop(struct audit *a) {
    if (a->holder_scan)
        holder_scan_cancel(a->holder_scan);
    a->holder_scan = NULL;
}
