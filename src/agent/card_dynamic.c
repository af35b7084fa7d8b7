/* SPDX-License-Identifier: Apache-2.0 */

/* Cards divided on demand: reads the orders of aliquot-scheduler, follows those on cards in MIG
 * mode, and reports what these can have (status.mig of their GPU objects). card_mps.c follows those
 * on other cards. Cards of kube-scheduler's have no orders: what claims have of them is made when
 * they are prepared. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "agent/agent.h"
#include "agent/config/card_config.h"
#include "agent/mig/executor.h"
#include "agent/report/publish.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "mig/order.h"

#define RETRY_MS 10000
#define WISH_MS 2000 /* it is repeated while its claim waits */

/* An instance that a claim waits for. */
struct wish {
    struct mig_place place;
    uint64_t until;         /* loop time */
    char why[ERR_TEXT_MAX]; /* it is not made yet; "": it is about to be */
};

struct dynamic_card {
    struct dynamic_card *next;
    char uuid[GPU_UUID_MAX];
    struct agent *agent;
    struct mig_order order;
    bool ordered;   /* `order` is what the API server has */
    bool malformed; /* it cannot be read, which was logged */
    bool was_read;  /* `order` is the last one that could be read */
    bool known;     /* `report` is of a reading of the card */
    bool unread;    /* the last job has not read it: `report` may be out of date */
    bool wanted;    /* the card is to be given out by order */
    bool claims;    /* ... or rather for claims that kube-scheduler allocates */
    bool tried;     /* it was read, or could not be */
    uint32_t nwishes;
    struct wish wishes[MIG_EDIT_MAX];
    uint64_t layout;  /* hash of the instances, by the snapshot of that reading */
    uint64_t read_of; /* the same, while the card is being read */
    uint64_t read_at; /* loop time */
    struct mig_report report;
    struct mig_job job;
    char cause[ERR_TEXT_MAX]; /* why it failed; "": it did not */
    bool refused;             /* the order cannot be carried out on the card as it is */
    uint64_t serial;          /* of the order that it carries out */
    uint64_t failed_serial;   /* of an order that failed */
    uint64_t retry_at;        /* loop time */
};

static struct dynamic_card *find_card(const struct agent *a, const char *uuid) {
    struct dynamic_card *c;

    LL_FOREACH(a->dynamic, c)
        if (strcmp(c->uuid, uuid) == 0)
            return c;
    return NULL;
}

static struct dynamic_card *get_card(struct agent *a, const char *uuid) {
    struct dynamic_card *c = find_card(a, uuid);

    if (c || !(c = calloc(1, sizeof(*c))))
        return c;
    text_copy(c->uuid, sizeof(c->uuid), uuid);
    c->agent = a;
    LL_APPEND(a->dynamic, c);
    return c;
}

/* ---- what the snapshot says ---- */

/* kubelet gives out instances of all profiles with the strategy `mixed` only, the scheduler those
 * of cards in mode `share`, and claims that kube-scheduler allocates what kubelet does not. */
static bool is_dynamic(const struct agent *a, const struct gpu_snapshot *s,
                       const struct gpu_device *d, bool *ret_shares) {
    enum config_mode mode = config_card_mode(a->node_config, s, d);

    *ret_shares = mode == CONFIG_MODE_SHARE;
    return a->node_config->mig_dynamic && d->kind == GPU_CARD && d->divided &&
           (*ret_shares ||
            (mode == CONFIG_MODE_MIG && (a->whole_rows.strategy == MIG_STRATEGY_MIXED ||
                                         card_allocator_gives_instance(a, s, d))));
}

static const struct slot *holder_of(const struct agent *a, const char *uuid) {
    for (const struct slot *slot = a->shares.slots.slots; slot; slot = slot->hh.next)
        if (slot_has_device(slot, uuid))
            return slot;
    return NULL;
}

static bool is_held(const struct agent *a, const char *uuid) {
    return holder_of(a, uuid) != NULL;
}

/* Changes with the instances, and with those that containers have. */
static uint64_t hash_layout(const struct agent *a, const struct gpu_snapshot *s, const char *uuid) {
    uint64_t hash = HASH_START;

    for (uint32_t i = 0; i < s->ndevices; i++)
        if (strcmp(s->devices[i].parent, uuid) == 0)
            hash = hash_text(hash_text(hash, s->devices[i].uuid),
                             is_held(a, s->devices[i].uuid) ? "held" : "");
    return hash;
}

