/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/text.h"
#include "kube/api/field.h"
#include "scheduler/mig/orders_internal.h"

struct order_pod *order_pod_find(const struct mig_orders *o, const char *uid) {
    struct order_pod *pod;

    HASH_FIND_STR(o->pods, uid, pod);
    return pod;
}

struct order_node *order_node_find(const struct mig_orders *o, const char *name) {
    struct order_node *node;

    HASH_FIND_STR(o->nodes, name, node);
    return node;
}

static struct order_card *card_find(const struct mig_orders *o, const char *name) {
    struct order_card *card;

    HASH_FIND_STR(o->cards, name, card);
    return card;
}

/* ---- the same functions for every kind ---- */

static void pod_done(const struct mig_orders *o, struct order_pod *pod) {
    (void) o;
    mig_pod_done(&pod->o);
}

static void node_done(const struct mig_orders *o, struct order_node *node) {
    (void) o;
    mig_node_done(&node->o);
}

/* Nothing of it is destroyed by order any more. */
static void card_done(const struct mig_orders *o, struct order_card *card) {
    for (uint32_t i = 0; o->world.leave && i < card->next.n; i++)
        o->world.leave(o->world.self, card->key, &card->next.list[i].place, false);
}

#define KIND(one, find)                                                                            \
    static struct order_##one *one##_get(struct mig_orders *o, const char *key) {                  \
        struct order_##one *item = find(o, key);                                                   \
        if (item || strlen(key) >= sizeof(item->key) || !(item = calloc(1, sizeof(*item))))        \
            return item;                                                                           \
        text_copy(item->key, sizeof(item->key), key);                                              \
        HASH_ADD_STR(o->one##s, key, item);                                                        \
        return hash_added_or_freed(item);                                                          \
    }                                                                                              \
    static void one##_drop(struct mig_orders *o, struct order_##one *item) {                       \
        HASH_DEL(o->one##s, item);                                                                 \
        one##_done(o, item);                                                                       \
        free(item);                                                                                \
    }                                                                                              \
    static void one##_gone(struct mig_orders *o, const char *key) {                                \
        struct order_##one *item = find(o, key);                                                   \
        if (item)                                                                                  \
            one##_drop(o, item);                                                                   \
    }                                                                                              \
    static void one##_unlist(struct mig_orders *o) {                                               \
        hash_unlist(o->one##s);                                                                    \
    }                                                                                              \
    static void one##_sweep(struct mig_orders *o) {                                                \
        hash_drop_unlisted(o, o->one##s, one##_drop);                                              \
    }

KIND(pod, order_pod_find)
KIND(node, order_node_find)
KIND(card, card_find)

/* ---- objects ---- */

static int no_memory(struct err *err) {
    return err_set(err, ENOMEM, "out of memory: MIG instances are not ordered");
}

