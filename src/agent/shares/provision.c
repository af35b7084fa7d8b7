/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/shares/provision.h"

#include <stdlib.h>
#include <string.h>

#include "agent/cluster/keys.h"
#include "agent/mps/mps.h"
#include "agent/shares/cdi.h"
#include "agent/shares/claim_rule.h"
#include "agent/shares/driver_limit_hook.h"
#include "agent/shares/gputime.h"
#include "agent/shares/mps.h"
#include "agent/shares/shares.h"
#include "agent/shares/slot_users.h"
#include "base/err.h"
#include "base/log.h"
#include "base/num.h"
#include "base/step.h"
#include "base/text.h"
#include "gpu/driver/extra_nodes.h"
#include "kube/objects/dialect_export.h"
#include "model/driver_capability.h"
#include "share/ledger.h"

/* ---- what a container gets ---- */

static int put_variable(const char *variable, void *userdata) {
    return gpu_edits_add(userdata, GPU_EDIT_ENV, "", variable);
}

/* Variables that programs for other projects read. */
static int export_edits(const struct shares *s, const struct slot_grant *g,
                        const struct gpu_device *const *devices, struct gpu_edits *edits) {
    struct export_part parts[GPU_CARDS_MAX];

    for (uint32_t i = 0; i < g->ndevices && i < GPU_CARDS_MAX; i++)
        parts[i] = (struct export_part){.index = g->devices[i].index,
                                        .core = g->devices[i].core,
                                        .memory = g->devices[i].memory,
                                        .pod_memory = g->devices[i].pod_memory,
                                        .card_memory = shares_capacity(s, devices[i])};
    return export_env((enum export_kind) g->exported, parts, g->ndevices, put_variable, edits);
}

/* MPS of the agent on the card, or the daemon of --mps-dir: `ret_dir` is "" without either. */
static int find_mps(const struct shares *s, const struct slot_grant *g, bool again,
                    const char **ret_dir, struct err *err) {
    *ret_dir = s->options.mps_dir;
    for (uint32_t i = 0; i < g->ndevices && s->mps; i++) {
        const char *uuid = g->devices[i].uuid;
        int r = mps_card_directory(s->mps, uuid, again, ret_dir, err);

        if (r == 0)
            continue;
        if (g->ndevices > 1)
            return err_set(err, EINVAL,
                           "GPU %s is under MPS, with a control daemon of its own: a container can "
                           "use one such card and no other beside it",
                           uuid);
        if (r < 0)
            return r;
    }
    return 0;
}

/* The slot has its cards now. */
static int add_mps(const struct shares *s, const struct slot_grant *g, struct gpu_edits *edits,
                   struct err *err) {
    const char *dir;
    int r = find_mps(s, g, true, &dir, err);

    if (r < 0)
        return r;
    r = mps_edits(dir, s->options.host_root, g, edits);
    return r < 0 ? err_set(err, -r, "too many files for one container") : 0;
}

/* While a driver is exchanged its files are not there: that is waited for, as for its cards. */
static int driver_edits(const struct shares *s, const struct slot_grant *g,
                        const struct gpu_device *const *devices, size_t n, const char *shadow,
                        struct gpu_edits *edits, struct err *err) {
    int r;

    if (!s->driver)
        return err_set(err, ENODEV, "no GPU driver was found on this node");
    r = gpu_driver_edits(s->driver, &s->places, devices, n, g->driver, shadow, edits, err);
    if (r != -ENOENT)
        return r;
    err->code = ENODEV;
    return -ENODEV;
}

/* The driver limits a control group, which one container has; those of a claim have several. */
static int add_driver_limit(struct shares *s, const struct slot_grant *g, struct gpu_edits *edits,
                            struct err *err) {
    if (!g->claim)
        return driver_limit_edits(s, edits, err);
    if (s->options.driver_limits == DRIVER_LIMIT_REQUIRED)
        return err_set(err, EPERM,
                       "this node requires limits of the driver (--driver-limits=required), and "
                       "shares of ResourceClaims have none");
    return 0;
}

