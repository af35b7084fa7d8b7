/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/health/cards.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "agent/os/kmsg.h"
#include "agent/shares/slot.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/server_time.h"
#include "base/text.h"

#define FILE_NAME "health.json"
#define FILE_MAX (1 << 20)

/* It goes on while the machine sleeps and does not jump when it is set. */
static uint64_t now_ms(void) {
    return clock_ms(CLOCK_BOOTTIME);
}

static uint32_t place_of(const struct health_cards *c, const char *uuid) {
    uint32_t i = 0;

    while (i < c->ncards && strcmp(c->cards[i].uuid, uuid) != 0)
        i++;
    return i;
}

static struct health_card *find(struct health_cards *c, const char *uuid) {
    uint32_t i = place_of(c, uuid);

    return i < c->ncards ? &c->cards[i] : NULL;
}

const struct health_card *health_cards_find(const struct health_cards *c, const char *uuid) {
    uint32_t i = place_of(c, uuid);

    return i < c->ncards ? &c->cards[i] : NULL;
}

/* What is on an instance is on its card. */
void health_cards_places(const struct health_cards *c, const char *uuid,
                         struct health_places *ret) {
    ret->uuids[0] = uuid;
    ret->n = 1;
    for (uint32_t i = 0; i < c->ncards; i++)
        if (strcmp(c->cards[i].parent, uuid) == 0)
            ret->uuids[ret->n++] = c->cards[i].uuid;
}

bool health_places_hold(const struct health_places *places, const struct slot *slot) {
    for (uint32_t i = 0; i < places->n; i++)
        if (slot_has_device(slot, places->uuids[i]))
            return true;
    return false;
}

/* ---- changes ---- */

/* What on_change compares. */
struct before {
    enum health_state state;
    bool after_reset;
    char reason[HEALTH_TEXT_MAX];
};

/* A change decides on the containers that the card has now, which are counted here: one can have
 * begun on it since the last reading, and the card is not reset below it. Its processes are those
 * of that reading. Returns what the card was. */
static struct before begin_change(const struct health_cards *c, struct health_card *card) {
    struct before b = {.state = card->health.state, .after_reset = card->health.after_reset};

    card->health.holders = c->options.holders(card->uuid, c->options.userdata);
    text_copy(b.reason, sizeof(b.reason), card->health.reason);
    return b;
}

static void show_xid(struct health_card *card, bool changed) {
    uint64_t now = now_ms();

    if (card->shown_xid == card->health.last_xid ||
        (!changed && card->shown_at > 0 && now - card->shown_at < HEALTH_SHOW_XID_MS))
        return;
    card->shown_xid = card->health.last_xid;
    card->shown_at = now;
}

static bool take_change(struct health_cards *c, struct health_card *card,
                        const struct before *before) {
    bool changed = card->health.state != before->state;

    if (before->after_reset && !card->health.after_reset)
        card->resets[card->health.failure[0] ? RESET_NO_EFFECT : RESET_SUCCEEDED]++;
    show_xid(card, changed);
    if (changed || card->since == 0)
        card->since = server_time();
    if (!changed && strcmp(card->health.reason, before->reason) == 0)
        return false;
    c->unsaved = true;
    if (c->options.on_change)
        c->options.on_change(card, before->state, c->options.userdata);
    return changed;
}

/* ---- snapshots ---- */

/* Instances come and go. A snapshot has not more devices than there are places. */
static struct health_card *oldest(struct health_cards *c) {
    struct health_card *ret = &c->cards[0];

    for (uint32_t i = 1; i < c->ncards; i++)
        if (c->cards[i].judged < ret->judged)
            ret = &c->cards[i];
    return ret;
}

static struct health_card *card_of(struct health_cards *c, const struct gpu_device *d) {
    struct health_card *card = find(c, d->uuid);

    if (!card) {
        card = c->ncards < GPU_MAX ? &c->cards[c->ncards++] : oldest(c);
        *card = (struct health_card){0};
        text_copy(card->uuid, sizeof(card->uuid), d->uuid);
    }
    card->judged = ++c->judged;
    text_copy(card->parent, sizeof(card->parent), d->parent);
    text_copy(card->pci, sizeof(card->pci), d->pci);
    card->kind = d->kind;
    card->index = d->index;
    card->mig = d->mig;
    return card;
}

/* What has not been judged for two rounds is no longer there. */
static bool is_present(const struct health_cards *c, const struct health_card *card) {
    return c->judged - card->judged < 2 * (uint64_t) c->ncards;
}

