/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/shares/slot.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/shares/share_dir.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/file.h"
#include "base/step.h"
#include "base/text.h"
#include "gpu/device.h"
#include "share/arbiter.h"
#include "share/compute.h"
#include "share/ledger.h"
#include "share/limits.h"

#define RECORD_FILE "record.json"
#define RECORD_MAX ((size_t) 64 << 10)

void slot_dir(const struct slot_store *s, const char *nonce, char ret[static 384]) {
    (void) snprintf(ret, 384, "%s/%.32s", s->dir, nonce);
}

void slot_path(const struct slot_store *s, const char *nonce, const char *file,
               char ret[static 384]) {
    char dir[384];

    slot_dir(s, nonce, dir);
    share_dir_path(dir, file, ret);
}

struct slot *slot_find(struct slot_store *s, const char *nonce) {
    struct slot *slot;

    HASH_FIND_STR(s->slots, nonce, slot);
    return slot;
}

static void drop_limits(struct slot *slot) {
    if (slot->limits_fd > 0)
        (void) close(slot->limits_fd);
    slot->limits_fd = 0;
}

static void slot_free(struct slot *slot) {
    slot_grant_done(&slot->grant);
    slot->ledger = ledger_free(slot->ledger);
    slot->compute = arbiter_leave(slot->compute);
    drop_limits(slot);
    free(slot);
}

void slot_store_done(struct slot_store *s) {
    struct slot *slot, *next;

    HASH_ITER(hh, s->slots, slot, next) {
        HASH_DEL(s->slots, slot); /* NOLINT: the analyzer loses its way in uthash's lists */
        slot_free(slot);
    }
}

/* A process of the container could keep a new limit from its file with a lease, which it may take
 * where the file is not open for writing. */
static void hold_limits(const struct slot_store *s, struct slot *slot) {
    char path[384];

    drop_limits(slot);
    slot_path(s, slot->nonce, "limits", path);
    slot->limits_fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
}

static void open_files(struct slot_store *s, struct slot *slot) {
    char path[384];

    if (slot->grant.newer)
        return;
    if (slot->grant.ndevices > 0 && slot->limits_fd <= 0)
        hold_limits(s, slot);
    if (slot->grant.ndevices == 0 || slot->ledger) /* NOLINT */
        return;
    slot_path(s, slot->nonce, "ledger", path);
    (void) ledger_open(path, &slot->ledger, NULL);
}

void slot_open_files(struct slot_store *s) {
    for (struct slot *slot = s->slots; slot; slot = slot->hh.next)
        open_files(s, slot);
}

/* Takes the grant over; NULL without memory, and the grant is still the caller's. */
static struct slot *slot_insert(struct slot_store *s, const char *nonce, struct slot_grant *grant) {
    struct slot *slot = calloc(1, sizeof(*slot));

    assert(!slot_find(s, nonce));
    if (!slot)
        return NULL;
    text_copy(slot->nonce, sizeof(slot->nonce), nonce);
    slot->grant = *grant;
    memset(grant, 0, sizeof(*grant));
    HASH_ADD_STR(s->slots, nonce, slot);
    if (hash_added(slot))
        return slot;
    *grant = slot->grant;
    free(slot);
    return NULL;
}

/* ---- reading what is there ---- */

/* The device whose terms are those of the share (slot_device_terms). */
static uint32_t terms_device(const struct slot_grant *g, const struct share_limits *limits) {
    uint32_t ret = 0;

    for (uint32_t i = 0; i < limits->ndevices && i < g->ndevices; i++) {
        if (limits->device[i].core_percent > 0)
            return i;
        if (slot_device_percent(&g->devices[ret]) > slot_device_percent(&g->devices[i]))
            ret = i;
    }
    return ret;
}

/* A restarted agent continues with the current limits and with the last measured figures until it
 * has new ones. */