/* What a container gets with its share, or with a slot whose share another one carries. */
static int share_edits(struct shares *s, const struct slot *slot, struct gpu_edits *edits,
                       struct err *err) {
    const struct slot_grant *g = &slot->grant;
    const struct gpu_device *devices[GPU_CARDS_MAX];
    char share[384];
    size_t n = 0;
    int r = 0;

    for (uint32_t i = 0; i < g->ndevices && n < GPU_CARDS_MAX; i++) {
        devices[n] = gpu_find(gpu_monitor_snapshot(s->monitor), g->devices[i].uuid);
        if (!devices[n] || devices[n++]->divided)
            return err_set(err, ENODEV, "GPU %s is not on this node", g->devices[i].uuid);
    }
    if (n > 0)
        r = driver_edits(s, g, devices, n, s->library.shadow, edits, err);
    if (r < 0)
        return r;
    slot_dir(&s->slots, slot->nonce, share);
    if (n > 0 && library_note(&s->library, share, err) < 0)
        return -err->code;
    if (n > 0)
        r = library_edits(&s->library, share, edits);
    if (r == 0 && add_mps(s, g, edits, err) < 0)
        return -err->code;
    if (r == 0)
        r = export_edits(s, g, devices, edits);
    if (r == 0 && n > 0)
        r = ldcache_edits(s, edits);
    if (r == 0 && n > 0 && add_driver_limit(s, g, edits, err) < 0)
        return -err->code;
    return r < 0 ? err_set(err, -r, "too many files for one container") : 0;
}

/* The driver as it is: no limits, no library. */
static int whole_edits(struct shares *s, const struct slot_grant *g, struct gpu_edits *edits,
                       struct err *err) {
    const struct gpu_device *devices[GPU_MAX];
    size_t n = 0;
    int r;

    while (n < g->nwhole && n < GPU_MAX) {
        devices[n] = gpu_find(gpu_monitor_snapshot(s->monitor), g->whole[n].uuid);
        if (!devices[n])
            return err_set(err, ENODEV, "device %s is not on this node", g->whole[n].uuid);
        n++;
    }
    r = driver_edits(s, g, devices, n, "", edits, err);
    if (r < 0)
        return r;
    r = ldcache_edits(s, edits);
    return r < 0 ? err_set(err, -r, "too many files for one container") : 0;
}

static int collect_edits(struct shares *s, const struct slot *slot, struct gpu_edits *edits,
                         struct err *err) {
    int r = slot->grant.nwhole > 0 ? whole_edits(s, &slot->grant, edits, err)
                                   : share_edits(s, slot, edits, err);

    if (r == 0 && slot->grant.nwhole + slot->grant.ndevices > 0)
        r = gpu_extra_nodes(s->driver, &s->places, s->extras, edits, err);
    if (r < 0)
        return r;
    /* Nothing but ours may add cards: where NVIDIA's runtime hook is installed it keeps out. */
    r = gpu_edits_add(edits, GPU_EDIT_ENV, "", "NVIDIA_VISIBLE_DEVICES=void");
    if (r == 0)
        r = cdi_guard_edits(&s->guard, edits);
    return r < 0 ? err_set(err, -r, "too many files for one container") : 0;
}

static int write_cdi(struct shares *s, const struct slot *slot, struct err *err) {
    struct gpu_edits *edits = calloc(1, sizeof(*edits)); /* 256 KB: not for the stack */
    int r = edits ? collect_edits(s, slot, edits, err) : err_set(err, ENOMEM, "out of memory");

    if (r == 0)
        r = cdi_guard_keep(&s->guard, s->options.cdi_dir, err);
    if (r == 0)
        r = cdi_write(s->options.cdi_dir, slot->nonce, edits, err);
    free(edits);
    return r;
}

/* ---- the slot ---- */

