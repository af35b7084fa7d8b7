/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* CPU and memory: what a node can give, and what a pod takes of it as kube-scheduler counts. */

#include <stdbool.h>
#include <stdint.h>

#include "wire/json.h"

struct cpu_memory {
    uint64_t cpu;    /* thousandths of a core */
    uint64_t memory; /* bytes */
    /* Exclusive CPUs: those that kubelet's static CPU manager would give to app containers and
     * sidecars for themselves. Only of a pod. */
    uint32_t exclusive;
};

/* Of a list of quantities by name; what is missing or no quantity is 0. */
struct cpu_memory resources_read(struct json list);

/* Of a pod's spec: app containers and sidecars together, or the init container that takes more, and
 * the overhead. Without exclusive CPUs, which are not in the spec alone. */
struct cpu_memory resources_of_pod(struct json spec);

/* Whether containers of the pod can have exclusive CPUs: it is of QoS class Guaranteed. */
bool resources_guaranteed(struct json pod);

/* The exclusive CPUs of a container of such a pod. */
uint32_t resources_exclusive(struct json container);

/* The same of all containers that run together. `spec`: of the pod. */
uint32_t resources_exclusive_of_pod(struct json spec);
