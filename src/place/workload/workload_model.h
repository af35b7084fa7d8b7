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

/* A pod has arrived, with or without a GPU request. Uses `request`, `cpu` and `models` of the plan.
 */
void place_model_arrive(struct place_model *m, const struct place_plan *plan);

/* Draws conclusions from what has arrived now and not only when there is much news. */
void place_model_learn(struct place_model *m);

/* The node has changed, is new or (NULL) is gone. `id` is a small number that stays the node's own;
 * those of 16,384 and more are not counted. */
void place_model_node(struct place_model *m, uint32_t id, const struct place_node *node);

/* The pod begins to hold its cards, or ends to. */
void place_model_start(struct place_model *m, const struct place_plan *plan);
void place_model_end(struct place_model *m, const struct place_plan *plan);

/* A generation: changes when the model has learned and its earlier values are no longer valid.
 * Rare, and rarer the more arrivals there were. */
uint32_t place_model_epoch(const struct place_model *m);

/* The number of full estimates for the next placements, see stranded_allow(); initially unlimited.
 * PLACE_MODEL_STATES suffice for a pod if all nodes are evaluated with 0 first and then the best
 * one again until its worth is no longer rough (place_worth.rough). */
#define PLACE_MODEL_STATES 80
void place_model_allow(struct place_model *m, uint32_t states);

/* The number of short estimates so far, and whether full ones are allowed now. */
uint64_t place_model_short_estimates(const struct place_model *m);
bool place_model_has_time(const struct place_model *m);

/* What has arrived, to be kept over restarts: see workload_write() and workload_read(). */
void place_model_write(const struct place_model *m, const struct workload_names *names,
                       struct buf *out);
int place_model_read(struct place_model *m, const struct workload_names *names, const char *text,
                     size_t len);

/* ---- for policies ---- */

/* The pod's shape: containers that share a card count as one. Compute requested in TFLOPS is
 * converted to the average percentage over the known cards. */
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