static bool peer_is_away(const struct health_cards *c, const struct health_card *card) {
    for (uint32_t i = 0; i < c->ncards; i++) {
        const struct health_card *peer = &c->cards[i];

        if (peer != card && peer->kind == GPU_CARD && is_present(c, peer) &&
            (peer->health.state == HEALTH_RESETTING ||
             peer->health.problems[HEALTH_NO_ANSWER].there))
            return true;
    }
    return false;
}

static void notice(struct health_cards *c, const struct health_card *card, const char *reason,
                   const char *text) {
    if (c->options.on_notice)
        c->options.on_notice(card, reason, text, c->options.userdata);
}

/* Notes whether it is so, and tells when it begins. */
static void note(struct health_cards *c, struct health_card *card, bool *known, bool is,
                 const char *reason, const char *text) {
    if (is == *known)
        return;
    *known = is;
    c->unsaved = true;
    if (is)
        notice(c, card, reason, text);
}

static void note_errors(struct health_cards *c, struct health_card *card,
                        const struct gpu_errors *errors) {
    note(c, card, &card->repair_pending, health_repair_pending(errors), "GPUMemoryRepairPending",
         "its memory has had errors, and the next reset repairs it; the card works on without that "
         "part");
    if (errors->banks_none != GPU_NOT_TOLD)
        note(c, card, &card->banks_exhausted, errors->banks_none > 0, "GPUMemorySpareRowsUsed",
             "a bank of its memory has no spare row left: the next uncorrectable error there takes "
             "the card out until it is replaced");
    if (errors->sram_exceeded != GPU_NOT_TOLD)
        note(c, card, &card->sram_exceeded, errors->sram_exceeded > 0, "GPUSRAMThresholdExceeded",
             "its SRAM has had more uncorrectable errors than NVIDIA's threshold for a "
             "replacement: run NVIDIA's field diagnostic");
}

/* A vGPU goes on without a licence, and slows down. */
static void note_licence(struct health_cards *c, struct health_card *card, bool unlicensed) {
    if (unlicensed == card->unlicensed)
        return;
    card->unlicensed = unlicensed;
    if (unlicensed)
        notice(c, card, "VGPUUnlicensed",
               "the vGPU has no licence and slows down; see the licence client (nvidia-gridd) of "
               "the node");
    else
        notice(c, card, "VGPULicensed", "the vGPU has a licence again");
    c->unsaved = true;
}

static int32_t told(uint32_t figure) {
    return figure <= INT32_MAX ? (int32_t) figure : -1;
}

/* Whether its pods can go on in the state. */
static enum gpu_service service_of(const struct health *h) {
    if (h->state == HEALTH_HEALTHY)
        return GPU_SERVES;
    if (h->state == HEALTH_SUSPECT || (h->state == HEALTH_DRAINING && h->cordoned && !h->draining))
        return GPU_SERVES_HOLDERS;
    return GPU_SERVES_NONE;
}

static void take_parent(struct health_cards *c, const struct health_card *card,
                        enum gpu_service *service, const char **reason) {
    const struct health_card *parent = card->parent[0] ? find(c, card->parent) : NULL;
    enum gpu_service of_parent = parent ? service_of(&parent->health) : GPU_SERVES;

    if (of_parent <= *service)
        return;
    *service = of_parent;
    *reason = parent->health.reason;
}

void health_cards_judge(struct health_cards *c, struct gpu_device *d) {
    struct health_card *card = card_of(c, d);
    const struct before before = begin_change(c, card);
    const bool held = c->awaits_orders && !card->health.seen;
    struct health_reading reading = {.error = d->healthy ? NULL : d->reason,
                                     .needs_reset = d->needs_reset,
                                     .of_driver = d->stale,
                                     .late = d->late ||
                                             (card->read_at > 0 && d->read_at == card->read_at),
                                     .recovery = told(d->recovery_action),
                                     .temperature = told(d->sample.temperature),
                                     .errors = &d->errors,
                                     .divided = d->divided,
                                     .no_reset = d->kind != GPU_CARD || d->traits.vgpu != 0,
                                     .peer_away = peer_is_away(c, card),
                                     .holders = card->health.holders,
                                     .processes = (uint32_t) d->nprocesses};
    const char *reason;

    card->read_at = d->read_at;
    if (!d->saved && !d->released && !held)
        health_read(&card->health, c->options.rules, &reading, now_ms());
    (void) take_change(c, card, &before);
    if (d->healthy)
        note_errors(c, card, &d->errors);
    if (d->healthy)
        note_licence(c, card, d->traits.unlicensed != 0);
    d->service = service_of(&card->health);
    reason = !held        ? card->health.reason
             : d->healthy ? "its orders have not been read from the API server yet"
                          : d->reason;
    take_parent(c, card, &d->service, &reason);
    if (d->service != GPU_SERVES)
        text_copy(d->reason, sizeof(d->reason), reason);
}