static void load_terms(struct slot_store *s, struct slot *slot) {
    struct share_limits limits;
    char path[384];
    uint32_t from;

    slot_path(s, slot->nonce, "limits", path);
    if (slot->grant.ndevices == 0 || limits_read(path, &limits, NULL) < 0 || limits.ndevices == 0)
        return;
    from = terms_device(&slot->grant, &limits);
    slot->grant.terms = (struct slot_terms){
        .policy = limits.device[from].policy,
        .ceiling = limits.device[from].ceiling_percent,
        .weight = limits.device[from].weight,
        .slices = (limits.more[from].options & LIMITS_HARDWARE_SLICES) != 0,
    };
    for (uint32_t i = 0; i < limits.ndevices && i < slot->grant.ndevices; i++)
        slot->grant.devices[i].overhead.bytes = limits.more[i].overhead_bytes;
    for (uint32_t i = 0; i < limits.ndevices && i < slot->grant.ndevices; i++)
        if (limits.device[i].memory_bytes < slot->grant.devices[i].memory)
            slot->grant.terms.memory_limit = limits.device[i].memory_bytes;
}

static int load_slot(struct slot_store *s, const char *nonce, struct err *err) {
    _cleanup_buf_ struct buf text = BUF_INIT(2 * RECORD_MAX);
    struct slot_grant grant = {0};
    struct slot *slot;
    char path[384];
    int r;

    slot_path(s, nonce, RECORD_FILE, path);
    r = file_read(path, RECORD_MAX, &text, err);
    if (r == 0)
        r = slot_record_decode(buf_str(&text), text.len, &grant, err);
    if (r < 0)
        return r;
    slot = slot_insert(s, nonce, &grant);
    slot_grant_done(&grant);
    if (!slot)
        return err_set(err, ENOMEM, "out of memory");
    if (!slot->grant.newer)
        load_terms(s, slot);
    open_files(s, slot);
    return 0;
}

/* Removes what is on disk of a share that is not in the store. */
static void discard(const struct slot_store *s, const char *nonce) {
    char dir[384];

    slot_dir(s, nonce, dir);
    (void) share_dir_remove(dir, NULL);
}

int slot_store_load(struct slot_store *s, const char *state_dir,
                    void (*on_bad)(const char *nonce, const char *why, void *userdata),
                    void *userdata, struct err *err) {
    _cleanup_closedir_ DIR *d = NULL;
    struct dirent *e;
    struct err why;
    int r;

    if (snprintf(s->dir, sizeof(s->dir), "%s/shares", state_dir) >= (int) sizeof(s->dir))
        return err_set(err, ENAMETOOLONG, "the state directory's path is too long");
    r = dir_make(s->dir, 0700, err);
    if (r < 0)
        return r;
    /* Files in it can be written by every user, for the container's may be any; older agents let
     * the node's users in. */
    if (chmod(s->dir, 0700) < 0)
        return err_errno(err, errno, "cannot chmod %s", s->dir);
    d = opendir(s->dir);
    if (!d)
        return err_errno(err, errno, "cannot read %s", s->dir);
    while ((e = readdir(d))) {
        r = nonce_valid(e->d_name) ? load_slot(s, e->d_name, &why) : 0;
        if (r == -ENOMEM || r == -EMFILE || r == -ENFILE || r == -EIO)
            return err_set(err, -r, "slot %s: %s", e->d_name, why.text);
        if (r < 0) {
            on_bad(e->d_name, why.text, userdata);
            discard(s, e->d_name);
        }
    }
    return 0;
}

/* ---- filling ---- */

const char *slot_owner_uid(const struct slot_grant *g) {
    return g->claim ? g->claim->uid : g->pod_uid;
}

bool slot_is_of_pod(const struct slot_grant *g, const char *pod_uid) {
    if (!g->claim)
        return strcmp(g->pod_uid, pod_uid) == 0;
    for (uint32_t i = 0; i < g->claim->npods; i++)
        if (strcmp(g->claim->pods[i], pod_uid) == 0)
            return true;
    return false;
}

/* Containers of a pod have slots of their own, those that use a claim have one. */
static bool same_owner(const struct slot_grant *a, const struct slot_grant *b) {
    return !a->claim == !b->claim && strcmp(slot_owner_uid(a), slot_owner_uid(b)) == 0 &&
           (a->claim || strcmp(a->container, b->container) == 0);
}

