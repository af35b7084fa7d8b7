/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/mig/orders.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "scheduler/mig/orders_internal.h"

#define WRITING_MS 10000 /* a write and the event that shows it take less */
#define SHUNNED_MS 30000
#define UNDECIDED_MS 60000 /* kube-scheduler places or refuses a pod sooner, or never */
#define REFUSED_MS 1000    /* from a pass in which pods had no room to the next one */

/* ---- what the pods are told ---- */

static void note(const struct mig_orders *o, struct order_pod *pod, bool warning,
                 const char *reason, const char *message) {
    uint64_t said = hash_text(hash_text(HASH_START, reason), message);

    if (pod->said == said)
        return;
    pod->said = said;
    o->world.note(o->world.self, &pod->o, warning, reason, message);
}

static void note_failure(struct mig_orders *o, const struct order_card *card,
                         const struct mig_ordered *of, const char *cause) {
    struct order_pod *pod = of->owner[0] ? order_pod_find(o, of->owner) : NULL;
    char text[MIG_CAUSE_MAX + KUBE_NAME_MAX + 96], name[MIG_PROFILE_NAME_MAX];

    (void) snprintf(text, sizeof(text), "MIG instance %s at %u of GPU %s was not made: %s",
                    mig_name_format(&of->place.name, name), of->place.start, card->key, cause);
    o->stats.failed++;
    if (!pod)
        return;
    pod->failed = true;
    note(o, pod, true, "MIGInstanceNotMade", text);
}

/* ---- what has become of the orders ---- */

static const char *find_failure(const struct order_card *card, const struct mig_place *place) {
    for (uint32_t i = 0; i < card->report.nfailures; i++) {
        const struct mig_failure *f = &card->report.failures[i];

        if (f->place.start == place->start && mig_name_equal(&f->place.name, &place->name))
            return f->cause[0] ? f->cause : "the agent reports no cause";
    }
    return NULL;
}

/* The pod is gone or bound, or its instance went to another pod. */
static bool is_over(const struct mig_orders *o, const struct mig_ordered *of,
                    const struct mig_instance *made) {
    const struct order_pod *pod = order_pod_find(o, of->owner);

    return !pod || pod->o.node[0] || pod->o.deleting || (made && made->in_use);
}

/* The i-th instance of the card's order is there. */
static void count_made(struct mig_orders *o, struct order_card *card, uint32_t i) {
    if (card->pending_since[i] == 0)
        return;
    o->stats.made++;
    prom_observe(&o->stats.time, (o->now_ms - card->pending_since[i]) * 1000000);
    card->pending_since[i] = 0;
}

/* Whether no pod is to wait for what is ordered on the card. An agent that restarts is back soon.
 */
static bool is_lost(const struct mig_orders *o, const struct order_card *card) {
    return !card->healthy &&
           (card->unknown_since == 0 || o->now_ms - card->unknown_since >= UNOBSERVED_MS);
}

/* Returns whether the i-th instance stays in the order. */
static bool settle_one(struct mig_orders *o, struct order_card *card, uint32_t i, bool observed) {
    struct mig_ordered *of = &card->next.list[i];
    const struct mig_instance *made = mig_edit_find(&card->report.card, &of->place);
    const char *cause = observed && !made ? find_failure(card, &of->place) : NULL;
    bool late = order_is_late(o, card), lost = is_lost(o, card);

    if (made)
        count_made(o, card, i);
    if (of->withdrawn && !made && observed)
        return false;
    if (of->withdrawn && made && made->in_use && observed)
        of->withdrawn = false;
    if (cause) {
        note_failure(o, card, of, cause);
        card->shunned_until = o->now_ms + SHUNNED_MS;
        return false;
    }
    if (!made && of->owner[0] && (late || lost)) {
        note_failure(o, card, of, late ? "the agent does not answer" : "the GPU is not healthy");
        card->shunned_until = o->now_ms + SHUNNED_MS;
        of->owner[0] = 0;
    }
    if (of->owner[0] && (is_over(o, of, made) || lost))
        of->owner[0] = 0;
    if (!made && !of->owner[0])
        of->withdrawn = true; /* it may be being made just now */
    return true;
}

static void settle(struct mig_orders *o, struct order_card *card) {
    bool observed = card->report.observed == card->order.serial;
    uint32_t n = 0;

    /* An agent that follows later orders than this one works. */
    if (observed)
        card->unobserved_since = 0;
    else if (card->unobserved_since == 0 || card->report.observed != card->last_observed)
        card->unobserved_since = o->now_ms;
    card->last_observed = card->report.observed;
    if (!card->unknown)
        card->unknown_since = 0;
    else if (card->unknown_since == 0)
        card->unknown_since = o->now_ms;
    for (uint32_t i = 0; i < card->next.n; i++) {
        if (!settle_one(o, card, i, observed))
            continue;
        card->idle_since[n] = card->idle_since[i];
        card->pending_since[n] = card->pending_since[i];
        if (n != i)
            card->next.list[n] = card->next.list[i];
        n++;
    }
    card->next.n = n;
}

/* ---- pods that wait ---- */