/* A restarted container: its grant is in the agent's record, unless that is of a newer agent. */
static bool grant_again(const struct provision *p, const struct slot *slot) {
    return slot && !slot->releasing && !slot->grant.newer &&
           strcmp(slot->grant.pod_uid, p->pod_uid) == 0 &&
           strcmp(slot->grant.container, p->container) == 0;
}

static enum verdict judge_pod(struct shares *s, const struct provision *p, struct slot_grant *ret,
                              struct err *why) {
    struct grant_world world = {
        .node = s->options.node_name,
        .pod = pods_find(s->pods, p->pod_uid),
        .keys = keys_verifier(s->keys),
        .snapshot = gpu_monitor_snapshot(s->monitor),
        .slots = &s->slots,
    };
    enum verdict v = grant_judge(&world, p->pod_uid, p->container, ret, why);

    if (v == VERDICT_GRANT && claim_rule_container(s, world.pod, p->container, why) < 0) {
        slot_grant_done(ret);
        return VERDICT_DENY;
    }
    if (v == VERDICT_GRANT && p->companion)
        ret->ndevices = 0;
    /* The scheduler's keys may be newer than ours: a refusal counts only against keys read since
     * the request. */
    if (v == VERDICT_FORGED && keys_read_at(s->keys) <= p->began) {
        keys_refresh(s->keys);
        v = VERDICT_WAIT;
    }
    return v;
}

static void log_grant(const struct slot *slot) {
    for (uint32_t i = 0; i < slot->grant.ndevices; i++) {
        const struct slot_device *d = &slot->grant.devices[i];
        char size[24];

        log_info("granted %s/%s container %s: GPU %u %s, core %u, memory %s (slot %s)",
                 slot->grant.namespace, slot->grant.pod, slot->grant.container, d->index, d->uuid,
                 d->core, num_format_bytes(d->memory, size), slot->nonce);
    }
}

/* kubelet tries again by itself. */
static enum verdict deny_unwritten(struct err *why) {
    if (why->code == ENOSPC)
        (void) err_wrap(why, "make room on the node, and the container starts");
    return VERDICT_DENY;
}

/* What dead processes have booked is no part of the new peak. */
static void begin_peaks(struct shares *s, struct slot *slot) {
    int n = ledger_sweep_for(slot->ledger, SLOT_SWEEP_MAX_NS);

    if (n > 0) {
        s->reclaimed += (uint64_t) n;
        (void) gpu_monitor_poll(s->monitor);
    }
    ledger_begin_peaks(slot->ledger);
}

static enum verdict finish(struct shares *s, const struct provision *p, const struct slot *slot,
                           struct err *why) {
    step_end();
    if (write_cdi(s, slot, why) == 0)
        return VERDICT_GRANT;
    if (why->code != ENODEV)
        return deny_unwritten(why);
    if (!*p->polled)
        (void) gpu_monitor_poll(s->monitor);
    *p->polled = true;
    return VERDICT_WAIT;
}

/* The container is restarted. */
static enum verdict mend_share(struct shares *s, const struct provision *p, struct slot *slot,
                               struct err *why) {
    if (slot_mend_ledger(&s->slots, slot, why) < 0 || slot_mend_account(&s->slots, slot, why) < 0)
        return deny_unwritten(why);
    if (slot->ledger)
        begin_peaks(s, slot);
    gputime_join(s);
    return finish(s, p, slot, why);
}

/* Makes a share of the grant, which is taken over. */
static enum verdict fill_share(struct shares *s, const struct provision *p,
                               struct slot_grant *grant, struct err *why) {
    struct slot *slot = slot_find(&s->slots, p->nonce);
    bool newer = slot && slot->grant.newer;
    const char *dir;

    /* Before the slot holds the card: MPS begins only while none does. */
    if (find_mps(s, grant, false, &dir, why) < 0) {
        slot_grant_done(grant);
        return why->code == ENODEV ? VERDICT_WAIT : VERDICT_DENY;
    }
    (void) slot_grant_contexts(grant, gpu_monitor_snapshot(s->monitor));
    if (slot_fill(&s->slots, p->nonce, grant, &slot, why) < 0)
        return deny_unwritten(why);
    gputime_join(s);
    log_grant(slot);
    /* Its files may be of another form. */
    return newer ? mend_share(s, p, slot, why) : finish(s, p, slot, why);
}

