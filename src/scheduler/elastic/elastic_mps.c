/* SPDX-License-Identifier: Apache-2.0 */

/* MPS on demand: cards that the configuration of their node leaves to claims are put under MPS by
 * order, an annotation of the GPU object (mig/order.h), and given back when the last claim is gone.
 * Every pass derives what is to be so from the claims, the ElasticGPUs and the cards, so that a
 * restart, another leader and a write that failed need no other care. A claim is made of a card
 * only when the card is under MPS, and until then, and until it is not any more, the card is given
 * to nothing else. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/text.h"
#include "kube/objects/gpu_object.h"
#include "mig/order.h"
#include "place/amounts.h"
#include "scheduler/elastic/elastic_internal.h"

#define TIMEOUT_MS 10000
#define WRITING_MS 10000 /* a write and the event that shows it take less */
#define UNUSED_MS 60000  /* the daemon starts and the claim is made sooner, or never */
#define SHUNNED_MS 60000
/* For so many claims a card is searched in one pass, in turns. */
#define CLAIMS_MAX 256

/* ---- what the watch shows ---- */

void elastic_gpu(struct elastic *e, struct json object) {
    const char *name = json_string_or(JSON_PATH(object, "metadata", "name"), "");
    const char *text =
        json_string_or(JSON_PATH(object, "metadata", "annotations", MIG_ORDER_ANNOTATION), "");
    const char *reason = json_string_or(JSON_PATH(object, "status", "reason"), "");
    struct mig_order order;
    struct state_card *card;
    bool malformed = mig_order_parse(text, strlen(text), &order, NULL) < 0;

    HASH_FIND_STR(e->state->cards, name, card);
    if (!card)
        return;
    /* The agent goes on with what it had read before. */
    if (malformed)
        order = (struct mig_order){.serial = card->order.serial,
                                   .mps = card->mps_on_demand && card->under_mps};
    text_copy(card->order.version, sizeof(card->order.version),
              json_string_or(JSON_PATH(object, "metadata", "resourceVersion"), ""));
    card->order.malformed = malformed;
    card->order.serial = order.serial;
    card->order.ill = !card->healthy && !card->unknown && strncmp(reason, "MPS", 3) != 0;
    /* An older version can be shown while the order is being written. */
    if (!malformed && order.mps == card->order.wanted)
        card->order.writing_until = 0;
    state_card_order(card, order.mps, card->order.writing_until ? card->order.wanted : order.mps);
}

/* ---- the cards ---- */

/* A card that is or can be under MPS, in one pass. */
struct site {
    struct state_card *card;
    const struct place_card *place;
    bool claimed; /* an ElasticGPU under MPS is on it */
    bool wanted;  /* a claim waits for it */
    bool late;    /* it is not under MPS, or not used, for too long */
};

struct pass {
    struct elastic *elastic;
    uint64_t now;
    struct site *sites; /* those that a claim can wait for are the first */
    size_t n, nawaitable;
    unsigned claims; /* that wait, so far */
};

static bool concerns_mps(const struct state_card *card) {
    return card->mps_on_demand || card->under_mps || card->order.ordered || card->order.wanted;
}

static size_t list_sites(const struct state *s, struct site *ret) {
    size_t n = 0;

    for (const struct state_node *node = s->nodes; node; node = node->hh.next)
        for (uint32_t c = 0; c < node->ncards; c++) {
            if (!concerns_mps(node->cards[c]))
                continue;
            if (ret)
                ret[n] = (struct site){.card = node->cards[c], .place = &node->place[c]};
            n++;
        }
    return n;
}

static struct site *find_site(const struct pass *p, const struct state_card *card) {
    for (size_t i = 0; i < p->n; i++)
        if (p->sites[i].card == card)
            return &p->sites[i];
    return NULL;
}

static void mark_claimed(const struct egpu *egpu, void *userdata) {
    struct pass *p = userdata;

    if (!elastic_is_of_mps(egpu))
        return;
    for (uint32_t i = 0; i < egpu->ncards; i++) {
        const struct state_card *card = elastic_card_find(p->elastic->state, egpu->cards[i]);
        struct site *site = card ? find_site(p, card) : NULL;

        if (site)
            site->claimed = true;
    }
}

static bool is_idle(const struct site *site) {
    return place_card_is_idle(site->place) && site->place->free.slots == SLOTS_PER_CARD;
}

/* A card whose order no claim has used for too long does not come to be under MPS, or the claim
 * that waits cannot be made for a reason that is not known here. */
