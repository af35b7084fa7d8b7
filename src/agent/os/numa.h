/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The NUMA nodes of the machine's CPUs, from sysfs. */

#include <stdint.h>

#define NUMA_CPUS_MAX 4096
#define NUMA_NODES_MAX 64

struct numa_cpus {
    int8_t node[NUMA_CPUS_MAX]; /* of each CPU; -1: not known */
};

/* Reads SYS_DIR/devices/system/node/node<N>/cpulist. A node that is not there has no CPUs. */
void numa_read(const char *sys_dir, struct numa_cpus *ret);

/* Enters the CPUs of one such list, "0-3,8,10-11", as those of `node`. What is no such list enters
 * the CPUs before the fault. */
void numa_add_list(struct numa_cpus *cpus, int8_t node, const char *list);

/* How many NUMA nodes have CPUs. */
unsigned numa_count(const struct numa_cpus *cpus);

/* -1: not known. */
int numa_of_cpu(const struct numa_cpus *cpus, int64_t cpu);