enum verdict provision(struct shares *s, const struct provision *p, struct err *why) {
    struct slot *slot = slot_find(&s->slots, p->nonce);
    struct slot_grant grant = {0};
    enum verdict v;

    if (grant_again(p, slot))
        return mend_share(s, p, slot, why);
    v = judge_pod(s, p, &grant, why);
    if (v != VERDICT_GRANT)
        return v;
    gputime_terms(s, &pods_find(s->pods, p->pod_uid)->pod, &grant);
    return fill_share(s, p, &grant, why);
}

/* ---- whole devices ---- */

static bool can_pass(const struct err *why) {
    return why->code == EAGAIN || why->code == ENODEV || why->code == ENOMEM;
}

/* Another pod that keeps a container from the device; NULL: none does. Replicas are of several
 * pods. */
static const struct slot *find_holder(const struct shares *s, const char *pod_uid, const char *uuid,
                                      bool replica) {
    const struct slot *holder = slot_whole_holder(&s->slots, uuid, pod_uid);
    struct slot_total total;

    if (!holder)
        slot_card_use(&s->slots, uuid, pod_uid, &total, &holder);
    return holder && replica && holder->grant.replica ? NULL : holder;
}

/* Is the device there, does it work, and has every process of its former pod ended? */
static int judge_whole(struct shares *s, const struct pod *pod, const char *uuid, bool replica,
                       struct err *why) {
    const struct gpu_device *d = gpu_find(gpu_monitor_snapshot(s->monitor), uuid);
    const struct slot *holder = find_holder(s, pod->uid, uuid, replica);
    const struct gpu_device *card =
        d && gpu_is_part(d) ? gpu_find(gpu_monitor_snapshot(s->monitor), d->parent) : NULL;
    char by[SLOT_POD_TEXT];

    if (!d)
        return err_set(why, ENODEV, "device %s is not on this node", uuid);
    if (card && (!card->healthy || card->service == GPU_SERVES_NONE))
        return err_set(why, EAGAIN, "GPU %u of MIG instance %s is unhealthy: %s", card->index, uuid,
                       card->reason);
    if (!d->healthy || d->service == GPU_SERVES_NONE)
        return err_set(why, EAGAIN, "%s %s is unhealthy: %s", gpu_kind_name(d->kind), uuid,
                       d->reason);
    if (!holder)
        return 0;
    slot_pod_text(&holder->grant, pod->namespace, by);
    return err_set(why, EAGAIN, "%s %s is still held by %s%s", gpu_kind_name(d->kind), uuid, by,
                   holder->releasing ? ", whose processes have not ended" : "");
}

static int judge_devices(struct shares *s, const struct provision *p, const char *const *uuids,
                         size_t n, bool replica, struct err *why) {
    const struct pod_entry *e = pods_find(s->pods, p->pod_uid);
    int r = 0;

    if (!e)
        return err_set(why, EAGAIN, "pod %s is not known to the API server (or it does not answer)",
                       p->pod_uid);
    if (e->pod.finished)
        return err_set(why, EPERM, "pod %s/%s has already finished", e->pod.namespace, e->pod.name);
    r = claim_rule_container(s, e, p->container, why);
    for (size_t i = 0; i < n && r == 0; i++)
        r = judge_whole(s, &e->pod, uuids[i], replica, why);
    return r;
}

static void log_whole(const struct slot *slot) {
    for (uint32_t i = 0; i < slot->grant.nwhole; i++)
        log_info("granted %s/%s container %s: %s (slot %s)", slot->grant.namespace, slot->grant.pod,
                 slot->grant.container, slot->grant.whole[i].uuid, slot->nonce);
}

