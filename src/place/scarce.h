/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What is scarce in the cluster as a whole, and its price in thousandths of a card:
 *
 *   slots    nodes that still have k cards idle at once, with the CPU that pods of k cards ask. A
 *            smaller pod that breaks such a slot pays the more, the fewer there are left for the
 *            pods of k cards that are still to be expected;
 *   models   cards that some pods insist on. Who could go elsewhere pays the more, the larger the
 *            part of all demand that insists on them, compared with their part of all cards. */

#include "place/workload.h"

#define SCARCE_NODES_MAX 16384
#define SCARCE_SIZES 6 /* different k that are watched */
#define SCARCE_TIERS 3 /* of CPU: what half of the pods of k cards ask at most, nine of ten, all   \
                        */

/* A node as far as slots go. */
struct scarce_node {
    uint32_t cpu;  /* free milli-CPU; UINT32_MAX: not known */
    uint8_t idle;  /* cards of which nobody has a part */
    uint8_t cards; /* that are healthy */
    uint8_t model; /* at most WORKLOAD_MODELS_MAX - 1 */
};

struct scarce_size {
    uint32_t cards;
    uint32_t cpu[SCARCE_TIERS];
    double share[SCARCE_TIERS]; /* of the pods of that size that need the tier */
    uint32_t slots[SCARCE_TIERS];
    int64_t price[SCARCE_TIERS];
};

struct scarce {
    const struct workload *workload;
    uint64_t cards;
    uint64_t by_model[WORKLOAD_MODELS_MAX];   /* cards */
    uint64_t insisting[WORKLOAD_MODELS_MAX];  /* thousandths of cards, as arrived */
    uint64_t arrived;                         /* thousandths of cards, as arrived */
    uint32_t running[WORKLOAD_CARDS_MAX + 1]; /* pods, by cards */
    uint32_t nsizes;
    bool priced; /* the prices are those of now */
    struct scarce_size sizes[SCARCE_SIZES];
    struct scarce_node nodes[SCARCE_NODES_MAX]; /* cards 0: there is none */
};

/* `s` is all zero before. Borrows the workload. */
void scarce_init(struct scarce *s, const struct workload *workload);

/* Takes over from the workload which sizes and models there are. */
void scarce_learn(struct scarce *s);

/* The node has become that; ids of SCARCE_NODES_MAX and more are not counted. */
void scarce_set(struct scarce *s, uint32_t id, const struct scarce_node *node);

/* A pod of so many cards runs now (change +1), or does not any more (-1). */
void scarce_run(struct scarce *s, uint32_t cards, int change);

/* Tells the prices of slots that arrivals have changed them. */
void scarce_arrived(struct scarce *s);

/* The slots that a pod of `cards` cards breaks when it turns `before` into `after`, as a set of
 * bits for scarce_slots_price(). */
uint32_t scarce_broken(const struct scarce *s, const struct scarce_node *before,
                       const struct scarce_node *after, uint32_t cards);
int64_t scarce_slots_price(struct scarce *s, uint32_t broken);

/* For one card of the model. */
int64_t scarce_model_price(const struct scarce *s, uint32_t model);
