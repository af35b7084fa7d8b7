/* SPDX-License-Identifier: Apache-2.0 */

/* Orders for cards: annotations of GPU objects and of the Node, and the labels of the GPU operator
 * that announce an upgrade of the driver. Of the levels that hold for a card the highest counts. */

#include <stdio.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/report/publish.h"
#include "base/log.h"
#include "base/step.h"
#include "base/text.h"
#include "gpu/nvml/monitor.h"

#define AWAIT_MS 3000

struct level {
    enum health_order order;
    char origin[HEALTH_ORIGIN_MAX];
};

/* Where a text has no meaning it is no order; the log says so once. */
static enum health_order parse(const char *text) {
    static char refused[sizeof(((struct gpu_orders *) 0)->maintenance)];

    if (strcmp(text, "cordon") == 0)
        return HEALTH_ORDER_CORDON;
    if (strcmp(text, "drain") == 0)
        return HEALTH_ORDER_DRAIN;
    if (strcmp(text, "release") == 0)
        return HEALTH_ORDER_RELEASE;
    if (text[0] && strcmp(refused, text) != 0) {
        text_copy(refused, sizeof(refused), text);
        log_warn("annotation " GPU_MAINTENANCE
                 ": '%s' is not one of cordon, drain and release, and is ignored",
                 text);
    }
    return HEALTH_ORDER_UNCORDON;
}

static void raise_to(struct level *l, enum health_order order, const char *origin) {
    if (order <= l->order)
        return;
    l->order = order;
    text_copy(l->origin, sizeof(l->origin), origin);
}

static void raise_by_node(struct level *l, const struct node_orders *node) {
    static const enum health_order orders[] = {
        [DRIVER_UPGRADE_NONE] = HEALTH_ORDER_UNCORDON,
        [DRIVER_UPGRADE_CORDON] = HEALTH_ORDER_CORDON,
        [DRIVER_UPGRADE_DRAIN] = HEALTH_ORDER_DRAIN,
        [DRIVER_UPGRADE_RELEASE] = HEALTH_ORDER_RELEASE,
    };
    char origin[HEALTH_ORIGIN_MAX];

    raise_to(l, parse(node->orders.maintenance), "by order for the node");
    (void) snprintf(origin, sizeof(origin), "by %.76s", node->upgrade_label);
    raise_to(l, orders[node->upgrade], origin);
}

/* A card without an object, or whose object was not read yet, follows the node's orders, and leaves
 * none that its object may have. */
static bool follow_levels(struct agent *a, const char *uuid, const struct gpu_orders *orders,
                          const struct node_orders *node) {
    struct level level = {.order = HEALTH_ORDER_UNCORDON};

    _Static_assert(HEALTH_ORDER_UNCORDON < HEALTH_ORDER_CORDON &&
                       HEALTH_ORDER_CORDON < HEALTH_ORDER_DRAIN &&
                       HEALTH_ORDER_DRAIN < HEALTH_ORDER_RELEASE,
                   "a higher level is a higher number");
    if (orders)
        raise_to(&level, parse(orders->maintenance), "by order");
    raise_by_node(&level, node);
    return (orders || level.order > HEALTH_ORDER_UNCORDON) &&
           health_cards_maintain(&a->health, uuid, level.order, level.origin);
}

static bool follow(struct agent *a, const struct gpu_device *d, const struct node_orders *node) {
    const struct gpu_orders *orders = publisher_orders(a->report.publisher, d);
    bool changed = false;

    if (d->kind == GPU_CARD)
        changed |= follow_levels(a, d->uuid, orders, node);
    if (d->kind == GPU_CARD && orders)
        changed |= health_cards_order(&a->health, d->uuid, HEALTH_ORDER_RESET, orders->reset);
    if (orders)
        changed |=
            health_cards_order(&a->health, d->uuid, HEALTH_ORDER_SET_HEALTHY, orders->set_healthy);
    return changed;
}

bool card_orders_of(struct agent *a, const struct gpu_device *d) {
    const struct node_orders *node =
        a->report.publisher ? publisher_node_orders(a->report.publisher) : NULL;

    return node && follow(a, d, node);
}

bool card_orders_follow(struct agent *a) {
    const struct gpu_snapshot *s = gpu_monitor_snapshot(a->shares.monitor);
    bool changed = false;

    for (uint32_t i = 0; i < s->ndevices; i++) {
        step_end();
        changed |= card_orders_of(a, &s->devices[i]);
    }
    return changed;
}

void card_orders_await(struct agent *a) {
    if (a->closing || !a->health.awaits_orders || !a->report.publisher)
        return;
    if (!publisher_has_orders(a->report.publisher)) {
        if (uv_now(a->loop) - a->report.started < AWAIT_MS)
            return;
        log_warn("orders for cards have not been read from the API server within %d ms: cards take "
                 "pods meanwhile",
                 AWAIT_MS);
    }
    (void) card_orders_follow(a);
    a->health.awaits_orders = false;
    gpu_monitor_judge(a->shares.monitor);
}
