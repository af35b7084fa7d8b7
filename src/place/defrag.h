/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A plan of moves that empties cards: pods of cards that are little used go to others that are in
 * use already, so that whole cards become free. Pure, as place.h; nothing is executed.
 *
 * Every move fits where it goes while the pod is still where it was: all moves before it have been
 * made, none after it. No move goes to an idle card, nor to one that is to be emptied. */

#include <stdbool.h>
#include <stdint.h>

#include "place/victims.h"

struct defrag_pod {
    uint32_t node; /* index */
    bool stays;    /* may not be moved */
    bool at_home;  /* only to other cards of its node */
    const struct gpu_request *request;
    const struct victims_amount *amounts; /* what it holds of which cards of its node */
    uint32_t namounts;
};

struct defrag_case {
    const struct place_policy *policy;
    struct place_node *nodes; /* free: beside what all pods hold; `cards` point to `cards` below */
    struct place_card *cards; /* of all nodes, those of one node together */
    uint32_t *first;          /* by node: where its cards begin */
    uint32_t nnodes;
    const struct defrag_pod *pods;
    uint32_t npods;
};

struct defrag_move {
    uint32_t pod;
    uint32_t node;                      /* where to */
    uint64_t cards[GPU_CONTAINERS_MAX]; /* and on which cards, as in place_result */
    int64_t score;                      /* place_score() of it */
};

struct defrag_plan {
    struct defrag_move *moves; /* in the order in which they are to be made; as many as pods */
    uint32_t nmoves;
    uint32_t emptied; /* cards that were in use before and are idle after */
    bool cut_short;   /* the effort was used up: a better plan may exist */
};

/* Fills a plan whose `moves` has room for all pods; leaves the case unchanged. For few cards and
 * pods the plan empties the most cards with the fewest moves. For many it empties the cards with
 * the least memory to move first. The effort is bounded, see cut_short. On entry `nmoves` is the
 * maximum number of moves. 0 or -ENOMEM. */
int defrag_choose(const struct defrag_case *of, struct defrag_plan *ret);