enum verdict provision_whole(struct shares *s, const struct provision *p, const char *const *uuids,
                             size_t n, bool replica, struct err *why) {
    struct slot *slot = slot_find(&s->slots, p->nonce);
    struct slot_grant grant = {0};

    if (!grant_again(p, slot)) {
        if (judge_devices(s, p, uuids, n, replica, why) < 0 ||
            slot_grant_whole(&pods_find(s->pods, p->pod_uid)->pod, p->container, uuids, n, &grant,
                             why) < 0)
            return can_pass(why) ? VERDICT_WAIT : VERDICT_DENY;
        grant.replica = replica;
        if (slot_fill(&s->slots, p->nonce, &grant, &slot, why) < 0)
            return deny_unwritten(why);
        log_whole(slot);
    }
    return finish(s, p, slot, why);
}

/* ---- replicas with a part of the card ---- */

/* The parts of the other pods can be larger than today's: the number of replicas was another one.
 */
static int judge_room(const struct shares *s, const struct slot_grant *g, struct err *why) {
    const struct gpu_snapshot *snapshot = gpu_monitor_snapshot(s->monitor);

    for (uint32_t i = 0; i < g->ndevices; i++) {
        const struct slot_device *d = &g->devices[i];
        const struct gpu_device *card = gpu_find(snapshot, d->uuid);
        const struct slot *holder;
        struct slot_total others;
        char by[SLOT_POD_TEXT];

        slot_card_use(&s->slots, d->uuid, g->pod_uid, &others, &holder);
        if (!holder || (others.physical + d->pod_physical <= card->memory &&
                        others.core + d->pod_core <= gpu_core(card)))
            continue;
        slot_pod_text(&holder->grant, g->namespace, by);
        return err_set(why, EAGAIN,
                       "GPU %u (%s) has no room for one of its present replicas while %s holds an "
                       "earlier one",
                       card->index, d->uuid, by);
    }
    return 0;
}

static int make_parts(struct shares *s, const struct provision *p,
                      const struct assigned_device *parts, size_t n, struct slot_grant *ret,
                      struct err *why) {
    struct assigned_device *devices = (struct assigned_device *) (uintptr_t) parts;
    struct assigned_container container = {.ndevices = (uint32_t) n, .devices = devices};
    const struct assignment own = {.ncontainers = 1, .containers = &container};
    int r = 0;

    for (size_t i = 0; i < n && r == 0; i++) {
        const char *uuid = parts[i].uuid;

        r = judge_devices(s, p, &uuid, 1, true, why);
    }
    if (r < 0)
        return r;
    text_copy(container.name, sizeof(container.name), p->container);
    r = slot_grant_make(&pods_find(s->pods, p->pod_uid)->pod, &own, p->container, ret, why);
    if (r < 0)
        return r;
    ret->replica = true;
    r = judge_room(s, ret, why);
    if (r < 0)
        slot_grant_done(ret);
    return r;
}

enum verdict provision_parts(struct shares *s, const struct provision *p,
                             const struct assigned_device *parts, size_t n, struct err *why) {
    struct slot *slot = slot_find(&s->slots, p->nonce);
    struct slot_grant grant = {0};

    if (grant_again(p, slot))
        return mend_share(s, p, slot, why);
    if (make_parts(s, p, parts, n, &grant, why) < 0)
        return can_pass(why) ? VERDICT_WAIT : VERDICT_DENY;
    gputime_terms(s, &pods_find(s->pods, p->pod_uid)->pod, &grant);
    return fill_share(s, p, &grant, why);
}

/* ---- shares of claims ---- */

/* Each device has one allocator; that of the first is that of all. */
static enum dra_allocator allocator_of(const struct gpu_snapshot *s, const struct claim_share *c) {
    const struct gpu_device *d = c->ndevices > 0 ? gpu_find(s, c->devices[0].uuid) : NULL;

    return d ? d->allocator : DRA_NONE;
}