static bool same_grant(const struct slot_grant *a, const struct slot_grant *b) {
    if (!same_owner(a, b) || a->ndevices != b->ndevices || a->nwhole != b->nwhole ||
        a->replica != b->replica || a->newer != b->newer)
        return false;
    for (uint32_t i = 0; i < a->nwhole; i++)
        if (strcmp(a->whole[i].uuid, b->whole[i].uuid) != 0)
            return false;
    for (uint32_t i = 0; i < a->ndevices; i++)
        if (strcmp(a->devices[i].uuid, b->devices[i].uuid) != 0 ||
            a->devices[i].memory != b->devices[i].memory ||
            a->devices[i].physical != b->devices[i].physical ||
            a->devices[i].core != b->devices[i].core)
            return false;
    return true;
}

uint64_t slot_memory_now(const struct slot_grant *g, uint32_t device) {
    uint64_t share = g->devices[device].memory;

    return g->terms.memory_limit > 0 && g->terms.memory_limit < share ? g->terms.memory_limit
                                                                      : share;
}

uint64_t slot_physical(const struct slot_device *d) {
    return d->physical < d->memory ? d->physical : 0;
}

uint64_t slot_card_limit(const struct slot *slot, uint32_t n) {
    uint64_t limit = slot_memory_now(&slot->grant, n);
    uint64_t physical = slot->grant.devices[n].physical;

    return physical < limit ? physical : limit;
}

uint32_t slot_card_account(const struct slot *slot, uint32_t n) {
    bool oversubscribed =
        ledger_has_card_account(slot_physical(&slot->grant.devices[n]), slot->grant.ndevices);

    return oversubscribed ? ledger_card_account(n) : n;
}

uint32_t slot_device_percent(const struct slot_device *d) {
    uint32_t all = d->of_core > 0 ? d->of_core : 100;
    uint32_t percent = d->core >= all ? 100 : (d->core * 100 + all / 2) / all;

    return d->core > 0 && percent == 0 ? 1 : percent;
}

struct slot_terms slot_device_terms(const struct slot_grant *g, uint32_t device) {
    uint32_t percent = slot_device_percent(&g->devices[device]);
    struct slot_terms t = g->terms;

    if (percent >= 100)
        return (struct slot_terms){.policy = SHARE_BEST_EFFORT, .memory_limit = t.memory_limit};
    if (percent == 0 && t.policy == SHARE_FIXED)
        t.policy = SHARE_BEST_EFFORT;
    t.slices = t.slices && percent > 0;
    return t;
}

void slot_limits(const struct slot_grant *g, struct share_limits *ret) {
    memset(ret, 0, sizeof(*ret));
    text_copy(ret->pod_uid, sizeof(ret->pod_uid), g->pod_uid);
    text_copy(ret->namespace, sizeof(ret->namespace), g->namespace);
    text_copy(ret->pod, sizeof(ret->pod), g->pod);
    text_copy(ret->container, sizeof(ret->container), g->container);
    for (uint32_t i = 0; i < g->ndevices && i < LIMITS_DEVICES_MAX; i++) {
        struct share_device *d = &ret->device[ret->ndevices++];
        struct slot_terms terms = slot_device_terms(g, i);

        text_copy(d->uuid, sizeof(d->uuid), g->devices[i].uuid);
        d->memory_bytes = slot_memory_now(g, i);
        d->context_bytes = g->devices[i].context;
        ret->more[i].overhead_bytes = g->devices[i].overhead.bytes;
        /* By the share, not by what is in force: processes that start while the limit is lower
         * must keep within the bound when it is raised again. */
        ret->more[i].physical_bytes = slot_physical(&g->devices[i]);
        d->core_percent = slot_device_percent(&g->devices[i]);
        if (d->core_percent >= 100)
            d->core_percent = 0;
        assert(
            d->memory_bytes <= g->devices[i].memory &&
            (!ret->more[i].physical_bytes || ret->more[i].physical_bytes < g->devices[i].memory));
        d->policy = terms.policy;
        d->ceiling_percent = terms.ceiling;
        d->weight = terms.weight;
        if (terms.slices)
            ret->more[i].options |= LIMITS_HARDWARE_SLICES;
    }
}

static int write_limits(const char *path, const struct slot_grant *g, struct err *err) {
    struct share_limits want, have;
    int r;

    slot_limits(g, &want);
    r = limits_read(path, &have, err);
    if (r == 0)
        return memcmp(&want, &have, sizeof(want)) == 0 ? 0 : limits_update(path, &want, err);
    /* A file that is only busy is the one that a container has: another would not reach it. */
    return r == -EAGAIN ? r : limits_create(path, &want, err);
}

