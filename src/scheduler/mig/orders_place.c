/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "mig/choose.h"
#include "scheduler/mig/orders_internal.h"

#define CARDS_MAX 64

/* What is ordered for a pod on one node. */
struct attempt {
    uint32_t ncards;
    struct order_card *cards[CARDS_MAX];
    struct mig_card *as_is; /* the same cards, as they are with all orders, and with this attempt */
    uint32_t n;
    struct attempt_one {
        uint32_t card;
        struct mig_place place;
    } made[MIG_ORDER_MAX], removed[MIG_ORDER_MAX * MIG_CARD_INSTANCES_MAX];
    uint32_t nremoved;
    struct mig_needs removable; /* instances that may be destroyed */
    uint64_t harm;
};

/* Instances that kubelet can offer, without those that are ordered for `beside` (NULL: all). */
static uint32_t count_present(const struct order_card *card, const struct mig_name *profile,
                              const char *beside) {
    uint32_t n = 0;

    for (uint32_t i = 0; card->healthy && i < card->report.card.ninstances; i++) {
        const struct mig_instance *gi = &card->report.card.instances[i];
        const struct mig_place place = {card->report.card.profiles[gi->profile].name, gi->start};
        const struct mig_ordered *o = mig_order_get(&card->next, &place);

        n += mig_name_equal(&place.name, profile) && !(o && o->withdrawn) &&
             !(o && beside && strcmp(o->owner, beside) == 0);
    }
    return n;
}

/* kubelet's number can be of a time before an instance was destroyed. */
static uint32_t count_spare(const struct mig_orders *o, const struct order_node *node,
                            const struct mig_name *profile, const char *beside) {
    uint32_t offered = o->world.count_free ? o->world.count_free(o->world.self, node->key, profile)
                                           : mig_needs_get(&node->o.allocatable, profile);
    uint32_t present = 0;
    uint32_t taken = mig_needs_get(&node->used, profile) + mig_needs_get(&node->awaited, profile);

    for (const struct order_card *card = node->cards; card; card = card->beside)
        present += count_present(card, profile, beside);
    if (node->cards && present < offered)
        offered = present;
    return offered > taken ? offered - taken : 0;
}

uint32_t order_idle(const struct mig_orders *o, const struct order_node *node,
                    const struct mig_name *profile) {
    uint32_t spare = count_spare(o, node, profile, NULL),
             coming = mig_needs_get(&o->undecided, profile);

    return spare > coming ? spare - coming : 0;
}

/* What is ordered for the pod on the node, made or not. */
static uint32_t count_own(const struct order_node *node, const struct mig_name *profile,
                          const char *pod) {
    uint32_t n = 0;

    for (const struct order_card *card = node->cards; card; card = card->beside)
        for (uint32_t i = 0; i < card->next.n; i++)
            n += strcmp(card->next.list[i].owner, pod) == 0 &&
                 mig_name_equal(&card->next.list[i].place.name, profile);
    return n;
}

bool order_is_open(const struct mig_orders *o, const struct order_card *card) {
    return card->writing_until == 0 || o->now_ms >= card->writing_until;
}

bool order_is_late(const struct mig_orders *o, const struct order_card *card) {
    return card->unobserved_since && o->now_ms - card->unobserved_since >= UNOBSERVED_MS;
}

/* ---- a card with all its orders ---- */

static void drop_instance(struct mig_card *card, uint32_t i) {
    memmove(&card->instances[i], &card->instances[i + 1],
            (card->ninstances - i - 1) * sizeof(card->instances[0]));
    card->ninstances--;
}

static void add_instance(struct mig_card *card, const struct mig_place *place) {
    const struct mig_card_profile *p = mig_card_find(card, &place->name);

    if (p && card->ninstances < MIG_CARD_INSTANCES_MAX)
        card->instances[card->ninstances++] =
            (struct mig_instance){.profile = (uint32_t) (p - card->profiles),
                                  .start = place->start,
                                  .ncompute = 1,
                                  .compute = {{.slices = place->name.slices}},
                                  .in_use = true};
}

/* All that stays is marked as in use: what may be destroyed is not. That is no more of a profile
 * than is idle on the node: a pod can be bound and not have its instance yet. */
static void project(const struct mig_orders *o, const struct order_card *from,
                    const struct order_node *node, struct mig_needs *removable,
                    struct mig_card *ret) {
    const struct mig_order *order = &from->next;

    *ret = from->report.card;
    for (uint32_t i = ret->ninstances; i > 0; i--) {
        struct mig_instance *gi = &ret->instances[i - 1];
        const struct mig_place place = {ret->profiles[gi->profile].name, gi->start};
        const struct mig_ordered *of =
            mig_edit_find(ret, &place) ? mig_order_get(order, &place) : NULL;

        if (of && of->withdrawn && !gi->in_use) {
            drop_instance(ret, i - 1);
            continue;
        }
        if (!of || of->owner[0] ||
            mig_needs_get(removable, &place.name) >= order_idle(o, node, &place.name))
            gi->in_use = true;
        if (!gi->in_use)
            mig_needs_add(removable, &place.name, 1);
    }
    for (uint32_t i = 0; i < order->n; i++)
        if (!order->list[i].withdrawn && !mig_edit_find(&from->report.card, &order->list[i].place))
            add_instance(ret, &order->list[i].place);
}

static uint32_t removable_bits(const struct mig_card *card) {
    uint32_t bits = 0;

    /* The compiler does not see that there are no more. */
    for (uint32_t i = 0; i < card->ninstances && i < MIG_CARD_INSTANCES_MAX; i++)
        bits |= (uint32_t) !card->instances[i].in_use << i;
    return bits;
}

