/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Inside the directory: what is kept. orders_objects.c keeps it, orders_place.c finds places for a
 * pod, orders.c makes the passes. */

#include "base/hash.h"
#include "scheduler/mig/orders.h"

/* Searches of all nodes in vain in one pass: each takes milliseconds. */
#define ORDER_REFUSED_MAX 8
#define UNOBSERVED_MS 60000 /* an agent that has not carried an order out by then does not */

struct order_node {
    UT_hash_handle hh;
    char key[KUBE_NAME_MAX];
    bool listed;
    struct mig_node o;
    /* Of this pass: */
    struct mig_needs used;    /* by the pods that are bound to it */
    struct mig_needs awaited; /* by pods that kube-scheduler can place now */
    struct order_card *cards; /* linked by `beside` */
};

struct order_pod {
    UT_hash_handle hh;
    char key[KUBE_UID_MAX];
    bool listed;
    struct mig_pod o;
    bool failed;          /* an instance of it was not made: the others are not for it any more */
    int refusal;          /* of order_place(), for pods with equal requests */
    bool ordered;         /* of this pass: there is an order for it */
    uint64_t said;        /* hash of the message that it was told last */
    uint64_t passed_over; /* the first pass that had no time for it; 0: the last one had */
    uint64_t undecided_since; /* kube-scheduler has neither placed nor refused it; 0: it has */
};

struct order_card {
    UT_hash_handle hh;
    char key[KUBE_NAME_MAX];
    bool listed;
    char node[KUBE_NAME_MAX];
    char version[32];
    bool healthy;
    bool unknown; /* nothing reports its health: the agent is gone, maybe to restart */
    struct mig_report report;
    uint32_t reported_use;                 /* instances of `report` that it says are in use */
    struct mig_order order;                /* as the API server has it */
    struct mig_order next;                 /* as it is to be */
    uint64_t idle_since[MIG_ORDER_MAX];    /* by the instances of `next`; 0: not idle */
    uint64_t pending_since[MIG_ORDER_MAX]; /* the same; 0: it is made, or for no pod */
    uint64_t unobserved_since;             /* the agent has not carried the order out; 0: it has */
    uint64_t last_observed;                /* serial that the agent had carried out before */
    uint64_t unknown_since;                /* 0: it is not */
    uint64_t shunned_until;                /* something failed on it: no new orders */
    uint64_t writing_until;                /* `next` is being written */
    struct order_card *beside;             /* of this pass: another one of the node */
};

struct mig_orders {
    struct mig_orders_world world;
    struct order_pod *pods;
    struct order_node *nodes;
    struct order_card *cards;
    uint64_t now_ms;
    uint64_t ran_ms; /* the last pass */
    /* Of the last pass: */
    struct mig_needs undecided; /* by pods that kube-scheduler may be placing just now */
    uint32_t nrefused;
    const struct order_pod *refused[ORDER_REFUSED_MAX]; /* for which no node has room */
    struct mig_orders_stats stats;
};

struct order_pod *order_pod_find(const struct mig_orders *o, const char *uid);
struct order_node *order_node_find(const struct mig_orders *o, const char *name);

/* Forgets claims that wait no more. */
void order_drop_served(struct mig_orders *o);

/* Instances of the profile that are on the node, that can be given to a further pod, and that no
 * pod can be on its way to: how many of them may be destroyed. */
uint32_t order_idle(const struct mig_orders *o, const struct order_node *node,
                    const struct mig_name *profile);

/* Whether it is written, and may be changed. */
bool order_is_open(const struct mig_orders *o, const struct order_card *card);

/* Whether its agent has not carried the order out for too long. */
bool order_is_late(const struct mig_orders *o, const struct order_card *card);

/* Whether the constraints of the pod and the CPU and memory that are left let it be there. */
bool order_may_be_on(const struct mig_orders *o, const struct order_pod *pod,
                     const struct order_node *node);

/* Orders on a node what the pod lacks there beside what is ordered for it already, on the node
 * where that destroys the fewest instances and costs least; on the node `only` if it is not NULL.
 * 1: ordered; 0: the node, *ret_node, has all that it needs; -ENOSPC: there is no room on any node;
 * -ENODEV: no card that can be divided by order has such profiles; -ENOMEM. */
int order_place(struct mig_orders *o, const struct order_pod *pod, const struct order_node *only,
                struct order_node **ret_node);
