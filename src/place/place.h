/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Placement: which cards of a node a pod gets, or why it gets none. No I/O, no clock, no
 * allocation; equal inputs give equal answers. Not thread-safe with a plan that has a model, which
 * keeps a cache (workload_model.h).
 *
 *     struct place_plan plan;
 *     place_prepare(&request, &plan);                        once per pod
 *     reason = place_on_node(&place_binpack, &plan, &node, &result);   once per node
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "model/dialect.h"
#include "model/selection.h"

#define PLACE_CARDS_MAX 64

/* An amount of one card: allocated, or free. */
struct place_amount {
    uint64_t memory; /* bytes */
    uint32_t core;   /* percent */
    uint32_t slots;  /* see SLOTS_PER_CARD */
};

/* Which containers get their exclusive CPUs on the NUMA node of a card: those that have more than
 * `above` and at most `upto`. */
struct place_cpus {
    bool known; /* false: all do, as far as is known */
    uint32_t above, upto;
};

struct place_card {
    uint64_t memory; /* bytes: the capacity that the node offers */
    struct place_amount free;
    bool healthy;      /* others are no candidates */
    bool whole_only;   /* no candidate for shares */
    bool mps_only;     /* under MPS for claims: a candidate for requests with `takes_mps` only */
    uint64_t physical; /* bytes of the card; less than `memory` under oversubscription */
    uint32_t tflops;   /* FP16 TFLOPS of the whole card; 0: not known */
    uint32_t core;     /* of a MIG instance: percent of its card that it has; 0: a whole card */
    struct card_replicas replicas;
    struct place_cpus cpus;
};

struct place_topology;

/* Compute of the card or instance, in percent of a card. */
static inline uint32_t place_card_core(const struct place_card *card) {
    return card->core > 0 ? card->core : CORE_PER_CARD;
}

/* All of a card of which nothing is allocated. */
static inline struct place_amount place_amount_of_card(uint64_t memory) {
    return (struct place_amount){memory, CORE_PER_CARD, SLOTS_PER_CARD};
}

/* The same of a card or an instance. */
static inline struct place_amount place_amount_of(const struct place_card *card) {
    return (struct place_amount){card->memory, place_card_core(card), SLOTS_PER_CARD};
}

/* Takes the amount of what is free, or all that is free where that is less: false then. */
bool place_amount_take(struct place_amount *free, const struct place_amount *amount);

/* Whether nothing of the card is allocated; slots do not count. */
static inline bool place_card_is_idle(const struct place_card *card) {
    return card->free.core == place_card_core(card) && card->free.memory == card->memory;
}

/* Capacity of a card that is reserved for some containers together. They use it up before they take
 * free capacity. */
struct place_draw {
    uint32_t containers; /* bit i: container i of the request */
    uint32_t card;
    struct place_amount amount;
};

struct place_node {
    const struct place_card *cards; /* at most PLACE_CARDS_MAX, in the order of their indexes */
    uint32_t ncards;
    uint32_t rank;           /* place in a fixed order of all nodes, which decides between equals */
    const uint64_t *allowed; /* by container: bit i: may take cards[i]; NULL: all */
    const struct place_draw *draws; /* a container is in one draw of a card at most */
    uint32_t ndraws;
    /* Room for the rest of a pod: milli-CPU and bytes. kube-scheduler sees to it; here it is only
     * for policies. 0 of 0: not known. */
    uint64_t cpu_free, cpu;
    uint64_t memory_free, memory;
    uint32_t model;                        /* dense id of the first card's model; 0: not known */
    const struct place_topology *topology; /* NULL: not known */
};