/* A container that has one of the MIG devices of the GPU instance; NULL: none has. */
static const struct slot *instance_holder(const struct agent *a, const struct gpu_snapshot *s,
                                          const char *card, uint32_t gi) {
    const struct slot *ret = NULL;

    for (uint32_t i = 0; i < s->ndevices && !ret; i++) {
        const struct gpu_device *d = &s->devices[i];

        if (strcmp(d->parent, card) == 0 && d->mig.gi == gi)
            ret = holder_of(a, d->uuid);
    }
    return ret;
}

/* What was so when the card was read and changes without a trace in the snapshot: the MIG mode, and
 * the use of what no container has. */
static bool may_have_changed(const struct agent *a, const struct gpu_snapshot *s,
                             const struct dynamic_card *c) {
    if (!c->report.card.enabled)
        return true;
    for (uint32_t k = 0; k < c->report.card.ninstances; k++)
        if (c->report.card.instances[k].in_use &&
            !instance_holder(a, s, c->uuid, c->report.card.instances[k].id))
            return true;
    return false;
}

/* ---- jobs ---- */

/* The driver's child names the pods that use instances. The Event of a claim's pod names none of
 * other namespaces. */
static void take_pending(struct dynamic_card *c, const char *reason) {
    text_copy(c->cause, sizeof(c->cause), c->claims ? "what is in its way is in use" : reason);
    if (c->claims)
        log_info("GPU %s: MIG instances: %s", c->uuid, reason);
}

static void on_card(struct mig_job *job, const struct gpu_mig_card *card) {
    struct dynamic_card *c = job->userdata;

    if (card->status < 0)
        text_copy(c->cause, sizeof(c->cause), card->error);
    else if (card->result.pending)
        take_pending(c, card->result.reason);
    else if (!card->known)
        text_copy(c->cause, sizeof(c->cause), "the card could not be read after its change");
    c->unread = !card->known;
    c->refused = card->known && c->cause[0] && card->status != -ECANCELED;
    if (c->unread)
        return;
    c->report.card = card->card;
    c->known = true;
    c->layout = c->read_of;
    c->read_at = uv_now(c->agent->loop);
}

/* What was to be made and is not there has failed for that cause. */
static void add_failures(struct dynamic_card *c, const struct mig_edit *edit, const char *cause) {
    struct mig_report *report = &c->report;

    for (uint32_t i = 0; i < edit->nmake && report->nfailures < MIG_ORDER_MAX; i++) {
        struct mig_failure *f = &report->failures[report->nfailures];

        if (mig_edit_find(&report->card, &edit->make[i]))
            continue;
        *f = (struct mig_failure){.place = edit->make[i]};
        text_copy(f->cause, sizeof(f->cause), cause);
        report->nfailures++;
    }
}

static void on_done(struct mig_job *job, int status, const char *error) {
    struct dynamic_card *c = job->userdata;
    struct agent *a = c->agent;

    c->tried = true;
    if (status < 0)
        text_copy(c->cause, sizeof(c->cause), error);
    if (c->cause[0]) {
        log_warn("GPU %s: MIG instances: %s", c->uuid, c->cause);
        c->retry_at = uv_now(a->loop) + RETRY_MS;
    }
    /* What else has failed passes: another process divides cards, the child was killed. */
    if (c->refused && job->order.kind == GPU_MIG_EDIT) {
        c->report.nfailures = 0;
        add_failures(c, &job->order.edit, c->cause);
        c->report.observed = c->failed_serial = c->serial;
    }
    if (!a->closing)
        (void) gpu_monitor_poll(a->shares.monitor);
}

static void submit(struct agent *a, const struct gpu_snapshot *s, struct dynamic_card *c,
                   uint32_t kind, const struct mig_edit *edit) {
    c->job = (struct mig_job){.on_card = on_card, .on_done = on_done, .userdata = c};
    c->job.order.kind = kind;
    text_copy(c->job.order.card, sizeof(c->job.order.card), c->uuid);
    if (edit)
        c->job.order.edit = *edit;
    c->cause[0] = 0;
    c->unread = true;
    c->refused = false;
    c->serial = c->order.serial;
    c->read_of = hash_layout(a, s, c->uuid);
    mig_executor_submit(a->mig, &c->job);
}

/* The instances of an order that failed are not tried again until the order is another one. */
static void follow(struct agent *a, const struct gpu_snapshot *s, struct dynamic_card *c) {
    struct mig_report report = c->report;
    struct mig_edit edit;

    if (!c->ordered || c->failed_serial == c->order.serial)
        return;
    if (mig_order_edit(&c->order, &report, &edit)) {
        submit(a, s, c, GPU_MIG_EDIT, &edit);
        return;
    }
    c->report.nfailures = report.nfailures;
    memcpy(c->report.failures, report.failures, sizeof(report.failures));
    c->report.observed = c->order.serial;
}

