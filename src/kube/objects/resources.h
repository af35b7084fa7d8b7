/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* CPU and memory: what a node can give, and what a pod takes of it as kube-scheduler counts. */

#include <stdint.h>

#include "wire/json.h"

struct cpu_memory {
    uint64_t cpu;    /* thousandths of a core */
    uint64_t memory; /* bytes */
};

/* Of a list of quantities by name; what is missing or no quantity is 0. */
struct cpu_memory resources_read(struct json list);

/* Of a pod's spec: app containers and sidecars together, or the init container that takes more, and
 * the overhead. */
struct cpu_memory resources_of_pod(struct json spec);
