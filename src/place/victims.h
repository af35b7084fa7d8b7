/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Whom to take off a node so that a pod of higher priority fits there. Pure, as place.h. */

#include <stdbool.h>
#include <stdint.h>

#include "place/place.h"

#define VICTIMS_HOLDERS_MAX 512
#define VICTIMS_BUDGETS_MAX 64

/* What a pod holds of one card. */
struct victims_amount {
    uint32_t card;
    struct place_amount amount;
};

struct victims_holder {
    int32_t priority; /* of several pods that go together the highest */
    uint64_t more;    /* victims_rank() of the others of them */
    int64_t since;    /* start, in any unit; of equal priorities the later one is a victim */
    uint64_t budgets; /* bit i: budget i counts it */
    bool goes;        /* being deleted, or a victim of kube-scheduler: costs nothing */
    bool stays;       /* may not be taken, whatever its priority */
    const struct victims_amount *amounts;
    uint32_t namounts;
};

struct victims_case {
    const struct place_policy *policy;
    const struct place_node *node; /* what is free if none of the holders were there */
    const struct victims_holder *holders;
    uint32_t nholders;     /* at most VICTIMS_HOLDERS_MAX */
    int32_t priority;      /* of the preemptor: only holders of lower priority are victims */
    const int32_t *budget; /* how many more each budget allows; NULL: there are none */
    uint32_t nbudgets;     /* at most VICTIMS_BUDGETS_MAX */
    bool may_violate;      /* budgets may be broken where nothing else helps */
};

/* What a pod of that priority adds to the sum of a cost: never nothing. */
static inline uint64_t victims_rank(int32_t priority) {
    return (uint64_t) ((int64_t) priority - INT32_MIN + 1);
}

/* In the order of weight. */
struct victims_cost {
    int32_t highest;     /* priority among them; INT32_MIN: there are none */
    uint32_t violations; /* of budgets */
    uint64_t sum;        /* of priorities, counted from below the lowest: fewer are less */
    int64_t gain;        /* the score of the placement: more is better */
    int64_t since;       /* of the oldest one: later is better */
};

/* Less than 0: `a` is the cheaper one. */
int victims_compare(const struct victims_cost *a, const struct victims_cost *b);

struct victims_choice {
    uint32_t n;                            /* 0: it fits as soon as those that go have gone */
    uint16_t victims[VICTIMS_HOLDERS_MAX]; /* indexes of holders, the most important one first */
    struct victims_cost cost;
    struct place_result result; /* where the pod goes then */
};

/* Finds the cheapest set of victims whose removal lets the pod fit: the optimum where a card has
 * few candidates, else a minimal set (no victim can be spared). `tests` bounds the work over many
 * calls: each test of the placement uses one or more; at 0 the best set so far is the result.
 * False: no allowed set suffices. */
bool victims_choose(const struct victims_case *of, struct place_plan *plan, uint32_t *tests,
                    struct victims_choice *ret);