static void review_order(struct pass *p, struct site *site) {
    struct state_order *o = &site->card->order;

    if (!o->wanted || site->claimed)
        o->since = 0;
    else if (o->since == 0)
        o->since = p->now;
    site->late = o->since && p->now - o->since >= UNUSED_MS;
    if (site->late)
        o->shunned_until = p->now + SHUNNED_MS;
}

/* ---- the claims ---- */

static void note(struct elastic *e, const struct egpu_claim *claim, bool warning,
                 const char *reason, const char *message) {
    elastic_note_claim(e, (struct claims_note){.namespace = claim->meta.namespace,
                                               .name = claim->meta.name,
                                               .uid = claim->meta.uid,
                                               .warning = warning,
                                               .reason = reason,
                                               .message = message});
}

struct pod_search {
    struct state *state;
    bool found;
};

static bool find_unplaced(const char *uid, const char *name, void *userdata) {
    struct pod_search *search = userdata;
    const struct state_pod *pod = state_pod_find(search->state, uid);

    (void) name;
    search->found = pod && pod->stage < POD_BOUND;
    return !search->found;
}

/* A claim that is made for its first pod waits for a card as soon as such a pod waits. One that the
 * quotas of its namespace do not let be made waits for no card. */
static bool waits(struct pass *p, const struct egpu_claim *claim) {
    const struct egpu_class *class = claims_class_of(p->elastic->claims, claim);
    struct pod_search search = {.state = p->elastic->state};

    if (elastic_admit(p->elastic, claim, &claim->request, NULL) < 0)
        return false;
    if (!class->wait_consumer || claim->selected_node[0])
        return true;
    claims_users(p->elastic->claims, claim, find_unplaced, &search);
    return search.found;
}

/* Whether the claim has room on the card; if all of that were free. */
static bool fits(const struct site *site, const struct egpu_claim *claim, bool all) {
    const struct place_amount taken = elastic_grant(&claim->request, site->card).taken;
    const struct place_amount card = place_amount_of(site->place);

    return amount_fits(&taken, all ? &card : &site->place->free);
}

/* Whether claims can wait for the card, whose order is not followed or not used yet. */
static bool is_awaitable(const struct site *site) {
    const struct state_order *o = &site->card->order;

    return o->wanted && !site->claimed && !site->late && !o->ill;
}

static void put_awaitable_first(struct pass *p) {
    for (size_t i = 0; i < p->n; i++) {
        const struct site site = p->sites[i];

        if (!is_awaitable(&site))
            continue;
        p->sites[i] = p->sites[p->nawaitable];
        p->sites[p->nawaitable++] = site;
    }
}

static bool can_be_ordered(const struct pass *p, const struct site *site,
                           const struct egpu_claim *claim) {
    const struct state_card *card = site->card;

    return card->mps_on_demand && !state_card_is_for_mps(card) && site->place->healthy &&
           is_idle(site) && !card->order.writing_until && p->now >= card->order.shunned_until &&
           fits(site, claim, false);
}

/* The smallest that is large enough, so that others stay for what needs them. */
static bool is_better(const struct site *a, const struct site *b) {
    if (a->place->memory != b->place->memory)
        return a->place->memory < b->place->memory;
    return strcmp(a->card->name, b->card->name) < 0;
}

static void order_for(const struct pass *p, struct site *site, const struct egpu_claim *claim) {
    char text[2 * KUBE_NAME_MAX + 64];

    site->wanted = true;
    (void) snprintf(text, sizeof(text), "GPU %s of node %s is put under MPS for it",
                    site->card->name, site->card->node->name);
    note(p->elastic, claim, false, "MPSOrdered", text);
}

static void note_late(const struct pass *p, const struct site *site,
                      const struct egpu_claim *claim) {
    char text[KUBE_NAME_MAX + 128];

    (void) snprintf(text, sizeof(text),
                    "GPU %s was put under MPS for it and could not be used within %d s (kubectl "
                    "get gpu says why it is not ready)",
                    site->card->name, UNUSED_MS / 1000);
    note(p->elastic, claim, true, "MPSNotStarted", text);
}

static bool has_turn(struct pass *p) {
    unsigned number = p->claims++;

    return number >= p->elastic->mps_turn && number - p->elastic->mps_turn < CLAIMS_MAX;
}

static void end_turn(const struct pass *p) {
    unsigned next = p->elastic->mps_turn + CLAIMS_MAX;

    p->elastic->mps_turn = next < p->claims ? next : 0;
}