/* The node on which instances are ordered or made for the pod and on which it can still be, or
 * NULL. */
static const struct order_node *find_ordered(const struct mig_orders *o,
                                             const struct order_pod *pod) {
    for (const struct order_card *card = pod->ordered ? o->cards : NULL; card; card = card->hh.next)
        for (uint32_t i = 0; i < card->next.n; i++) {
            const struct order_node *node = strcmp(card->next.list[i].owner, pod->key) == 0
                                                ? order_node_find(o, card->node)
                                                : NULL;

            if (node && order_may_be_on(o, pod, node))
                return node;
        }
    return NULL;
}

/* Whether no order is for the pod any more, but on the node `keep` (NULL: on none). */
static bool leave_orders(const struct mig_orders *o, const struct order_pod *pod,
                         const struct order_node *keep) {
    bool left = true;

    for (struct order_card *card = pod->ordered ? o->cards : NULL; card; card = card->hh.next)
        for (uint32_t i = 0; i < card->next.n; i++) {
            struct mig_ordered *of = &card->next.list[i];

            if (strcmp(of->owner, pod->key) != 0 || (keep && strcmp(card->node, keep->key) == 0))
                continue;
            if (!order_is_open(o, card)) {
                left = false;
                continue;
            }
            of->owner[0] = 0;
            if (!mig_edit_find(&card->report.card, &of->place))
                of->withdrawn = true;
        }
    return left;
}

static void add_needs(struct mig_needs *to, const struct order_pod *pod) {
    for (uint32_t i = 0; i < pod->o.needs.n; i++)
        mig_needs_add(to, &pod->o.needs.v[i].profile, pod->o.needs.v[i].count);
}

/* As order_place() on any node. -EAGAIN: the pod has its turn in a later pass. */
static int search(struct mig_orders *o, struct order_pod *pod, struct order_node **ret_node) {
    int r;

    for (uint32_t i = 0; i < o->nrefused; i++)
        if (mig_pod_is_alike(&o->refused[i]->o, &pod->o)) {
            pod->passed_over = 0;
            return o->refused[i]->refusal;
        }
    if (o->nrefused == ORDER_REFUSED_MAX) {
        if (pod->passed_over == 0)
            pod->passed_over = o->now_ms;
        return -EAGAIN;
    }
    pod->passed_over = 0;
    r = order_place(o, pod, NULL, ret_node);
    if (r < 0) {
        pod->refusal = r;
        o->refused[o->nrefused++] = pod;
    }
    return r;
}

/* What is ordered for the pod counts while the pod can be on that node and gets all there that it
 * needs: another pod may have taken an instance, and a write may have failed. As search(); -EBUSY:
 * orders that the pod is to leave are being written. */
static int place(struct mig_orders *o, struct order_pod *pod, struct order_node **ret_node) {
    const struct order_node *ordered = pod->failed ? NULL : find_ordered(o, pod);
    bool left = leave_orders(o, pod, ordered);
    int r;

    if (ordered) {
        r = order_place(o, pod, ordered, ret_node);
        if (r >= 0)
            return r;
        left = leave_orders(o, pod, NULL);
    }
    if (!left)
        return -EBUSY;
    pod->failed = false;
    return search(o, pod, ret_node);
}

static void serve(struct mig_orders *o, struct order_pod *pod) {
    struct order_node *node = NULL;
    char text[KUBE_NAME_MAX + 96];
    int r = place(o, pod, &node);

    /* Other pods do not count on what it can be given now. */
    if (r >= 0)
        add_needs(&node->awaited, pod);
    if (r > 0) {
        (void) snprintf(text, sizeof(text), "its MIG instances are made on node %s", node->key);
        note(o, pod, false, "MIGInstanceOrdered", text);
    } else if (r == -ENOSPC) {
        note(o, pod, true, "MIGNoRoom",
             "no node that it can be on has room for the MIG instances that it requests");
    }
}

static int by_turn(const void *a, const void *b) {
    const struct order_pod *const *x = a, *const *y = b;

    /* One that has not been passed over comes after all that have. */
    if ((*x)->passed_over != (*y)->passed_over)
        return (*x)->passed_over - 1 < (*y)->passed_over - 1 ? -1 : 1;
    if ((*x)->o.created != (*y)->o.created)
        return (*x)->o.created < (*y)->o.created ? -1 : 1;
    return strcmp((*x)->key, (*y)->key);
}

/* First those that former passes had no time for, then the oldest. */
static void serve_all(struct mig_orders *o) {
    _cleanup_free_ struct order_pod **list = calloc(HASH_COUNT(o->pods) + 1U, sizeof(*list));
    size_t n = 0;

    for (struct order_pod *pod = o->pods; list && pod; pod = pod->hh.next)
        if (!pod->o.node[0] && !pod->o.deleting && pod->o.unschedulable)
            list[n++] = pod;
    if (n > 0)
        qsort(list, n, sizeof(struct order_pod *), by_turn);
    o->nrefused = 0;
    for (size_t i = 0; i < n; i++)
        serve(o, list[i]);
}

/* ---- one pass ---- */

