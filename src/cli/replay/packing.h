/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A cluster in memory on which the pods of a trace are placed one by one, with the placement code
 * of the scheduler. The result of each node for each shape of pod is cached until the node changes.
 */

#include <stdbool.h>
#include <stdint.h>

#include "cli/replay/trace.h"
#include "place/place.h"
#include "place/workload/workload_model.h"

#define PACKING_NOWHERE UINT32_MAX

struct packing_options {
    const struct place_policy *policy;
    bool random_ties;             /* choose at random between equal nodes, else by their order */
    uint64_t seed;                /* of random ties */
    const struct trace *workload; /* given instead of learned; NULL: learn */
};

/* Where a pod is. */
struct packing_place {
    uint32_t node;  /* or PACKING_NOWHERE */
    uint64_t cards; /* bit i: GPU i */
};

struct packing;

/* Borrows trace and options. 0, or -ENOMEM. */
int packing_new(const struct trace *trace, const struct packing_options *options,
                struct packing **ret, struct err *err);
void packing_free(struct packing *p);

/* Puts a pod of the trace onto the best node. 0, or -ENOMEM. */
int packing_put(struct packing *p, const struct trace_pod *pod, struct packing_place *ret,
                struct err *err);

/* Removes it. */
void packing_take(struct packing *p, const struct trace_pod *pod,
                  const struct packing_place *place);

/* Thousandths of GPUs: all, and in use. */
uint64_t packing_capacity(const struct packing *p);
uint64_t packing_used(const struct packing *p);
