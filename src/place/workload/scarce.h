/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Scarcity in the cluster as a whole, as a price in thousandths of a card. A placement slot is room
 * for a pod that is hard to place: as many idle cards of one node as it requests, of a model that
 * it accepts, with the CPU that such pods request. Slots are counted by number of cards and by
 * model. The expected pods are distributed over the models that they accept so that the highest
 * demand of a model is minimal. The fewer slots a model has for its part of them, the higher the
 * price of its slots. */

#include <stdbool.h>

#include "place/workload/workload.h"

#define SCARCE_NODES_MAX 16384
#define SCARCE_SIZES 8         /* numbers of cards that are watched */
#define SCARCE_TIERS 5         /* of CPU, see measure() */
#define SCARCE_CHOICES 128     /* sets of accepted models that ask most; others have no slots */
#define SCARCE_RUNNING_MAX 512 /* numbers of cards with accepted models, of running pods */

/* A node as far as slots go. */
struct scarce_node {
    uint32_t cpu;  /* free milli-CPU; UINT32_MAX: not known */
    uint32_t most; /* milli-CPU of the empty node */
    uint32_t free; /* thousandths of cards */
    uint8_t idle;  /* cards without any share */
    uint8_t cards; /* that are healthy */
    uint8_t model; /* at most WORKLOAD_MODELS_MAX - 1 */
};

/* Pods that accept the same models. Their number is in what they take of their cards: two that ask
 * half a card each are one. */
struct scarce_choice {
    uint64_t models;
    double arrived[SCARCE_SIZES];
    double running[SCARCE_SIZES];
};

/* The slots of one number of cards on one model. */
struct scarce_slots {
    uint32_t cpu[SCARCE_TIERS];
    double share[SCARCE_TIERS]; /* of the pods that accept the model that need the tier */
    uint32_t slots[SCARCE_TIERS];
    int64_t price[SCARCE_TIERS];
};

struct scarce_size {
    uint32_t cards;
    struct scarce_slots on[WORKLOAD_MODELS_MAX];
};

/* Pods that run, of one kind. */
struct scarce_running {
    uint64_t models;
    uint32_t cards; /* 0: unused */
    uint32_t milli; /* thousandths of a pod */
};

struct scarce {
    const struct workload *workload;
    uint64_t cards, free;                   /* free: thousandths of cards */
    uint64_t by_model[WORKLOAD_MODELS_MAX]; /* cards */
    uint64_t asked;                         /* thousandths of cards, by what is in `arrived` */
    struct scarce_running running[SCARCE_RUNNING_MAX];
    uint32_t nchoices, nsizes;
    uint64_t measured; /* bit i: the tiers of model i are known */
    bool priced;       /* the prices are those of now */
    struct scarce_choice choices[SCARCE_CHOICES];
    struct scarce_size sizes[SCARCE_SIZES];
    struct scarce_node nodes[SCARCE_NODES_MAX]; /* cards 0: there is none */
};

/* `s` is all zero before. Borrows the workload. */
void scarce_init(struct scarce *s, const struct workload *workload);

/* Takes over from the workload which kinds of pods there are. */
void scarce_learn(struct scarce *s);

/* The node has become that; ids of SCARCE_NODES_MAX and more are not counted. */
void scarce_set(struct scarce *s, uint32_t id, const struct scarce_node *node);

/* A pod of that shape runs now (change +1), or does not any more (-1). */
void scarce_run(struct scarce *s, const struct place_shape *shape, int change);

/* A pod has arrived, which changes what is to be expected. */
void scarce_arrived(struct scarce *s, const struct place_shape *shape);

/* The slots that a pod of that shape takes when it turns `before` into `after`, for
 * scarce_slots_price(); 0: none. */
uint64_t scarce_broken(const struct scarce *s, const struct scarce_node *before,
                       const struct scarce_node *after, const struct place_shape *shape);
int64_t scarce_slots_price(struct scarce *s, uint64_t broken);