int slot_write_limits(const struct slot_store *s, const struct slot *slot, struct err *err) {
    char path[384];

    if (slot->grant.newer)
        return 0;
    slot_path(s, slot->nonce, "limits", path);
    return write_limits(path, &slot->grant, err);
}

static int create_accounts(const struct slot_store *s, const char *nonce, struct err *err) {
    char grants[384], compute[384];

    slot_path(s, nonce, "grants", grants);
    slot_path(s, nonce, "compute", compute);
    return compute_create(grants, compute, err);
}

static int write_record(const struct slot_store *s, const char *nonce, const struct slot_grant *g,
                        struct err *err) {
    _cleanup_buf_ struct buf record = BUF_INIT(RECORD_MAX);
    char path[384];

    slot_record_encode(g, &record);
    if (buf_error(&record) < 0)
        return err_set(err, ENOMEM, "out of memory");
    slot_path(s, nonce, RECORD_FILE, path);
    return file_replace(path, record.data, record.len, 0600, err);
}

/* A share that an older agent made stays as it is: its container has those files. */
static int make_dir(const struct slot_store *s, const char *nonce, struct err *err) {
    char dir[384], ledger[384];

    slot_dir(s, nonce, dir);
    slot_path(s, nonce, "ledger", ledger);
    return access(ledger, F_OK) == 0 ? 0 : share_dir_make(dir, s->bounded, s->selinux, err);
}

static int write_files(struct slot_store *s, const char *nonce, const struct slot_grant *g,
                       struct err *err) {
    char path[384];
    int r;

    slot_dir(s, nonce, path);
    r = g->ndevices > 0 ? make_dir(s, nonce, err) : dir_make(path, 0755, err);
    step_end();
    if (r == 0 && g->ndevices > 0) {
        slot_path(s, nonce, "limits", path);
        r = write_limits(path, g, err);
        slot_path(s, nonce, "ledger", path);
        if (r == 0)
            r = ledger_create(path, err);
        step_end();
        if (r == 0)
            r = create_accounts(s, nonce, err);
    }
    step_end();
    return r < 0 ? r : write_record(s, nonce, g, err);
}

int slot_fill(struct slot_store *s, const char *nonce, struct slot_grant *grant, struct slot **ret,
              struct err *err) {
    struct slot *slot = slot_find(s, nonce);
    int r;

    if (slot && !same_owner(&slot->grant, grant)) {
        slot_grant_done(grant);
        return err_set(err, EEXIST, "slot %s belongs to %s/%s", nonce, slot->grant.namespace,
                       slot->grant.pod);
    }
    r = write_files(s, nonce, grant, err);
    if (r == 0 && slot && !same_grant(&slot->grant, grant)) {
        slot_grant_done(&slot->grant);
        slot->grant = *grant;
        memset(grant, 0, sizeof(*grant));
    } else if (r == 0 && slot) {
        slot->grant.terms = grant->terms;
    } else if (r == 0) {
        slot = slot_insert(s, nonce, grant);
        if (!slot)
            r = err_set(err, ENOMEM, "out of memory");
    }
    slot_grant_done(grant);
    step_end();
    if (r != 0) {
        if (!slot)
            discard(s, nonce);
        return r;
    }
    if (slot->grant.ndevices > 0)
        hold_limits(s, slot); /* it may be a new one */
    open_files(s, slot);
    *ret = slot;
    return 0;
}

int slot_add_pod(struct slot_store *s, struct slot *slot, const char *pod_uid, struct err *err) {
    struct slot_claim *claim = slot->grant.claim;
    int r;

    assert(claim);
    if (slot_is_of_pod(&slot->grant, pod_uid))
        return 0;
    r = slot_claim_add(claim, pod_uid);
    if (r < 0)
        return err_set(err, -r, r == -ENOMEM ? "out of memory" : "too many pods use one claim");
    r = write_record(s, slot->nonce, &slot->grant, err);
    if (r < 0)
        claim->npods--;
    return r;
}