enum place_reason {
    PLACE_OK,
    PLACE_NO_GPU, /* the node has no card */
    PLACE_NONE_HEALTHY,
    PLACE_TOO_LARGE,  /* no card has that much memory at all */
    PLACE_TOO_FEW,    /* the node has fewer cards than asked */
    PLACE_NO_WHOLE,   /* too few idle cards */
    PLACE_ONLY_WHOLE, /* all healthy cards are given out whole only */
    PLACE_NO_MEMORY,
    PLACE_NO_CORE,
    PLACE_NO_SLOT,
    PLACE_NO_BOTH,      /* memory on one card, compute on another */
    PLACE_NOT_TOGETHER, /* each container fits, all at once do not */
    PLACE_ELSEWHERE,    /* by the caller: the pod is on its way to another node */
    PLACE_NOT_LINKED,   /* no set of cards has the links or the NUMA node that the pod requests */
    PLACE_WRONG_GPU,    /* by the caller: none that the pod may take by its selection */
    PLACE_NO_TFLOPS,    /* compute requested in TFLOPS, and those of these cards are not known */
    PLACE_TOO_SLOW,     /* no card has that many TFLOPS at all */
    PLACE_RESERVED,     /* by the caller: what is kept for the pod is elsewhere */
    PLACE_CLAIMED,      /* by the caller: the pod's claim is elsewhere, or may not be here */
    PLACE_NO_AGENT,     /* by the caller: kubelet would refuse every pod with a share */
    PLACE_AGENT_STOPS,  /* by the caller: the same in a moment */
    PLACE_NODE_UNREADY, /* by the caller: its condition Ready is False or Unknown */
    PLACE_TOO_WIDE,     /* no card and no instance has that much compute at all */
    PLACE_ONE_REPLICA,  /* a container gets one replica of these cards at most */
    PLACE_REPLICAS,     /* the name that is requested means replicas of these cards */
    PLACE_INSTANCES,    /* too few cards that are no MIG instances, for a request that needs them */
    PLACE_OTHER_WAY,    /* by the caller: its cards are given out by another allocator */
    PLACE_REASONS,
};

/* One fixed phrase; never NULL. */
const char *place_reason_text(enum place_reason reason);

/* The same behind "node(s): ", for kube-scheduler, which writes the number of nodes before it. */
const char *place_reason_counted(enum place_reason reason);

/* Whether the node could never take the pod, however empty. */
bool place_reason_is_final(enum place_reason reason);

struct place_model;
struct place_plan;

/* The functions of a policy. */
struct place_policy {
    const char *name;
    /* Cost of adding `amount` to cards[card] of the node, of which the pod's other containers leave
     * `left`; the cheapest that fits is tried first. */
    uint64_t (*card_cost)(const struct place_plan *plan, const struct place_node *node,
                          uint32_t card, const struct place_card *left,
                          const struct place_amount *amount);
    /* Value of the node after each card i gave away taken[i]; within +-PLACE_VALUE_MAX. */
    int64_t (*node_value)(const struct place_plan *plan, const struct place_node *node,
                          const struct place_amount *taken);
    /* May be NULL both: what the placement uses up that has a price in the whole cluster, as a
     * code, and the value at the prices of now. Remembered are value and code: the price may change
     * while the node does not. */
    uint64_t (*node_toll)(const struct place_plan *plan, const struct place_node *node,
                          const struct place_amount *taken);
    int64_t (*settle)(const struct place_plan *plan, int64_t value, uint64_t toll);
};
/* A request in the order in which it is placed. Borrows the request. The effort is shared by all
 * nodes that the plan is tried on: once it is spent, a node gets one simple try, and a
 * PLACE_NOT_TOGETHER is no certainty. */
struct place_plan {
    const struct gpu_request *request;
    struct place_policy policy; /* the caller's, of the pod, to be handed to place_on_node() */
    uint64_t shape;            /* the caller's: equal for pods that placement need not tell apart */
    uint64_t cpu, memory;      /* the pod's other requests, milli-CPU and bytes */
    uint64_t models;           /* bit i: cards of the dense model id i will do; of all: all ones */
    struct place_model *model; /* what policies have learned, and their caches; NULL: nothing */
    enum topology_policy topology;
    bool numa_bind;      /* the cards of one container are on one NUMA node */
    bool exclusive_cpus; /* a container has some */
    uint32_t effort;     /* tries of a card left; 0: used up */
    uint32_t nunits;
    uint8_t units[GPU_CONTAINERS_MAX *
                  PLACE_CARDS_MAX]; /* one per card wanted: index of the container */
};

/* Everything but the request is left at "nothing asked, nothing known" for the caller to set. */
void place_prepare(const struct gpu_request *request, struct place_plan *ret);

/* What a placement is worth, as far as that depends on its node alone. */
struct place_worth {
    int64_t value;  /* the policy's node_value */
    uint64_t toll;  /* the policy's node_toll; 0 without */
    uint32_t links; /* class of the weakest link between cards of one container, see topology.h */
    bool far;       /* a container has a card that is place_is_far() */
    bool rough;     /* set by the caller: from short estimates, see place_model_short_estimates() */
};

