/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How much of a node will be left over, given what pods typically ask. Two answers:
 *
 *   stranded_expect()  to the end: the mean of what is still idle when typical pods have been put
 *                      on the node, one after the other, until none of a dozen in a row fitted;
 *   stranded_next()    one step: what the next pod, if it is typical, could not use (F_n of
 *                      Weng et al., "Beware of Fragmentation", USENIX ATC 2023).
 *
 * Both in thousandths of a card. Equal inputs give equal answers: the draws are fixed. */

#include <stdint.h>

#include "place/workload/workload.h"

#define STRANDED_CARDS_MAX 64
#define STRANDED_KINDS_MAX 64
#define STRANDED_CPU_UNKNOWN UINT32_MAX

/* What is free on a node, as far as packing cares. */
struct stranded_node {
    uint32_t kind; /* from stranded_kind() */
    uint32_t cpu;  /* milli-CPU, or STRANDED_CPU_UNKNOWN */
    uint32_t ncards;
    uint16_t cards[STRANDED_CARDS_MAX]; /* stranded_card() of each, in any order */
};

/* Free compute and memory of a card, in percent. */
static inline uint16_t stranded_card(uint32_t core, uint32_t memory) {
    return (uint16_t) (core << 8 | memory);
}

struct stranded;

/* NULL when out of memory: all memory that it ever needs, about 5 MB that are touched as needed. */
struct stranded *stranded_new(void);
void stranded_free(struct stranded *s);

/* Takes the typical pods over from what has arrived. Forgets all answers. */
void stranded_learn(struct stranded *s, const struct workload *w);

/* Whether there are typical pods at all. Without, the two answers are not to be asked for. */
bool stranded_knows(const struct stranded *s);

/* The index of the kind of nodes with cards of that model and size, valid until stranded_learn().
 * The 64th and all later kinds share an index. */
uint32_t stranded_kind(struct stranded *s, uint32_t model, uint64_t card_memory);

/* Thousandths of a card, times STRANDED_SCALE. Sorts the cards of `node`. */
#define STRANDED_SCALE 40
int64_t stranded_expect(struct stranded *s, struct stranded_node *node);

/* The growth of that from one state to the other. Both estimates use the same samples, so that the
 * sampling error cancels out. */
int64_t stranded_growth(struct stranded *s, struct stranded_node *before,
                        struct stranded_node *after);

/* The number of full estimates of new states (about 20 us each) before stranded_expect() makes
 * short ones (about 2 us), which are replaced when the state is evaluated again; UINT32_MAX: no
 * limit. */
void stranded_allow(struct stranded *s, uint32_t states);

/* The number of short estimates so far; whether a full one is allowed now. */
uint64_t stranded_short_estimates(const struct stranded *s);
bool stranded_has_time(const struct stranded *s);

double stranded_next(const struct stranded *s, const struct stranded_node *node);
