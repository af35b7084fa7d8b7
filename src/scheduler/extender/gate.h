/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Scheduling gates: conditions under which a pod is not placed, whatever is free: an exhausted
 * quota, an incomplete gang, an unbound claim. Checked by filter before the nodes, by bind again,
 * and by requeue.c for the pods that a gate has refused. */

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"

struct state_pod;

struct gate {
    const char *name;
    void *self;
    /* Whether the pod may be placed now; otherwise appends one sentence for people, the same for
     * every node. Must be cheap: it is asked again for every pod that it holds. */
    bool (*open)(void *self, struct state_pod *pod, uint64_t now_ms, struct buf *why);
};

#define GATES_MAX 8
#define GATE_WHY_MAX 512

struct gates {
    size_t n;
    struct gate rows[GATES_MAX];
};

/* Appends a gate; `first`: before all others. 0, or -ENOSPC: the table is full. */
static inline int gates_add(struct gates *gates, const struct gate *gate, bool first) {
    if (gates->n == GATES_MAX)
        return -ENOSPC;
    if (first)
        memmove(&gates->rows[1], &gates->rows[0], gates->n * sizeof(*gate));
    gates->rows[first ? 0 : gates->n] = *gate;
    gates->n++;
    return 0;
}

/* The first gate that holds the pod, having appended why to `why`; NULL: none does. */
static inline const struct gate *gates_closed(const struct gates *gates, struct state_pod *pod,
                                              uint64_t now_ms, struct buf *why) {
    for (size_t i = 0; gates && i < gates->n; i++)
        if (!gates->rows[i].open(gates->rows[i].self, pod, now_ms, why))
            return &gates->rows[i];
    return NULL;
}
