/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The search for node and cards of a pod's claims. Its files, each using those before it:
 * dra_select.c (selectors in CEL), dra_wants.c (what the claims want), dra_nodes.c (which nodes can
 * take the pod), dra_constraints.c (cards of one node), dra_choose.c (the choice and the plans). */

#include "base/err.h"
#include "cel/cel.h"
#include "scheduler/dra/dra_internal.h"

#define DRA_SELECTORS_BUDGET 20000000
#define DRA_EFFORT 2048 /* steps of a search with constraints, beside those for each node */

struct dra_want {
    struct dra_claim *claim;
    const struct device_request *request;
    const struct pod_device_claim *named; /* its template's name is the request; NULL: none */
    uint32_t choice;
    struct cel **selectors[DEVICE_CHOICES_MAX];              /* as many as the choice has */
    const struct place_policy *policies[DEVICE_CHOICES_MAX]; /* NULL: the configs name none */
};

struct dra_candidate {
    struct state_node *node;
    const char *why_not; /* see why_not() */
};

struct dra_search {
    struct dra *d;
    struct dra_pod *pod;
    struct state_pod *self; /* what is placed: the pod as the state knows it, or `stand_in` */
    struct state_pod stand_in;
    uint64_t now_ms;
    const char *node; /* the only one, where a claim or the pod is there already; NULL: any */
    uint32_t nclaims; /* that wait for us */
    struct dra_claim *claims[POD_DEVICE_CLAIMS_MAX];
    uint32_t n;
    struct dra_want wants[GPU_CONTAINERS_MAX];
    struct container_request containers[GPU_CONTAINERS_MAX];
    const struct place_policy *policy;
    uint32_t nconstraints;
    bool selective;            /* a want has selectors, or is for all cards */
    bool all;                  /* a want is for all cards */
    bool refused;              /* a selector fails, as `why` says */
    size_t selectors_size;     /* bytes of all selectors */
    uint64_t selectors_budget; /* see cel_ask() */
    uint32_t effort;           /* nodes and steps with constraints that are left to try */
    uint32_t nnodes;
    struct dra_candidate *nodes; /* all that have cards */
    struct buf *why;
};

static inline const struct device_choice *dra_choice_of(const struct dra_want *want) {
    return &want->request->choices[want->choice];
}

struct dra_limits {
    uint64_t allowed[GPU_CONTAINERS_MAX];
};

/* ---- dra_select.c ---- */

/* Reads the selectors of the want's choice. 0, or a negative errno with `err`: one is not in the
 * subset, or they are too many. */
int dra_read_selectors(struct dra_search *s, struct dra_want *want, struct err *err);

/* Which cards of the node each want may have by the selectors of its choice, and how many it wants
 * where it wants all, in `containers`. DRA_NO_ROOM: too few; DRA_REFUSED with `why`: a selector
 * fails, or is not served for the values of a card. */
enum dra_found dra_select(struct dra_search *s, const struct state_node *node,
                          struct dra_limits *ret);

void dra_selectors_done(struct dra_search *s);

/* ---- dra_wants.c ---- */

/* As constraints, configs and results name it. */
void dra_name_request(const struct dra_want *want, char ret[static DEVICE_REQUEST_MAX]);

/* What a choice asks of cards. What it does not name is all of the card, but compute alone comes
 * with the same part of the memory. */
struct container_request dra_read_amounts(const struct dra_want *want);

/* Reads the claims of the pod that wait for us. */
enum dra_found dra_read_pod(struct dra_search *s);

/* ---- dra_nodes.c ---- */

#define DRA_TALLY_MAX 32

/* Why nodes were left out, and how many. */
struct dra_tally {
    uint32_t n;
    struct {
        const char *text;
        uint32_t nodes;
    } of[DRA_TALLY_MAX];
};

void dra_count_reason(struct dra_tally *tally, const char *text);

/* Until kube-scheduler binds it, the state does not count the pod. */
void dra_count_arrived(struct dra *d, struct dra_pod *pod, const char *name);

/* Of each node once, as it is the same for all choices. Each node can be tried with every choice of
 * one request. False: out of memory. */
bool dra_list_nodes(struct dra_search *s);

/* ---- dra_constraints.c ---- */

/* One constraint after the other: `at` is the claim and the constraint of it from which on they are
 * to be met. A constraint of equal values tries each value; one of different values moves what
 * collides, so that it can fail where another order of moves would not. */
enum place_reason dra_place(struct dra_search *s, struct state_node *node,
                            const struct state_pod *self, uint32_t claim, uint32_t at,
                            struct dra_limits *limits, struct place_result *ret);
