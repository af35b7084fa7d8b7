/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The CPUs of a node that containers can have for themselves (kubelet's static CPU manager), by
 * NUMA node. The agent writes them on the Node as an annotation, for the scheduler. */

#include <stdbool.h>
#include <stdint.h>

#define NODE_CPUS_ANNOTATION "elasticgpu.io/exclusive-cpus"
#define NODE_CPUS_NUMA_NODES 64
#define NODE_CPUS_MAX 4096 /* of a NUMA node */
#define NODE_CPUS_TEXT_MAX (NODE_CPUS_NUMA_NODES * sizeof("63=4096/4096"))

/* By number of the NUMA node. All 0: not known, or no container can have any. */
struct node_cpus {
    uint16_t all[NODE_CPUS_NUMA_NODES];
    uint16_t free[NODE_CPUS_NUMA_NODES]; /* of `all`: no container has them */
};

bool node_cpus_known(const struct node_cpus *cpus);

/* All that containers have. */
uint32_t node_cpus_taken(const struct node_cpus *cpus);

/* "0=12/16,1=30/32": 12 of 16 are free on NUMA node 0. What is no such text, or NULL, is not known;
 * that is "". */
void node_cpus_read(const char *text, struct node_cpus *ret);
void node_cpus_write(const struct node_cpus *cpus, char ret[static NODE_CPUS_TEXT_MAX]);
