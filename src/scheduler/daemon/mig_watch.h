/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* MIG instances on demand (scheduler/mig/orders.h) in the daemon: what the watches show goes in,
 * orders and Events come out: mig_orders_run(), on the leader, when all watches are synced. Those
 * for claims: mig_claims.h. */

#include "kube/api/reflector.h"
#include "scheduler/mig/orders.h"

struct scheduler;

/* 0 or -ENOMEM. */
int mig_watch_start(struct scheduler *s);

/* Around a full list. */
void mig_watch_begin(struct scheduler *s, enum mig_orders_kind kind);
void mig_watch_end(struct scheduler *s, enum mig_orders_kind kind);

/* One object of a watch; `key`: the UID of a pod, else the name; NULL: it has none. */
void mig_watch_object(struct scheduler *s, enum mig_orders_kind kind, enum kube_event event,
                      struct json object, const char *key);

/* Of struct mig_orders_world, whose `self` is the scheduler. A write that was not sent ends like
 * one that failed: when its time is over. */
void mig_watch_write(void *self, struct mig_orders *orders, const char *gpu, const char *version,
                     const char *order);