/* One that cannot be read is gone; -ENOENT: it does not matter here. */
#define SEEN(one, key, trouble)                                                                    \
    static int one##_seen(struct mig_orders *o, struct json object, struct err *err) {             \
        const char *id = json_string_or(JSON_PATH(object, "metadata", #key), "");                  \
        struct order_##one *item;                                                                  \
        struct mig_##one seen;                                                                     \
        int r = mig_##one##_read(object, &seen);                                                   \
                                                                                                   \
        if (r < 0) {                                                                               \
            one##_gone(o, id);                                                                     \
            return r == -ENOENT ? 0 : err_set(err, -r, #one " %.80s: " trouble, id);               \
        }                                                                                          \
        item = one##_get(o, seen.key);                                                             \
        if (!item) {                                                                               \
            mig_##one##_done(&seen);                                                               \
            return no_memory(err);                                                                 \
        }                                                                                          \
        mig_##one##_done(&item->o);                                                                \
        item->o = seen;                                                                            \
        item->listed = true;                                                                       \
        return 0;                                                                                  \
    }

SEEN(pod, uid, "bad request of MIG instances")
SEEN(node, name, "it cannot be read")

int mig_orders_want(struct mig_orders *o, const struct mig_pod *claim) {
    struct order_pod *item = order_pod_find(o, claim->uid);

    if (item)
        return 0;
    item = pod_get(o, claim->uid);
    if (!item)
        return -ENOMEM;
    item->o = *claim;
    item->o.unschedulable = true;
    item->o.constraints = strdup(claim->constraints);
    if (!item->o.constraints) {
        pod_drop(o, item);
        return -ENOMEM;
    }
    return 0;
}

void order_drop_served(struct mig_orders *o) {
    struct order_pod *item, *next;

    HASH_ITER(hh, o->pods, item, next)
        if (o->world.waits && !o->world.waits(o->world.self, &item->o))
            pod_drop(o, item);
}

/* What is written replaces what was to be written. */
static void take_order(struct order_card *card, const struct mig_order *order) {
    uint64_t idle[MIG_ORDER_MAX] = {0}, pending[MIG_ORDER_MAX] = {0};

    for (uint32_t i = 0; i < order->n; i++) {
        const struct mig_ordered *old = mig_order_find(&card->next, &order->list[i].place);

        if (!old)
            continue;
        idle[i] = card->idle_since[old - card->next.list];
        pending[i] = card->pending_since[old - card->next.list];
    }
    memcpy(card->idle_since, idle, sizeof(idle));
    memcpy(card->pending_since, pending, sizeof(pending));
    card->order = card->next = *order;
    card->next.mps = false; /* of a time before its MIG mode */
    card->writing_until = 0;
}

static int read_card(struct json object, struct mig_report *report, struct mig_order *order,
                     struct err *err) {
    const char *text =
        json_string_or(JSON_PATH(object, "metadata", "annotations", MIG_ORDER_ANNOTATION), "");
    int r = mig_report_parse(JSON_PATH(object, "status", "mig"), report, err);

    return r < 0 ? r : mig_order_parse(text, strlen(text), order, err);
}

static int card_seen(struct mig_orders *o, struct json object, struct err *err) {
    const char *name = json_string_or(JSON_PATH(object, "metadata", "name"), "");
    const char *version = json_string_or(JSON_PATH(object, "metadata", "resourceVersion"), "");
    struct order_card *card;
    struct mig_report report;
    struct mig_order order;
    int r;

    if (!json_valid(JSON_PATH(object, "status", "mig", "dynamic"))) {
        card_gone(o, name);
        return 0;
    }
    r = read_card(object, &report, &order, err);
    if (r >= 0 && report.shares != o->world.claims) {
        card_gone(o, name);
        return 0;
    }
    card = r < 0 ? NULL : card_get(o, name);
    if (r < 0) {
        card_gone(o, name);
        return err_wrap(err, "GPU object %.80s", name);
    }
    if (!card)
        return no_memory(err);
    card->report = report;
    card->reported_use = 0;
    for (uint32_t i = 0; i < report.card.ninstances; i++)
        card->reported_use |= (uint32_t) report.card.instances[i].in_use << i;
    card->healthy = json_is_string(JSON_PATH(object, "status", "state"), "Healthy");
    card->unknown = json_is_string(JSON_PATH(object, "status", "state"), "Unknown");
    card->listed = true;
    text_copy(card->node, sizeof(card->node),
              json_string_or(JSON_PATH(object, "spec", "nodeName"), ""));
    text_copy(card->version, sizeof(card->version), version);
    /* An older version can be shown while the order is being written. */
    if (card->writing_until == 0 || order.serial >= card->next.serial)
        take_order(card, &order);
    return 0;
}

/* ---- by kind ---- */

static const struct {
    int (*seen)(struct mig_orders *o, struct json object, struct err *err);
    void (*gone)(struct mig_orders *o, const char *key);
    void (*unlist)(struct mig_orders *o);
    void (*sweep)(struct mig_orders *o);
} kinds[MIG_ORDERS_KINDS] = {
    [MIG_ORDERS_PODS] = {pod_seen, pod_gone, pod_unlist, pod_sweep},
    [MIG_ORDERS_NODES] = {node_seen, node_gone, node_unlist, node_sweep},
    [MIG_ORDERS_CARDS] = {card_seen, card_gone, card_unlist, card_sweep},
};

void mig_orders_begin(struct mig_orders *o, enum mig_orders_kind kind) {
    kinds[kind].unlist(o);
}

void mig_orders_end(struct mig_orders *o, enum mig_orders_kind kind) {
    kinds[kind].sweep(o);
}

int mig_orders_seen(struct mig_orders *o, enum mig_orders_kind kind, struct json object,
                    struct err *err) {
    return kinds[kind].seen(o, object, err);
}

void mig_orders_gone(struct mig_orders *o, enum mig_orders_kind kind, const char *key) {
    kinds[kind].gone(o, key);
}

struct mig_orders *mig_orders_new(const struct mig_orders_world *world) {
    struct mig_orders *o = calloc(1, sizeof(*o));

    if (o)
        o->world = *world;
    return o;
}

struct mig_orders *mig_orders_free(struct mig_orders *o) {
    for (size_t i = 0; o && i < MIG_ORDERS_KINDS; i++) {
        kinds[i].unlist(o);
        kinds[i].sweep(o);
    }
    free(o);
    return NULL;
}

void mig_orders_written(struct mig_orders *o, const char *gpu, bool done) {
    struct order_card *card = card_find(o, gpu);

    if (!card || card->writing_until == 0)
        return;
    if (done)
        card->order = card->next;
    else
        take_order(card, &card->order);
}

void mig_orders_stats(const struct mig_orders *o, struct mig_orders_stats *ret) {
    *ret = o->stats;
}
