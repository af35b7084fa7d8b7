/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The set of devices that NVIDIA's allocator chooses (policy best-effort). It partitions all
 * available devices into sets of the wanted size, so that the sum of the scores of all pairs within
 * a set is the largest; of that partition it is the set with the largest score. So good sets are
 * left for the containers that follow. Pure and exact. */

#include <stdbool.h>
#include <stdint.h>

#define PARTITION_MAX 16 /* devices: 256 KiB while it runs */

struct partition_case {
    uint32_t n;                                   /* devices; at most PARTITION_MAX */
    uint32_t score[PARTITION_MAX][PARTITION_MAX]; /* of each pair; the smaller index first */
    uint32_t must;                                /* bits of devices that are in the answer */
    uint32_t size;                                /* of the answer; 1 to n */
};

/* The devices as bits. One device alone has no score: the one whose removal leaves the best set of
 * the others. 0: `must` has more than `size` devices, or there is no memory. */
uint32_t partition_choose(const struct partition_case *c);