/* Whether kube-scheduler may be placing it just now. */
static bool is_undecided(const struct mig_orders *o, struct order_pod *pod) {
    if (pod->o.node[0] || pod->o.deleting || pod->o.unschedulable || pod->o.gated)
        pod->undecided_since = 0;
    else if (pod->undecided_since == 0)
        pod->undecided_since = o->now_ms;
    return pod->undecided_since != 0 && o->now_ms - pod->undecided_since < UNDECIDED_MS;
}

/* What the scheduler has given out of an instance, a container need not use yet. */
static void see_use(const struct mig_orders *o, struct order_card *card) {
    struct mig_card *of = &card->report.card;

    for (uint32_t i = 0; o->world.is_taken && i < of->ninstances; i++) {
        const struct mig_place place = {of->profiles[of->instances[i].profile].name,
                                        of->instances[i].start};

        of->instances[i].in_use =
            (card->reported_use >> i & 1) || o->world.is_taken(o->world.self, card->key, &place);
    }
}

static void begin_pass(struct mig_orders *o) {
    order_drop_served(o);
    o->undecided = (struct mig_needs){0};
    for (struct order_node *node = o->nodes; node; node = node->hh.next) {
        node->used = node->awaited = (struct mig_needs){0};
        node->cards = NULL;
    }
    for (struct order_pod *pod = o->pods; pod; pod = pod->hh.next) {
        struct order_node *node = pod->o.node[0] ? order_node_find(o, pod->o.node) : NULL;

        pod->ordered = false;
        if (node)
            add_needs(&node->used, pod);
        else if (is_undecided(o, pod))
            add_needs(&o->undecided, pod);
    }
    for (struct order_card *card = o->cards; card; card = card->hh.next) {
        struct order_node *node = order_node_find(o, card->node);

        see_use(o, card);
        if (order_is_open(o, card))
            settle(o, card);
        for (uint32_t i = 0; i < card->next.n; i++) {
            struct order_pod *pod = order_pod_find(o, card->next.list[i].owner);

            if (pod)
                pod->ordered = true;
        }
        card->beside = node ? node->cards : NULL;
        if (node)
            node->cards = card;
    }
}

/* What has been idle for long goes, as far as no pod can be on its way to it. */
static void expire(const struct mig_orders *o, struct order_card *card) {
    const struct order_node *node = order_node_find(o, card->node);

    for (uint32_t i = 0; i < card->next.n; i++) {
        struct mig_ordered *of = &card->next.list[i];
        const struct mig_instance *made = mig_edit_find(&card->report.card, &of->place);

        if (!made || made->in_use || of->owner[0] || of->withdrawn)
            card->idle_since[i] = 0;
        else if (card->idle_since[i] == 0)
            card->idle_since[i] = o->now_ms;
        else if (o->now_ms - card->idle_since[i] >= MIG_IDLE_MS && node &&
                 order_idle(o, node, &of->place.name) > 0)
            of->withdrawn = true;
    }
}

/* What is ordered for a pod and is not there. */
static void count_waiting(struct mig_orders *o, struct order_card *card) {
    for (uint32_t i = 0; i < card->next.n; i++) {
        const struct mig_ordered *of = &card->next.list[i];

        if (!of->owner[0]) {
            card->pending_since[i] = 0;
        } else if (!mig_edit_find(&card->report.card, &of->place)) {
            if (card->pending_since[i] == 0)
                card->pending_since[i] = o->now_ms;
            o->stats.waiting++;
        }
    }
}

static void tell_leaving(const struct mig_orders *o, const struct order_card *card) {
    for (uint32_t i = 0; o->world.leave && i < card->next.n; i++)
        o->world.leave(o->world.self, card->key, &card->next.list[i].place,
                       card->next.list[i].withdrawn);
}

/* The same order again is not written. */
static void write_changed(struct mig_orders *o, struct order_card *card) {
    _cleanup_buf_ struct buf old = BUF_INIT(MIG_ORDER_TEXT_MAX), new = BUF_INIT(MIG_ORDER_TEXT_MAX);

    card->next.serial = card->order.serial;
    mig_order_encode(&card->order, &old);
    mig_order_encode(&card->next, &new);
    if (strcmp(buf_str(&old), buf_str(&new)) == 0)
        return;
    card->next.serial++;
    new.len = 0;
    mig_order_encode(&card->next, &new);
    if (buf_error(&new) < 0)
        return;
    card->writing_until = o->now_ms + WRITING_MS;
    o->world.write(o->world.self, o, card->key, card->version, buf_str(&new));
}

void mig_orders_run(struct mig_orders *o, uint64_t now_ms) {
    if (o->nrefused > 0 && now_ms - o->ran_ms < REFUSED_MS)
        return;
    o->now_ms = o->ran_ms = now_ms;
    begin_pass(o);
    serve_all(o);
    o->stats.waiting = 0;
    for (struct order_card *card = o->cards; card; card = card->hh.next) {
        count_waiting(o, card);
        if (order_is_open(o, card)) {
            expire(o, card);
            tell_leaving(o, card);
            write_changed(o, card);
        }
    }
}