int slot_replace_pod(struct slot_store *s, struct slot *slot, uint32_t n, const char *pod_uid,
                     struct err *err) {
    struct slot_claim *claim = slot->grant.claim;
    char before[KUBE_UID_MAX];
    int r;

    assert(claim && n < claim->npods && !slot_is_of_pod(&slot->grant, pod_uid));
    text_copy(before, sizeof(before), claim->pods[n]);
    text_copy(claim->pods[n], KUBE_UID_MAX, pod_uid);
    r = write_record(s, slot->nonce, &slot->grant, err);
    if (r < 0)
        text_copy(claim->pods[n], KUBE_UID_MAX, before);
    return r;
}

bool slot_has_device(const struct slot *slot, const char *uuid) {
    for (uint32_t i = 0; i < slot->grant.ndevices; i++)
        if (strcmp(slot->grant.devices[i].uuid, uuid) == 0)
            return true;
    for (uint32_t i = 0; i < slot->grant.nwhole; i++)
        if (strcmp(slot->grant.whole[i].uuid, uuid) == 0)
            return true;
    return false;
}

bool slot_is_more(const struct slot_grant *have, const struct slot_grant *want) {
    bool more = false;

    if (have->ndevices != want->ndevices)
        return false;
    for (uint32_t i = 0; i < have->ndevices; i++) {
        const struct slot_device *a = &have->devices[i], *b = &want->devices[i];

        if (strcmp(a->uuid, b->uuid) != 0 || b->core < a->core || b->memory < a->memory ||
            b->physical < a->physical)
            return false;
        more = more || b->core > a->core || b->memory > a->memory || b->physical > a->physical;
    }
    return more;
}

/* Fields from the assignment; the others were measured since. */
static void take_amounts(struct slot_device *to, const struct slot_device *from) {
    to->core = from->core;
    to->pod_core = from->pod_core;
    to->memory = from->memory;
    to->pod_memory = from->pod_memory;
    to->physical = from->physical;
    to->pod_physical = from->pod_physical;
}

/* The record goes first: what is not written there, an agent that is restarted would take away. */
int slot_grow(struct slot_store *s, struct slot *slot, const struct slot_grant *more,
              struct err *err) {
    struct slot_device before[LIMITS_DEVICES_MAX];
    uint32_t n = slot->grant.ndevices;
    int r;

    if (n != more->ndevices || n > LIMITS_DEVICES_MAX)
        return err_set(err, EINVAL, "a share can grow only on the devices that it has");
    assert(slot_is_more(&slot->grant, more));
    for (uint32_t i = 0; i < n; i++) {
        before[i] = slot->grant.devices[i];
        take_amounts(&slot->grant.devices[i], &more->devices[i]);
    }
    r = write_record(s, slot->nonce, &slot->grant, err);
    if (r == 0)
        r = slot_write_limits(s, slot, err);
    for (uint32_t i = 0; r < 0 && i < n; i++)
        take_amounts(&slot->grant.devices[i], &before[i]);
    return r;
}

bool slot_grant_contexts(struct slot_grant *g, const struct gpu_snapshot *snapshot) {
    bool changed = false;

    for (uint32_t i = 0; i < g->ndevices; i++) {
        const struct gpu_device *card = gpu_find_card(snapshot, g->devices[i].uuid);

        if (!card || card->context_bytes == 0 || card->context_bytes == g->devices[i].context)
            continue;
        g->devices[i].context = card->context_bytes;
        changed = true;
    }
    return changed;
}

void slot_set_contexts(struct slot_store *s, const struct gpu_snapshot *snapshot) {
    for (struct slot *slot = s->slots; slot; slot = slot->hh.next) {
        if (!slot_grant_contexts(&slot->grant, snapshot) || slot_write_limits(s, slot, NULL) == 0)
            continue;
        for (uint32_t i = 0; i < slot->grant.ndevices; i++)
            slot->grant.devices[i].context = 0;
    }
}

int slot_remove(struct slot_store *s, struct slot *slot, struct err *err) {
    char path[384];

    slot_dir(s, slot->nonce, path);
    HASH_DEL(s->slots, slot); /* NOLINT */
    slot_free(slot);
    return share_dir_remove(path, err);
}

