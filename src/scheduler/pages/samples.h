/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The figures of one scrape of the scheduler, without names of metrics: sums over the cluster or
 * over a namespace, never of one pod. metrics.def has the names. Memory is in bytes, time in
 * nanoseconds. */

#include <stdbool.h>
#include <stdint.h>

#include "scheduler/daemon/scheduler.h"
#include "scheduler/mig/orders.h"
#include "wire/metrics.h"

/* SET(id, of, sample): the samples of one kind are struct sample_sample, one for each `of`. */
#define SCHEDULER_SETS(SET)                                                                        \
    SET(verb, "verb of kube-scheduler's requests", verb)                                           \
    SET(outcome, "verb and outcome", outcome)                                                      \
    SET(stage, "stage of a pod on its way to a node", stage)                                       \
    SET(gpus, "state of GPUs", gpus)                                                               \
    SET(mig_order, "result of an order", mig_order)                                                \
    SET(change, "change of the Lease", change)                                                     \
    SET(waiting, "namespace, and reason for which pods of it wait", tally)                         \
    SET(claim_write, "result of an allocation", claim_write)                                       \
    SET(claims, "namespace, and reason for which claims of it wait", tally)                        \
    SET(shares, "namespace, and dialect in which pods of it request", tally)                       \
    SET(quota, "resource of a quota", quota)                                                       \
    SET(scheduler, "replica of the scheduler", scheduler)

enum scheduler_set { SCHEDULER_SETS(METRIC_SET_ID) SCHEDULER_SETS_COUNT };

SCHEDULER_SETS(METRIC_SET_TYPE)

struct verb_sample {
    const char *verb;
    struct prom_histogram latency;
};

struct outcome_sample {
    const char *verb, *outcome;
    uint64_t count;
};

struct stage_sample {
    const char *stage;
    uint64_t pods;
};

struct gpus_sample {
    const char *state;
    uint64_t count;
};

struct mig_order_sample {
    const char *result;
    uint64_t count;
};

struct claim_write_sample {
    const char *result;
    uint64_t count;
};

struct change_sample {
    const char *change;
    uint64_t count;
};

struct tally_sample {
    const char *namespace, *word; /* by these */
    uint64_t count, core, memory;
};

/* In the unit of the resource. */
struct quota_sample {
    char namespace[KUBE_LABEL_MAX], name[KUBE_NAME_MAX];
    const char *kind, *resource;
    uint64_t used, claims, guaranteed, max, borrowed;
};

struct scheduler_sample {
    bool ready, acts;
    struct prom_histogram waits;
    uint64_t free_cards, largest_memory;
    uint32_t largest_core, absent_nodes;
    double wanted_cards;
    uint64_t overcommitted, memory_free;
    uint32_t preemptors;
    uint64_t evictions, evictions_refused;
    uint64_t bind_conflicts, bind_doubts, forged;
    uint64_t events_written, events_failed, events_dropped;
    uint64_t gpu_patches, gpu_patches_failed, wakes, objects_refused;
    uint32_t mig_waiting;
    struct prom_histogram mig_time;
    double skew; /* see version_skew.h */
    uint64_t stands_back;
};

struct scheduler_samples {
    struct metric_samples sets[SCHEDULER_SETS_COUNT]; /* of the members below */
    struct verb_sample verbs[VERBS];
    struct outcome_sample outcomes[2 * VERBS];
    struct stage_sample stages[POD_STAGES];
    struct gpus_sample gpus[2];
    struct mig_order_sample mig_orders[2];
    struct change_sample changes[2];
    struct claim_write_sample claim_writes[3];
    struct tally_sample *waiting, *shares, *claims;
    struct quota_sample *quotas;
    struct scheduler_sample scheduler;
};

/* Reads everything once. What a replica does not know is unknown in the samples, or is in none of
 * them: figures of the cluster before it has read the cluster, and reasons while it does not lead.
 * The samples point to constants and to names in the state. 0 or -ENOMEM; free in any case with
 * scheduler_samples_done(). */
int scheduler_samples_collect(struct scheduler *s, struct scheduler_samples *ret);
void scheduler_samples_done(struct scheduler_samples *samples);
