/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Quotas of namespaces on shares, in cards times percent and in bytes, whatever dialect a pod is
 * written in. Usage is what is allocated to the pods of a namespace, assumed or not, and what its
 * claims have; what a pod uses of a claim counts once, by the claim. Namespaces
 * of a cohort may use unused guaranteed amounts of the others; a namespace within its own
 * guaranteed amount is never blocked by that. */

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "kube/objects/quota_object.h"
#include "scheduler/state/state.h"

/* Where a quota was read: a name is unique among those of a kind. */
enum quota_kind { QUOTA_OF_OURS, QUOTA_OF_KUBERNETES, QUOTA_KINDS };

struct quota;
struct quota_group;

struct quotas {
    struct state *state;
    struct quota *all;                    /* uthash */
    struct quota_group *spaces, *cohorts; /* uthash by name: of what is in `all` */
    bool ungrouped;                       /* to be rebuilt */
    struct place_card least;              /* as of least_ms: on which a pod takes least */
    uint64_t least_ms;
};

void quotas_done(struct quotas *q);

/* ---- watch events ---- */

void quotas_sync_begin(struct quotas *q, enum quota_kind kind);
void quotas_sync_end(struct quotas *q, enum quota_kind kind);
int quotas_seen(struct quotas *q, enum quota_kind kind, const struct quota_object *object);
void quotas_gone(struct quotas *q, enum quota_kind kind, const char *namespace, const char *name);

/* ---- questions ---- */

enum quota_asker { QUOTA_POD, QUOTA_CLAIM };

/* Whether the namespace may use `more` beside what it uses; otherwise why not, in one sentence.
 * `own` (may be NULL) is a part of what it uses that is not to count. */
bool quotas_admit(struct quotas *q, const char *namespace, const struct quota_use *more,
                  const struct quota_use *own, enum quota_asker asker, struct buf *why);

/* The gate; `self` is struct quotas. */
bool quotas_open(void *self, struct state_pod *pod, uint64_t now_ms, struct buf *why);

/* The usage of a pod as a quota counts it: its allocation, or else its request on the card of the
 * cluster on which it takes the least (q->least, which is all zero without cards); without what a
 * claim counts for. */
struct quota_use quotas_use_of(struct quotas *q, const struct state_pod *pod, uint64_t now_ms);

/* The same for the request of one container. */
struct quota_use quotas_least_use(struct quotas *q, const struct container_request *req,
                                  uint64_t now_ms);

/* Calls `each` for every quota, with what its namespace uses. */
void quotas_each(const struct quotas *q,
                 void (*each)(const struct quota_object *object, enum quota_kind kind,
                              const struct quota_usage *used, void *userdata),
                 void *userdata);

/* ---- status ---- */

/* Calls `patch` for up to `max` ElasticGPUQuotas whose status differs from the usage, in turns. */
void quotas_project(struct quotas *q, unsigned max,
                    void (*patch)(const struct quota_object *object, const struct quota_usage *used,
                                  void *userdata),
                    void *userdata);

/* A patch of a status was not written: each is sent again that is not shown. */
void quotas_refused(struct quotas *q);
