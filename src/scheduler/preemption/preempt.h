/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Victims for a pod of higher priority: place/victims.h over the state, and the extender's preempt
 * verb, which kube-scheduler calls when its own victims could resolve a shortage that it sees (e.g.
 * of CPU). Disruption budgets come from a watch. */

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "kube/objects/budget.h"
#include "place/victims.h"
#include "scheduler/extender/gate.h"
#include "scheduler/state/state.h"

struct json_parser;
struct preempt_budget;

/* Tests of one request, see victims_choose(): some tens of milliseconds at most. */
#define PREEMPT_TESTS 10000

/* How one node gets room for a pod. */
struct evict_plan {
    struct state_node *node; /* NULL: there is no such plan, and nothing else is set */
    uint32_t nvictims;       /* 0: it is enough to wait for the pods that are being deleted */
    struct state_pod *victims[VICTIMS_HOLDERS_MAX]; /* the most important one first */
    struct victims_cost cost;
    uint32_t ndevices;
    struct assigned_device devices[PLACE_CARDS_MAX]; /* the pod's share of each card then */
};

struct preempt {
    struct state *state;
    bool (*ready)(void *userdata); /* whether the state is complete */
    void *userdata;
    const struct gates *gates; /* may be NULL */
    struct json_parser *parser;
    struct preempt_budget *budgets;
    struct gpu_request request; /* scratch of one call, from here on */
    struct place_plan plan;
    struct state_pod *holders[VICTIMS_HOLDERS_MAX];
    struct victims_holder described[VICTIMS_HOLDERS_MAX];
    struct victims_amount *amounts;
    size_t amounts_size;
    struct state_pod *given[VICTIMS_HOLDERS_MAX];
    uint32_t ngiven;
};

/* 0 or -ENOMEM; `state`, `ready` and `userdata` are given. */
int preempt_init(struct preempt *p);
void preempt_done(struct preempt *p);

/* ---- budgets, as the watch shows them ---- */

/* Around a full list: what was not shown in between is gone. */
void preempt_budgets_begin(struct preempt *p);
void preempt_budgets_end(struct preempt *p);
int preempt_budget_seen(struct preempt *p, struct budget *budget); /* takes it over; 0 or -ENOMEM */
void preempt_budget_gone(struct preempt *p, const char *namespace, const char *name);

/* ---- questions ---- */

/* Whether the pod may push others aside at all. */
bool preempt_may(const struct state_pod *pod);

/* The cheapest victims on the node for the pod that p->plan was made for (state_plan()). Pods that
 * are being deleted count as gone. No budget is violated, and pods whose eviction was refused
 * recently are excluded. `tests` bounds the work over many calls, see victims_choose(). */
struct evict_plan preempt_on_node(struct preempt *p, const struct state_pod *pod,
                                  struct state_node *node, uint64_t now_ms, uint32_t *tests);

/* The fewest pods whose end lets the pod that p->plan was made for fit on the node, whatever their
 * priorities and budgets: nothing is evicted. The plan's `cost` says nothing. */
struct evict_plan preempt_would_have_to_end(struct preempt *p, const struct state_pod *pod,
                                            struct state_node *node, uint32_t *tests);

/* Whether a budget counts the pod, so that the API server may refuse to evict it. */
bool preempt_is_guarded(const struct preempt *p, const struct state_pod *pod);

/* Answers ExtenderPreemptionArgs with ExtenderPreemptionResult: adds to each node the victims that
 * its GPUs require, and omits nodes where no victims suffice. Negative: no response, `out` has the
 * reason. */
int preempt_verb(struct preempt *p, const char *body, size_t len, uint64_t now_ms, struct buf *out);
