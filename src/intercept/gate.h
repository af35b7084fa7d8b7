/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The place of compute limits: every launch passes here before it goes to the driver. While no
 * limit is set the gate is one branch that is never taken. */

#include "abi/cuda.h"

#include <stdbool.h>

extern bool gate_closed;

/* Waits until the container may launch again. Never sleeps on a stream that is being captured. */
void gate_wait(CUstream stream);

static inline void gate_pass(CUstream stream) {
    if (__builtin_expect(__atomic_load_n(&gate_closed, __ATOMIC_RELAXED), 0))
        gate_wait(stream);
}