/* ---- what claims wait for ---- */

static void forget_wishes(struct dynamic_card *c, uint64_t now) {
    uint32_t n = 0;

    for (uint32_t i = 0; i < c->nwishes; i++)
        if (now < c->wishes[i].until)
            c->wishes[n++] = c->wishes[i];
    c->nwishes = n;
}

/* Whether the instance stays where it is in the way: a container has it, whose claim has ended, or
 * another process. */
static bool blocks(const struct agent *a, const struct gpu_snapshot *s,
                   const struct dynamic_card *c, const struct mig_instance *gi, struct wish *wish) {
    const struct mig_card_profile *p = &c->report.card.profiles[gi->profile];
    bool held = instance_holder(a, s, c->uuid, gi->id) != NULL;
    char name[MIG_PROFILE_NAME_MAX];

    if (held || gi->in_use)
        (void) snprintf(wish->why, sizeof(wish->why), "%s at %u is still in use by %s",
                        mig_name_format(&p->name, name), gi->start,
                        held ? "a pod" : "another process");
    return held || gi->in_use;
}

/* Idle instances in its way go. False: one of them stays. */
static bool make_room(const struct agent *a, const struct gpu_snapshot *s,
                      const struct dynamic_card *c, struct wish *wish, struct mig_edit *edit) {
    const struct mig_card *card = &c->report.card;
    const struct mig_card_profile *p = mig_card_find(card, &wish->place.name);
    uint32_t bits = p ? mig_card_bits(p, wish->place.start) : 0, n = edit->nremove;

    for (uint32_t i = 0; i < card->ninstances; i++) {
        const struct mig_instance *gi = &card->instances[i];
        const struct mig_card_profile *q = &card->profiles[gi->profile];

        if (!(mig_card_bits(q, gi->start) & bits))
            continue;
        if (blocks(a, s, c, gi, wish))
            return false;
        if (n < MIG_EDIT_MAX)
            edit->remove[n++] = (struct mig_place){q->name, gi->start};
    }
    edit->nremove = n;
    return true;
}

/* One that the card cannot have beside the others fails alone, and what is in its way stays. */
static void add_wish(const struct agent *a, const struct gpu_snapshot *s,
                     const struct dynamic_card *c, struct wish *wish, struct mig_edit *edit) {
    struct mig_edit with = *edit;
    struct mig_want want;
    struct err err;

    wish->why[0] = 0;
    if (mig_edit_find(&c->report.card, &wish->place) || !make_room(a, s, c, wish, &with))
        return;
    with.make[with.nmake++] = wish->place;
    if (mig_want_edit(&c->report.card, &with, &want, &err) >= 0)
        *edit = with;
    else
        text_copy(wish->why, sizeof(wish->why), err.text);
}

static void make_wishes(struct agent *a, const struct gpu_snapshot *s, struct dynamic_card *c) {
    struct mig_edit edit = {.nmake = 0};

    forget_wishes(c, uv_now(a->loop));
    for (uint32_t i = 0; i < c->nwishes; i++)
        add_wish(a, s, c, &c->wishes[i], &edit);
    if (edit.nmake > 0)
        submit(a, s, c, GPU_MIG_EDIT, &edit);
}

static void work(struct agent *a, const struct gpu_snapshot *s, struct dynamic_card *c) {
    const struct gpu_device *d = gpu_find(s, c->uuid);

    if (!d || d->saved || d->released || !d->healthy || c->job.submitted ||
        uv_now(a->loop) < c->retry_at)
        return;
    if (!c->known || c->unread || c->layout != hash_layout(a, s, c->uuid) ||
        (may_have_changed(a, s, c) && uv_now(a->loop) - c->read_at >= RETRY_MS))
        submit(a, s, c, GPU_MIG_READ, NULL);
    else if (c->claims)
        make_wishes(a, s, c);
    else
        follow(a, s, c);
}

void card_dynamic_update(struct agent *a) {
    const struct gpu_snapshot *s = gpu_monitor_snapshot(a->shares.monitor);
    struct dynamic_card *c;

    LL_FOREACH(a->dynamic, c)
        c->wanted = false;
    for (uint32_t i = 0; i < s->ndevices; i++) {
        const struct gpu_device *d = &s->devices[i];
        bool shares;

        if (is_dynamic(a, s, d, &shares) && (c = get_card(a, d->uuid))) {
            c->wanted = true;
            c->claims = d->allocator == DRA_KUBE_SCHEDULER &&
                        (shares || card_allocator_gives_instance(a, s, d));
            c->report.shares = shares;
            work(a, s, c);
        }
    }
    a->dynamic_known = true;
}