void health_cards_set_problem(struct health_cards *c, const char *uuid, enum health_cause cause,
                              const char *text) {
    struct health_card *card = find(c, uuid);
    struct before before;

    if (!card || (!text && !card->health.problems[cause].there))
        return;
    before = begin_change(c, card);
    health_set_problem(&card->health, c->options.rules, cause, text, now_ms());
    (void) take_change(c, card, &before);
}

struct health_view health_cards_view(const struct health_cards *c, const char *uuid) {
    const struct health_card *card = health_cards_find(c, uuid), *parent, *shown = card;

    if (!card)
        return (struct health_view){.state = HEALTH_UNKNOWN, .reason = "", .since = 0};
    parent = card->parent[0] ? health_cards_find(c, card->parent) : NULL;
    if (parent && service_of(&parent->health) > service_of(&card->health))
        shown = parent;
    return (struct health_view){.state = shown->health.state,
                                .reason = shown->health.reason,
                                .since = shown->since,
                                .last_xid = card->shown_xid};
}

/* ---- XIDs ---- */

static void count_xid(struct health_card *card, uint32_t xid, bool by_log) {
    uint32_t i = 0;

    while (i < card->nxids && card->xids[i].xid != xid)
        i++;
    if (i == HEALTH_XIDS_MAX)
        return;
    if (i == card->nxids)
        card->xids[card->nxids++] = (struct xid_count){.xid = xid};
    if (by_log)
        card->xids[i].by_log++;
    else
        card->xids[i].by_nvml++;
}

static bool take_xid(struct health_cards *c, struct health_card *card, uint32_t xid, bool by_log) {
    struct before before = begin_change(c, card);

    count_xid(card, xid, by_log);
    health_take_xid(&card->health, c->options.rules, xid, now_ms());
    c->unsaved = true;
    return take_change(c, card, &before);
}

/* Whether the XID is limited to an instance, and this is one of it. */
static bool is_hit(const struct health_card *card, const char *parent, uint32_t gi, uint32_t ci) {
    return card->parent[0] && strcmp(card->parent, parent) == 0 && card->mig.gi == gi &&
           (ci == GPU_NOT_TOLD || card->mig.ci == ci);
}

/* On the instances that it is limited to; on the card, where it is limited to none that is known.
 */
static bool take_on(struct health_cards *c, struct health_card *card, const struct gpu_xid *x,
                    bool by_log) {
    bool hit = false, changed = false;

    for (uint32_t i = 0; i < c->ncards && x->gi != GPU_NOT_TOLD; i++) {
        if (!is_hit(&c->cards[i], card->uuid, x->gi, x->ci))
            continue;
        hit = true;
        changed |= take_xid(c, &c->cards[i], x->xid, by_log);
    }
    return hit ? changed : take_xid(c, card, x->xid, by_log);
}

bool health_cards_xid(struct health_cards *c, const struct gpu_xid *x) {
    struct health_card *card = find(c, x->uuid);

    return card && take_on(c, card, x, false);
}

bool health_cards_log(struct health_cards *c, const struct kmsg_xid *x) {
    const struct gpu_xid same = {.gi = x->gi, .ci = x->ci, .xid = x->xid};

    _Static_assert(GPU_NOT_TOLD == KMSG_WHOLE_CARD, "one value for an XID of no instance");
    c->log_sequence = x->sequence;
    c->unsaved = true;
    for (uint32_t i = 0; i < c->ncards; i++)
        if (c->cards[i].kind == GPU_CARD && kmsg_is_of(x, c->cards[i].pci))
            return take_on(c, &c->cards[i], &same, true);
    return false;
}

/* ---- orders ---- */

static bool take_order(struct health_cards *c, struct health_card *card, enum health_order order,
                       const char *origin) {
    struct before before = begin_change(c, card);

    health_take_order(&card->health, c->options.rules, order, origin, now_ms());
    c->unsaved = true;
    return take_change(c, card, &before);
}

/* Whether the text is a new order. */
static bool follow_text(struct health_order_text *last, const char *text) {
    char order[HEALTH_ORDER_TEXT_MAX];
    bool is_new;

    text_copy(order, sizeof(order), text);
    is_new = last->known && order[0] && strcmp(last->text, order) != 0;
    last->known = true;
    text_copy(last->text, sizeof(last->text), order);
    return is_new;
}

