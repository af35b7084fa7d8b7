/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What `aliquot plan --capacity` knows: pods that wait for cards, the nodes there are, and kinds of
 * machines that could be added, with how many of each the pods need. */

#include <stdbool.h>
#include <stdint.h>

#include "cli/cluster/cards.h"
#include "kube/objects/pod.h"
#include "place/capacity.h"
#include "place/place.h"

enum plan_state {
    PLAN_NEEDS, /* new cards */
    PLAN_ROOM,  /* the cards that there are have room for it: it waits for something else */
    PLAN_HELD,  /* more cards would not start it; `held` says why */
};

struct plan_pod {
    struct pod pod;
    struct json object;
    enum plan_state state;
    char held[KUBE_NAME_MAX + 64];
    uint32_t need; /* its place among those that need new cards */
};

/* One node with nothing allocated. */
struct plan_machine {
    char *model;
    uint64_t memory; /* bytes of a card, as the node offers it */
    uint32_t ncards;
    struct place_card cards[PLACE_CARDS_MAX];
    struct place_topology *topology; /* owned; NULL: not known */
    const struct card *like;         /* cards of a node of the kind; NULL: of --machine */
    uint32_t existing;               /* nodes of the kind that there are */
    /* What is planned. */
    uint32_t nodes, starts;     /* nodes to add, and pods that they start */
    enum place_reason *reasons; /* by pod that needs cards */
    bool *bars;                 /* the same: by its labels and taints no such node takes the pod */
    struct capacity_left left;
    bool cut_short;
};

struct plan_node {
    const struct card *cards; /* of the node, in their order */
    struct json object;       /* invalid: the Node is gone */
    uint32_t machine;         /* which kind; UINT32_MAX: none */
};

struct plan {
    struct cards cards;
    struct json_parser *pods_parser, *nodes_parser;
    struct plan_pod *pods; /* all that wait, in the order in which they would be placed */
    uint32_t npods;
    uint32_t *needing; /* indexes of those that need new cards */
    uint32_t nneeding;
    struct plan_node *nodes;
    struct capacity_nodes now; /* the same nodes as placement sees them */
    struct plan_machine *machines;
    uint32_t nmachines;
};

/* A machine as a user describes it: "MODEL,CARDS,MEMORY". -EINVAL with a text. */
int plan_machine_parse(const char *text, struct plan_machine *ret, struct err *err);

/* Reads the cluster: pods of the namespace (NULL: of all) that wait, cards and nodes. */
int plan_read(const char *namespace, struct plan *ret, struct err *err);

/* Adds a kind for each kind of node that there is. */
int plan_add_kinds(struct plan *plan, struct err *err);

/* Plans every machine; the best is the first then. */
int plan_make(struct plan *plan, struct err *err);

void plan_machine_done(struct plan_machine *machine);
void plan_done(struct plan *plan);