/* What one request of the pod gets of one card. */
struct place_grant {
    uint8_t container;         /* index in the gpu_request */
    uint8_t card;              /* index in the node */
    struct place_amount taken; /* of the capacity of the card, see place_share() */
    uint64_t memory, physical; /* bytes, see place_given() */
};
#define PLACE_GRANTS_MAX (GPU_CONTAINERS_MAX * PLACE_CARDS_MAX)

/* A placement. Only the grants in use are written; copy it with place_result_copy(). */
struct place_result {
    uint64_t cards[GPU_CONTAINERS_MAX]; /* by container: bit i: cards[i] of the node */
    struct place_worth worth;
    int64_t score; /* place_score() of it: higher is better; within +-PLACE_SCORE_MAX */
    uint32_t ngrants;
    struct place_grant grants[PLACE_GRANTS_MAX]; /* by container, then by card */
};

static inline void place_result_copy(struct place_result *to, const struct place_result *from) {
    memcpy(to, from,
           offsetof(struct place_result, grants) + from->ngrants * sizeof(from->grants[0]));
}

/* The scheduler multiplies by the extender's weight and by ten, in 64 bits: weights up to 100 are
 * safe. One step outweighs all of kube-scheduler's own scores together. */
#define PLACE_SCORE_MAX INT64_C(9000000000000000)

#define PLACE_VALUE_MAX INT64_C(90000000)

extern const struct place_policy place_binpack; /* leaves few scraps: tightest card, fullest node */

/* The score of a placement of that worth on the node of that rank. */
int64_t place_score(const struct place_policy *policy, const struct place_plan *plan,
                    const struct place_worth *worth, uint32_t rank);

/* Places all containers of the pod on one node. A request for nothing fits everywhere. */
enum place_reason place_on_node(const struct place_policy *policy, struct place_plan *plan,
                                const struct place_node *node, struct place_result *ret);

/* What a container takes of the capacity of one card. On an oversubscribed card, a container with a
 * larger physical part than the node's factor gives takes proportionally more. */
struct place_amount place_share(const struct container_request *req, const struct place_card *card);

/* Replicas of the card that the container requests; 0: it requests an amount or the whole card. */
uint32_t place_replicas(const struct container_request *req, const struct place_card *card);

/* Whether the container requests all of the card. */
static inline bool place_is_whole(const struct container_request *req,
                                  const struct place_card *card) {
    return req->whole && place_replicas(req, card) == 0;
}

/* Whether the container has exclusive CPUs, and gets them on another NUMA node than the card's. */
static inline bool place_is_far(const struct container_request *req,
                                const struct place_card *card) {
    return req->cpus > 0 && card->cpus.known &&
           (req->cpus <= card->cpus.above || req->cpus > card->cpus.upto);
}

/* Makes `least` the replicas of which a request takes the least, among these and those before. */
static inline void place_least_replicas(struct card_replicas *least, uint32_t count,
                                        bool as_cards) {
    count = count > 0 ? count : REPLICAS_PER_CARD;
    least->count = count > least->count ? count : least->count;
    least->as_cards |= as_cards;
}

/* Whether it can be given to the container at all. A MIG instance is never a whole card, and CUDA
 * uses one instance in a process, so that a request for several cards gets none. Of some cards a
 * container gets one replica at most. */
bool place_card_serves(const struct container_request *req, const struct place_card *card);

/* What the container gets for that: its memory limit and its physical part, in bytes. A whole card
 * is not oversubscribed: it has no other share. */
void place_given(const struct container_request *req, const struct place_card *card,
                 uint64_t *ret_memory, uint64_t *ret_physical);

/* Both as a grant with indexes 0. */
struct place_grant place_grant(const struct container_request *req, const struct place_card *card);

/* What the whole pod takes of cards[c] of the node by the placement, as one grant; the
 * physical part has the card's ratio of physical memory to capacity. False: the pod takes nothing
 * of the card. */
bool place_total(const struct gpu_request *request, const struct place_result *result,
                 const struct place_card *card, uint32_t c, struct place_grant *ret);

/* What the containers of one pod hold of one card together: init containers run one after the
 * other, so the most of any of them counts, beside the sidecars that were started before; app
 * containers and sidecars add up. Feed the containers in the order of a gpu_request. */
struct place_sum {
    struct place_amount sidecars, apps, init_peak;
};
void place_sum_add(struct place_sum *sum, enum container_phase phase,
                   const struct place_amount *amount);
struct place_amount place_sum_total(const struct place_sum *sum);