static int make_claim(const struct claim_share *c, const struct pod_claim_use *use,
                      enum dra_allocator allocator, struct slot_grant *ret, struct err *why) {
    struct slot_grant g = {.terms = c->terms,
                           .driver = DRIVER_CAPABILITIES_UNSAID,
                           .devices = calloc(c->ndevices + 1, sizeof(*g.devices))};

    if (!g.devices || slot_grant_claim(&g, c->uid, c->name) < 0 ||
        slot_claim_add(g.claim, c->pod->pod.uid) < 0) {
        slot_grant_done(&g);
        return err_set(why, ENOMEM, "out of memory");
    }
    g.claim->allocator = (uint8_t) allocator;
    text_copy(g.pod_uid, sizeof(g.pod_uid), c->pod->pod.uid);
    text_copy(g.namespace, sizeof(g.namespace), c->namespace);
    text_copy(g.pod, sizeof(g.pod), c->pod->pod.name);
    text_copy(g.container, sizeof(g.container), use->container);
    for (size_t i = 0; i < c->ndevices; i++) {
        const struct assigned_device *from = &c->devices[i];
        struct slot_device *d = &g.devices[g.ndevices++];

        d->index = from->index;
        d->core = d->pod_core = from->core;
        d->memory = d->pod_memory = from->memory;
        d->physical = d->pod_physical = from->physical;
        text_copy(d->uuid, sizeof(d->uuid), from->uuid);
    }
    *ret = g;
    return 0;
}

static bool has_amounts(const struct slot_grant *g, const struct claim_share *c) {
    if (g->ndevices != c->ndevices)
        return false;
    for (uint32_t i = 0; i < g->ndevices; i++)
        if (strcmp(g->devices[i].uuid, c->devices[i].uuid) != 0 ||
            g->devices[i].core != c->devices[i].core ||
            g->devices[i].memory != c->devices[i].memory ||
            g->devices[i].physical != c->devices[i].physical)
            return false;
    return true;
}

/* The claim has had a share. Of another allocation, which has ended while the agent was away, the
 * share ends first. */
static enum verdict claim_again(struct shares *s, const struct claim_share *c,
                                const struct provision *p, struct slot *slot, struct err *why) {
    if (!slot->releasing && !has_amounts(&slot->grant, c))
        slot_gc_release_claim(s, slot, false);
    if (slot->releasing) {
        (void) err_set(why, EAGAIN,
                       "the share that ResourceClaim %s had before is still held by processes that "
                       "have not ended",
                       c->name);
        return VERDICT_WAIT;
    }
    if (slot_users_add(s, slot, p->pod_uid, why) < 0)
        return deny_unwritten(why);
    return finish(s, p, slot, why);
}

enum verdict provision_claim(struct shares *s, const struct claim_share *c, bool *polled,
                             struct err *why) {
    const struct pod_claim_use *use = pod_claim_use_find(c->pod, NULL, c->name);
    const struct grant_world world = {.node = s->options.node_name,
                                      .snapshot = gpu_monitor_snapshot(s->monitor),
                                      .slots = &s->slots};
    char nonce[NONCE_LEN + 1];
    const struct provision p = {.nonce = nonce, .pod_uid = c->pod->pod.uid, .polled = polled};
    struct slot_grant grant = {0};
    struct slot *slot;
    enum verdict v;

    if (!nonce_of_claim(c->uid, nonce) || !use) {
        (void) err_set(why, EINVAL, "no container of pod %s/%s uses ResourceClaim %s", c->namespace,
                       c->pod->pod.name, c->name);
        return VERDICT_DENY;
    }
    slot = slot_find(&s->slots, nonce);
    if (slot && slot->grant.claim && !slot->grant.newer)
        return claim_again(s, c, &p, slot, why);
    if (make_claim(c, use, allocator_of(world.snapshot, c), &grant, why) < 0)
        return VERDICT_WAIT;
    v = grant_judge_devices(&world, &grant, why);
    if (v == VERDICT_GRANT)
        return fill_share(s, &p, &grant, why);
    slot_grant_done(&grant);
    return v;
}