/* ---- one node ---- */

static void collect_cards(const struct mig_orders *o, const struct order_node *node,
                          struct attempt *a) {
    for (struct order_card *card = node->cards; card && a->ncards < CARDS_MAX;
         card = card->beside) {
        if (!card->healthy || !order_is_open(o, card) || order_is_late(o, card) ||
            o->now_ms < card->shunned_until)
            continue;
        project(o, card, node, &a->removable, &a->as_is[a->ncards]);
        a->cards[a->ncards++] = card;
    }
}

static void take_choice(struct attempt *a, const struct mig_choice *c,
                        const struct mig_name *name) {
    struct mig_card *card = &a->as_is[c->site];
    const struct mig_place place = {*name, c->start};

    for (uint32_t i = card->ninstances; i > 0; i--) {
        const struct mig_instance *gi = &card->instances[i - 1];

        if (!(c->removed >> (i - 1) & 1))
            continue;
        a->removed[a->nremoved++] =
            (struct attempt_one){c->site, {card->profiles[gi->profile].name, gi->start}};
        drop_instance(card, i - 1);
    }
    add_instance(card, &place);
    a->made[a->n++] = (struct attempt_one){c->site, place};
    a->harm += c->harm;
}

static int add_one(struct attempt *a, const struct mig_name *name) {
    struct mig_site sites[CARDS_MAX];
    struct mig_choice choice;
    int r;

    for (uint32_t i = 0; i < a->ncards; i++)
        sites[i] = (struct mig_site){&a->as_is[i], removable_bits(&a->as_is[i])};
    r = mig_choose(sites, a->ncards, name, &choice);
    if (r < 0)
        return r;
    if (a->n == MIG_ORDER_MAX)
        return -ENOSPC;
    take_choice(a, &choice, name);
    return 0;
}

static int attempt_node(const struct mig_orders *o, const struct order_pod *pod,
                        const struct order_node *node, struct attempt *a) {
    int r = 0;

    a->ncards = a->n = a->nremoved = 0;
    a->harm = 0;
    a->removable = (struct mig_needs){0};
    collect_cards(o, node, a);
    for (uint32_t i = 0; i < pod->o.needs.n; i++) {
        const struct mig_need *need = &pod->o.needs.v[i];
        uint32_t have = count_own(node, &need->profile, pod->key) +
                        count_spare(o, node, &need->profile, pod->key);

        for (uint32_t k = have; r >= 0 && k < need->count; k++)
            r = add_one(a, &need->profile);
    }
    return r;
}

static bool is_better(const struct attempt *a, const struct attempt *b) {
    return a->nremoved != b->nremoved ? a->nremoved < b->nremoved : a->harm < b->harm;
}

/* ---- the orders ---- */

static void add_order(struct order_card *card, const struct mig_place *place, const char *uid) {
    struct mig_ordered *o = mig_order_find(&card->next, place);

    /* One that is withdrawn and not gone yet. */
    if (!o) {
        card->idle_since[card->next.n] = card->pending_since[card->next.n] = 0;
        o = &card->next.list[card->next.n++];
    }
    *o = (struct mig_ordered){.place = *place};
    text_copy(o->owner, sizeof(o->owner), uid);
}

/* In the orders of the cards. */
static bool has_space(const struct attempt *a) {
    for (uint32_t k = 0; k < a->ncards; k++) {
        uint32_t n = a->cards[k]->next.n;

        for (uint32_t i = 0; i < a->n; i++)
            n += a->made[i].card == k;
        if (n > MIG_ORDER_MAX)
            return false;
    }
    return true;
}

static void write_orders(const struct attempt *a, const struct order_pod *pod) {
    for (uint32_t i = 0; i < a->nremoved; i++) {
        struct mig_ordered *o =
            mig_order_find(&a->cards[a->removed[i].card]->next, &a->removed[i].place);

        if (o)
            o->withdrawn = true;
    }
    for (uint32_t i = 0; i < a->n; i++)
        add_order(a->cards[a->made[i].card], &a->made[i].place, pod->key);
}

bool order_may_be_on(const struct mig_orders *o, const struct order_pod *pod,
                     const struct order_node *node) {
    return (o->world.claims || mig_pod_may_be_on(&pod->o, &node->o)) &&
           o->world.has_room(o->world.self, &pod->o, node->key);
}

int order_place(struct mig_orders *o, const struct order_pod *pod, const struct order_node *only,
                struct order_node **ret_node) {
    _cleanup_free_ struct mig_card *cards = calloc(2 * (size_t) CARDS_MAX, sizeof(*cards));
    struct attempt now = {.as_is = cards}, best = {.as_is = cards ? cards + CARDS_MAX : NULL};
    struct order_node *found = NULL;
    int why = -ENODEV;

    if (!cards)
        return -ENOMEM;
    for (struct order_node *node = o->nodes; node; node = node->hh.next) {
        int r;

        if ((only && node != only) || !order_may_be_on(o, pod, node))
            continue;
        r = attempt_node(o, pod, node, &now);
        if (r == -ENOSPC || (r == 0 && !has_space(&now)))
            why = -ENOSPC;
        else if (r == 0 && (!found || is_better(&now, &best))) {
            const struct attempt former = best;

            best = now;
            now.as_is = former.as_is;
            found = node;
        }
    }
    if (!found)
        return why;
    write_orders(&best, pod);
    *ret_node = found;
    return best.n > 0;
}
