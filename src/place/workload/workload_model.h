/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What policies learn of a cluster: which pods arrive, which nodes there are, and from both what a
 * node is likely to waste and what is scarce. All memory is allocated at the start. Not
 * thread-safe. */

#include <stddef.h>
#include <stdint.h>

#include "place/place.h"
#include "place/workload/workload.h"

struct place_model;

/* NULL when out of memory. */
struct place_model *place_model_new(void);
void place_model_free(struct place_model *m);

/* A pod is seen for the first time; also one that asks no GPU. Of the plan, the request and `cpu`
 * and `models` count. */
void place_model_arrive(struct place_model *m, const struct place_plan *plan);

/* Draws conclusions from what has arrived now and not only when there is much news. */
void place_model_learn(struct place_model *m);

/* The node has changed, is new or (NULL) is gone. `id` is a small number that stays the node's own;
 * those of 16,384 and more are not counted. */
void place_model_node(struct place_model *m, uint32_t id, const struct place_node *node);

/* The pod begins to hold its cards, or ends to. */
void place_model_start(struct place_model *m, const struct place_plan *plan);
void place_model_end(struct place_model *m, const struct place_plan *plan);

/* Changes when values that were given out before hold no longer, beside what depends on the node
 * alone: the model has learned anew. Rarely, and the more rarely the more it has seen. */
uint32_t place_model_epoch(const struct place_model *m);

/* How much new thinking the next placements may do: see stranded_allow(). At the start, all. For
 * one pod PLACE_MODEL_STATES are enough where all nodes are looked at with 0 first, and the best of
 * them again until it is no rough one: place_worth.rough. */
#define PLACE_MODEL_STATES 80
void place_model_allow(struct place_model *m, uint32_t states);

/* How many answers so far came of a short look, and whether better ones can be had now. */
uint64_t place_model_short_estimates(const struct place_model *m);
bool place_model_has_time(const struct place_model *m);

/* What has arrived, to be kept over restarts: see workload_write() and workload_read(). */
void place_model_write(const struct place_model *m, const struct workload_names *names,
                       struct buf *out);
int place_model_read(struct place_model *m, const struct workload_names *names, const char *text,
                     size_t len);

/* ---- for policies ---- */

/* What the pod is as a shape: containers that share a card count as one. Compute asked in TFLOPS is
 * the part that it is of the cards that the plan's model knows, on average. */
struct place_shape place_shape_of(const struct place_plan *plan);

/* What a pod takes of the node's cards if it takes of `card` all but `left`, and `amount` beside.
 */
void place_model_taken(const struct place_node *node, uint32_t card, const struct place_card *left,
                       const struct place_amount *amount,
                       struct place_amount ret[static PLACE_CARDS_MAX]);

/* Whether enough has arrived to judge by. False without a model. */
bool place_model_knows(const struct place_model *m);

/* What is expected to be left over of the node in the end (times STRANDED_SCALE, see there), and
 * what the next pod cannot use, after each card i gave away taken[i]; `taken` NULL: as it is. */
int64_t place_model_expect(struct place_model *m, const struct place_plan *plan,
                           const struct place_node *node, const struct place_amount *taken);
/* By how much the first grows with `taken`; less lucky than the difference of two of them. */
int64_t place_model_growth(struct place_model *m, const struct place_plan *plan,
                           const struct place_node *node, const struct place_amount *taken);
double place_model_next(struct place_model *m, const struct place_plan *plan,
                        const struct place_node *node, const struct place_amount *taken);

/* Slots of others that the pod breaks, and their price: see scarce.h. */
uint64_t place_model_broken(struct place_model *m, const struct place_plan *plan,
                            const struct place_node *node, const struct place_amount *taken);
int64_t place_model_slots_price(struct place_model *m, uint64_t broken);

/* Costs that differ by less, in thousandths of a card, are not known to differ: the more has
 * arrived, the less that is. The same until the epoch changes. */
int64_t place_model_resolution(const struct place_model *m);
