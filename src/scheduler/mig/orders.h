/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* MIG instances on demand, without I/O: pods, nodes and GPU objects in, orders of cards out. A pod
 * that kube-scheduler finds no node for, because no node has the MIG instances that it requests,
 * gets them ordered on one node, and so does a claim of an instance. An instance is ordered at one
 * exact place and for the UID of one pod; the order, an annotation of the card's GPU object, is the
 * only record, so that a restart or another leader makes nothing twice. An instance that its pod
 * needs no more stays for the next pod until its room is needed, or until it has been idle for some
 * time. */

#include <stdbool.h>
#include <stdint.h>

#include "mig/order.h"
#include "scheduler/mig/demand.h"
#include "wire/prom.h"

#define MIG_IDLE_MS 300000 /* an instance that was made by order goes after this time */

struct mig_orders;

/* Pods get instances that kubelet gives out; claims those that aliquot-scheduler gives out, of
 * other cards. Claims are kept like pods that are never bound, by mig_orders_want(). The functions
 * that may be NULL are those of claims. */
struct mig_orders_world {
    void *self;
    bool claims;
    /* Whether the node has CPU and memory left for the pod, or the claim can be made there. */
    bool (*has_room)(void *self, const struct mig_pod *pod, const char *node);
    /* Writes an order on a GPU object, on condition of its version; answered by
     * mig_orders_written(). */
    void (*write)(void *self, struct mig_orders *orders, const char *gpu, const char *version,
                  const char *order);
    void (*note)(void *self, const struct mig_pod *pod, bool warning, const char *reason,
                 const char *message);
    /* Whether the claim still waits. NULL: pods are gone by their events. */
    bool (*waits)(void *self, const struct mig_pod *claim);
    /* Whether something of the instance is given out. NULL: the agent's report tells all. */
    bool (*is_taken)(void *self, const char *gpu, const struct mig_place *place);
    /* Instances of the profile on the node of which nothing is given out. NULL: the Node tells. */
    uint32_t (*count_free)(void *self, const char *node, const struct mig_name *profile);
    /* The instance is to be destroyed (or not any more): nothing of it may be given out. NULL:
     * kubelet gives out no more than there is. */
    void (*leave)(void *self, const char *gpu, const struct mig_place *place, bool leaves);
};

struct mig_orders *mig_orders_new(const struct mig_orders_world *world); /* NULL: out of memory */
struct mig_orders *mig_orders_free(struct mig_orders *o);                /* takes NULL */

/* ---- watch events ---- */

enum mig_orders_kind { MIG_ORDERS_PODS, MIG_ORDERS_NODES, MIG_ORDERS_CARDS, MIG_ORDERS_KINDS };

/* Around a full list: what was not shown in between is gone. */
void mig_orders_begin(struct mig_orders *o, enum mig_orders_kind kind);
void mig_orders_end(struct mig_orders *o, enum mig_orders_kind kind);

/* One object. What has nothing to do with MIG is not kept. -EINVAL: it cannot be read, and is not
 * kept; -ENOMEM. */
int mig_orders_seen(struct mig_orders *o, enum mig_orders_kind kind, struct json object,
                    struct err *err);
/* `key`: the UID of a pod, else the name. */
void mig_orders_gone(struct mig_orders *o, enum mig_orders_kind kind, const char *key);

/* A claim waits, and no instance for it is free: until world.waits says otherwise. `claim` has its
 * names, age, needs, and as `constraints` a text that is equal for claims that may be on the same
 * nodes; its memory stays the caller's. 0 or -ENOMEM. */
int mig_orders_want(struct mig_orders *o, const struct mig_pod *claim);

/* ---- the work ---- */

/* One pass. `now_ms` only goes forward. */
void mig_orders_run(struct mig_orders *o, uint64_t now_ms);

/* The response to a write. */
void mig_orders_written(struct mig_orders *o, const char *gpu, bool done);

/* ---- its figures ---- */

/* Of this replica since it started. */
struct mig_orders_stats {
    uint64_t made, failed;      /* instances that were ordered for a pod or a claim */
    uint32_t waiting;           /* ordered and neither made nor failed, as of the last pass */
    struct prom_histogram time; /* from the order, or from its first reading, to the instance */
};
void mig_orders_stats(const struct mig_orders *o, struct mig_orders_stats *ret);