/* ---- claims ---- */

const struct mig_card *card_dynamic_for_claims(const struct agent *a, const char *uuid) {
    static const struct mig_card unread;
    const struct dynamic_card *c = find_card(a, uuid);

    if (!c || !c->wanted || !c->claims)
        return NULL;
    return c->known && c->report.card.enabled ? &c->report.card : &unread;
}

bool card_dynamic_is_settled(const struct agent *a) {
    const struct dynamic_card *c;

    LL_FOREACH(a->dynamic, c)
        if (c->wanted && c->job.submitted && !c->tried)
            return false;
    return a->dynamic_known;
}

static struct wish *get_wish(struct dynamic_card *c, const struct mig_place *place) {
    for (uint32_t i = 0; i < c->nwishes; i++)
        if (mig_name_equal(&c->wishes[i].place.name, &place->name) &&
            c->wishes[i].place.start == place->start)
            return &c->wishes[i];
    if (c->nwishes == MIG_EDIT_MAX)
        return NULL;
    c->wishes[c->nwishes] = (struct wish){.place = *place};
    return &c->wishes[c->nwishes++];
}

int card_dynamic_want(struct agent *a, const char *uuid, const struct mig_place *place,
                      struct err *why) {
    struct dynamic_card *c = find_card(a, uuid);
    struct wish *wish = c ? get_wish(c, place) : NULL;
    char name[MIG_PROFILE_NAME_MAX];
    const char *text = wish && wish->why[0] ? wish->why : c ? c->cause : "";

    (void) err_set(why, EAGAIN, "MIG instance %s at %u of GPU %s is not made yet%s%.200s",
                   mig_name_format(&place->name, name), place->start, uuid, text[0] ? ": " : "",
                   text);
    if (!wish)
        return -EAGAIN;
    wish->until = uv_now(a->loop) + WISH_MS;
    if (c->wanted)
        work(a, gpu_monitor_snapshot(a->shares.monitor), c);
    return -EAGAIN;
}

/* ---- GPU objects ---- */

void card_dynamic_object(struct json object, void *userdata) {
    struct agent *a = userdata;
    const char *uuid = json_string_or(JSON_PATH(object, "spec", "uuid"), "");
    const char *text =
        json_string_or(JSON_PATH(object, "metadata", "annotations", MIG_ORDER_ANNOTATION), "");
    struct dynamic_card *c = find_card(a, uuid);
    struct mig_order order;
    struct err err;
    bool mps;
    int r;

    /* Most GPU objects have no order. */
    if (!c && (!text[0] || !(c = get_card(a, uuid))))
        return;
    r = mig_order_parse(text, strlen(text), &order, &err);
    if (r < 0 && !c->malformed)
        log_warn("GPU %s: %s: the annotation is ignored", uuid, err.text);
    c->malformed = r < 0;
    c->ordered = r >= 0;
    c->was_read |= r >= 0;
    mps = c->order.mps;
    if (r >= 0)
        c->order = order;
    if (c->order.mps != mps)
        (void) gpu_monitor_poll(a->shares.monitor);
    if (c->wanted)
        work(a, gpu_monitor_snapshot(a->shares.monitor), c);
}

bool card_dynamic_report(const char *uuid, void *userdata, const struct mig_report **ret) {
    const struct agent *a = userdata;
    const struct dynamic_card *c = find_card(a, uuid);
    bool wanted = c && c->wanted && !c->claims;

    *ret = wanted && c->known ? &c->report : NULL;
    return a->dynamic_known && (!wanted || c->known);
}

/* A malformed order changes nothing, nor does it where it is the first that is read. */
int card_dynamic_mps(const struct agent *a, const char *uuid) {
    const struct dynamic_card *c = find_card(a, uuid);

    if (c && c->was_read)
        return c->order.mps;
    if (c && c->malformed)
        return -EAGAIN;
    return a->report.publisher && publisher_has_orders(a->report.publisher) ? 0 : -EAGAIN;
}

void card_dynamic_done(struct agent *a) {
    struct dynamic_card *c, *next;

    LL_FOREACH_SAFE(a->dynamic, c, next)
        free(c);
    a->dynamic = NULL;
}