int slot_mend_ledger(struct slot_store *s, struct slot *slot, struct err *err) {
    struct ledger_usage usage;
    char path[384];
    int r;

    slot_dir(s, slot->nonce, path);
    r = share_dir_mend(path, err);
    if (r < 0)
        return r;
    if (slot->grant.ndevices == 0 ||
        (slot->ledger && ledger_snapshot(slot->ledger, &usage) != -EBADMSG))
        return 0;
    slot_path(s, slot->nonce, "ledger", path);
    slot->ledger = ledger_free(slot->ledger);
    open_files(s, slot);
    if (slot->ledger && ledger_snapshot(slot->ledger, &usage) == 0)
        return 0;
    slot->ledger = ledger_free(slot->ledger);
    if (unlink(path) < 0 && errno != ENOENT)
        return err_errno(err, errno, "cannot remove %s", path);
    r = ledger_create(path, err);
    if (r == 0)
        open_files(s, slot);
    return r;
}

int slot_mend_account(struct slot_store *s, struct slot *slot, struct err *err) {
    char grants[384], path[384];
    struct compute *account;
    int r;

    if (slot->grant.ndevices == 0)
        return 0;
    slot_path(s, slot->nonce, "grants", grants);
    slot_path(s, slot->nonce, "compute", path);
    r = compute_open(grants, path, &account, err);
    if (r == 0)
        (void) compute_free(account);
    if (r != -EBADMSG && r != -ENOENT)
        return r;
    slot->compute = arbiter_leave(slot->compute);
    if ((unlink(path) < 0 && errno != ENOENT) || (unlink(grants) < 0 && errno != ENOENT))
        return err_errno(err, errno, "cannot remove %s", path);
    return compute_create(grants, path, err);
}

/* ---- shares of a card ---- */

static const struct slot_device *device_of(const struct slot *slot, const char *uuid) {
    for (uint32_t i = 0; i < slot->grant.ndevices; i++)
        if (strcmp(slot->grant.devices[i].uuid, uuid) == 0)
            return &slot->grant.devices[i];
    return NULL;
}

/* Whether an earlier slot of the same owner has been counted for this card. */
static bool counted(const struct slot_store *s, const struct slot *slot, const char *uuid) {
    for (const struct slot *o = s->slots; o && o != slot; o = o->hh.next)
        if (strcmp(slot_owner_uid(&o->grant), slot_owner_uid(&slot->grant)) == 0 &&
            device_of(o, uuid))
            return true;
    return false;
}

void slot_card_use(const struct slot_store *s, const char *uuid, const char *owner,
                   struct slot_total *ret, const struct slot **ret_holder) {
    const struct slot *holder = NULL;

    memset(ret, 0, sizeof(*ret));
    for (const struct slot *slot = s->slots; slot; slot = slot->hh.next) {
        const struct slot_device *d = device_of(slot, uuid);

        if (!d || strcmp(slot_owner_uid(&slot->grant), owner) == 0 || counted(s, slot, uuid))
            continue;
        ret->memory += d->pod_memory;
        ret->physical += d->pod_physical;
        ret->core += d->pod_core;
        if (!holder || (slot->releasing && !holder->releasing))
            holder = slot;
    }
    if (ret_holder)
        *ret_holder = holder;
}

/* ---- whole devices ---- */

bool slot_has_whole(const struct slot *slot, const char *uuid) {
    for (uint32_t i = 0; i < slot->grant.nwhole; i++)
        if (strcmp(slot->grant.whole[i].uuid, uuid) == 0)
            return true;
    return false;
}

void slot_pod_text(const struct slot_grant *g, const char *namespace,
                   char ret[static SLOT_POD_TEXT]) {
    if (strcmp(g->namespace, namespace) == 0)
        (void) snprintf(ret, SLOT_POD_TEXT, "pod %s/%s", g->namespace, g->pod);
    else
        (void) snprintf(ret, SLOT_POD_TEXT, "a pod of another namespace");
}

const struct slot *slot_whole_holder(const struct slot_store *s, const char *uuid,
                                     const char *owner) {
    const struct slot *holder = NULL;

    for (const struct slot *slot = s->slots; slot; slot = slot->hh.next)
        if (strcmp(slot_owner_uid(&slot->grant), owner) != 0 && slot_has_whole(slot, uuid) &&
            (!holder || (slot->releasing && !holder->releasing)))
            holder = slot;
    return holder;
}