bool health_cards_order(struct health_cards *c, const char *uuid, enum health_order order,
                        const char *text) {
    struct health_card *card = find(c, uuid);
    struct health_order_text *last, before;
    bool is_new, changed = false;

    if (!card)
        return false;
    last = order == HEALTH_ORDER_RESET ? &card->reset : &card->set_healthy;
    before = *last;
    is_new = follow_text(last, text);
    c->unsaved |= !before.known || strcmp(before.text, last->text) != 0;
    for (uint32_t i = 0; i < c->ncards && is_new; i++)
        if (&c->cards[i] == card ||
            (order == HEALTH_ORDER_SET_HEALTHY && strcmp(c->cards[i].parent, uuid) == 0))
            changed |= take_order(c, &c->cards[i], order, "by order");
    return changed;
}

bool health_cards_reset(struct health_cards *c, const char *uuid) {
    struct health_card *card = find(c, uuid);

    return card && take_order(c, card, HEALTH_ORDER_RESET_BY_AGENT, "");
}

bool health_card_is_to_be_reset(const struct health_card *card) {
    const struct health *h = &card->health;

    return h->reset_ordered || h->after_reset || h->state == HEALTH_RESETTING;
}

static enum health_order level_of(const struct health *h) {
    return h->released   ? HEALTH_ORDER_RELEASE
           : h->draining ? HEALTH_ORDER_DRAIN
           : h->cordoned ? HEALTH_ORDER_CORDON
                         : HEALTH_ORDER_UNCORDON;
}

bool health_cards_maintain(struct health_cards *c, const char *uuid, enum health_order level,
                           const char *origin) {
    struct health_card *card = find(c, uuid);

    if (!card || (level_of(&card->health) == level &&
                  (level == HEALTH_ORDER_UNCORDON || strcmp(card->health.origin, origin) == 0)))
        return false;
    return take_order(c, card, level, origin);
}

bool health_card_is_closed(const struct health_card *card) {
    return card->health.state == HEALTH_RESETTING ||
           (card->health.released && card->health.state == HEALTH_UNKNOWN);
}

/* ---- work ---- */

const struct health_card *health_cards_waiting(const struct health_cards *c,
                                               enum health_work work) {
    for (uint32_t i = 0; i < c->ncards; i++)
        if (!c->cards[i].working && health_work(&c->cards[i].health) == work)
            return &c->cards[i];
    return NULL;
}

void health_cards_begin(struct health_cards *c, const char *uuid) {
    struct health_card *card = find(c, uuid);

    if (card)
        card->working = true;
}

void health_cards_end(struct health_cards *c, const char *uuid, enum health_work work,
                      const char *error) {
    struct health_card *card = find(c, uuid);
    struct before before;

    if (!card)
        return;
    before = begin_change(c, card);
    card->working = false;
    health_work_done(&card->health, c->options.rules, work, error, now_ms());
    c->unsaved = true;
    (void) take_change(c, card, &before);
}

void health_cards_set_persistent(struct health_cards *c, const char *uuid, bool off) {
    struct health_card *card = find(c, uuid);

    if (!card)
        return;
    card->persistent = off;
    c->unsaved = true;
    health_cards_save(c);
}

void health_cards_count_reset(struct health_cards *c, const char *uuid, enum reset_result result) {
    struct health_card *card = find(c, uuid);

    if (card)
        card->resets[result]++;
}

void health_cards_set_probed(struct health_cards *c, const char *uuid, const char *instance) {
    struct health_card *card = find(c, uuid);

    if (card)
        text_copy(card->probed, sizeof(card->probed), instance);
}

/* ---- the file ---- */

void health_cards_save(struct health_cards *c) {
    _cleanup_buf_ struct buf text = BUF_INIT(FILE_MAX);
    char path[512];
    struct err err;

    if (!c->unsaved)
        return;
    health_cards_encode(c, &text);
    (void) snprintf(path, sizeof(path), "%s/" FILE_NAME, c->options.state_dir);
    if (buf_error(&text) < 0 || file_replace(path, text.data, text.len, 0644, &err) < 0)
        log_warn("the health of the cards is not saved in %s", path);
    else
        c->unsaved = false;
}

void health_cards_start(struct health_cards *c, const struct health_cards_options *options) {
    _cleanup_buf_ struct buf text = BUF_INIT(FILE_MAX);
    char path[512];
    struct err err;
    int r;

    (void) snprintf(path, sizeof(path), "%s/" FILE_NAME, options->state_dir);
    r = file_read(path, FILE_MAX - 1, &text, &err);
    if (r == 0)
        r = health_cards_decode(buf_str(&text), text.len, c, &err);
    if (r < 0 && r != -ENOENT && r != -ESTALE)
        log_warn("%s is not usable and is ignored: %s", path, err.text);
    c->options = *options;
}