/* Returns whether the claim is to be tried now. One whose turn it is not keeps the card that was
 * ordered for it. */
static bool serve(const struct egpu_claim *claim, void *userdata) {
    struct pass *p = userdata;
    struct site *best = NULL, *awaited = NULL;
    size_t n;

    if (!elastic_is_under_mps(p->elastic, claim) || !waits(p, claim))
        return false;
    n = has_turn(p) ? p->n : p->nawaitable;
    for (size_t i = 0; i < n; i++) {
        struct site *site = &p->sites[i];

        if (!elastic_may_be_on(p->elastic, claim, site->card->node))
            continue;
        if (site->late)
            note_late(p, site, claim);
        if (is_awaitable(site) && fits(site, claim, true))
            awaited = site;
        else if (state_card_takes_mps(site->card) && site->place->healthy &&
                 fits(site, claim, false))
            return false; /* by itself */
        else if (can_be_ordered(p, site, claim) && (!best || is_better(site, best)))
            best = site;
    }
    if (awaited)
        awaited->wanted = true;
    else if (best)
        order_for(p, best, claim);
    return awaited && awaited->place->healthy && state_card_takes_mps(awaited->card);
}

/* ---- the orders ---- */

struct writing {
    struct elastic *elastic;
    char gpu[KUBE_NAME_MAX];
};

/* A request without an answer may have been carried out: the watch shows it in time. */
static void on_written(const struct kube_response *response, void *userdata) {
    _cleanup_free_ struct writing *writing = userdata;
    struct elastic *e = writing->elastic;
    struct state_card *card;

    if (response->status < 400)
        return;
    log_info("GPU object %s: the order of MPS was not written: %.200s", writing->gpu,
             response->text);
    HASH_FIND_STR(e->state->cards, writing->gpu, card);
    if (card)
        card->order.writing_until = 0;
    e->changed(e->userdata);
}

static void write_order(struct elastic *e, const struct state_card *card) {
    _cleanup_free_ struct writing *writing = calloc(1, sizeof(*writing));
    _cleanup_buf_ struct buf text = BUF_INIT(MIG_ORDER_TEXT_MAX), body = BUF_INIT(1024);
    const struct mig_order order = {.serial = card->order.serial + 1, .mps = card->order.wanted};
    char path[KUBE_NAME_MAX + 64];

    mig_order_encode(&order, &text);
    mig_order_patch(card->order.version, buf_str(&text), &body);
    (void) snprintf(path, sizeof(path), GPU_OBJECTS_PATH "/%s", card->name);
    if (!writing || buf_error(&body) < 0)
        return;
    writing->elastic = e;
    text_copy(writing->gpu, sizeof(writing->gpu), card->name);
    log_info("GPU object %s: the card is %s MPS", card->name, order.mps ? "put under" : "to leave");
    if (e->api.request(e->api.context, "PATCH", path, KUBE_MERGE_PATCH, body.data, body.len,
                       TIMEOUT_MS, on_written, writing, NULL) == 0)
        (void) take_ptr(writing);
}

static void settle(const struct pass *p, struct site *site) {
    struct state_card *card = site->card;
    bool may = card->mps_on_demand || card->order.ordered;

    if (p->now < card->order.writing_until)
        return;
    card->order.writing_until = 0; /* a write that the watch has not shown by now was lost */
    state_card_order(card, card->order.ordered, may && (site->wanted || site->claimed));
    if (card->order.wanted == card->order.ordered && !(may && card->order.malformed))
        return;
    card->order.writing_until = p->now + WRITING_MS;
    write_order(p->elastic, card);
}

void elastic_mps_run(struct elastic *e, uint64_t now) {
    struct pass p = {.elastic = e, .now = now, .n = list_sites(e->state, NULL)};
    _cleanup_free_ struct site *sites = NULL;

    if (p.n == 0)
        return;
    sites = calloc(p.n, sizeof(*sites));
    if (!sites)
        return;
    state_refresh_all(e->state);
    p.sites = sites;
    (void) list_sites(e->state, sites);
    claims_each_egpu(e->claims, mark_claimed, &p);
    for (size_t i = 0; i < p.n; i++)
        review_order(&p, &sites[i]);
    put_awaitable_first(&p);
    claims_each_unmade(e->claims, serve, &p);
    end_turn(&p);
    for (size_t i = 0; i < p.n; i++)
        settle(&p, &sites[i]);
}
