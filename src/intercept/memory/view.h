/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The container's part of a device, and what of the device's memory CUDA and NVML show of it: the
 * same figures from either. */

#include "intercept/session/session.h"

struct part {
    struct share *share; /* NULL: no share, the driver's answer is not changed */
    uint64_t devices;    /* bits: indexes in the share. Several for a divided GPU of which the
                            container holds several instances; none in a broken share */
};

/* Takes the first of the bits off and returns its number; -1: none is left. */
static inline int part_next(uint64_t *devices) {
    int index = *devices ? __builtin_ctzll(*devices) : -1;

    *devices &= *devices - 1;
    return index;
}

/* Bytes. used + free <= total. */
struct figures {
    uint64_t total, free, used;
};

/* Brings the driver's figures of a device down to the part's; leaves them where memory has no
 * limit. */
void part_figures(const struct part *part, struct figures *figures);
