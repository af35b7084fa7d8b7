/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* kubelet's podresources API as a second source: whether kubelet lists devices for the pods to
 * which the agent has given them, whether pods have devices of the node from another device plugin,
 * and whether the CPUs that a container has for itself are on the NUMA node of its card. What has a
 * share keeps it, whatever is listed; a card that another plugin has given takes no further pods.
 * Nothing waits for its answer. From the same source: how many such CPUs are free on each NUMA
 * node, for the scheduler. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "agent/os/numa.h"
#include "base/buf.h"
#include "gpu/device.h"
#include "kube/objects/node_cpus.h"
#include "kube/objects/pod.h"

struct grpc_request;
struct kubelet;
struct shares;

/* A container with CPUs for itself, and one of its devices. */
struct cross_check_cpus {
    char namespace[KUBE_LABEL_MAX];
    char pod[KUBE_NAME_MAX];
    char pod_uid[KUBE_UID_MAX];
    char container[KUBE_LABEL_MAX];
    char uuid[GPU_UUID_MAX];
    uint32_t index;     /* of the card */
    uint32_t exclusive; /* CPUs */
    uint32_t elsewhere; /* of them, on another NUMA node than the card */
};

/* A device that a pod has from another device plugin, and that the agent gives out as well. */
struct cross_check_other {
    char uuid[GPU_UUID_MAX];
    char namespace[KUBE_LABEL_MAX];
    char pod[KUBE_NAME_MAX];
    char resource[KUBE_NAME_MAX];
};

struct cross_check {
    struct shares *shares; /* this and the next two: set by the caller */
    const struct kubelet *kubelet;
    const char *sys_dir;
    char socket[108];
    struct numa_cpus numa;
    uv_timer_t timer;
    struct grpc_request *request; /* NULL: none is under way */
    bool started, failing;
    bool changed;         /* since the list under way was requested */
    uint64_t failed;      /* lists that were not answered */
    uint32_t differences; /* shares of pods that kubelet's last lists contradict */
    struct buf cpus;      /* struct cross_check_cpus, of the last list */
    struct buf others;    /* struct cross_check_other, likewise, and of pods that it lacks */
    struct node_cpus allocatable; /* all of them free, of the last answer */
    struct node_cpus node_cpus;   /* of the last list; see cross_check_node_cpus() */
    bool listed;                  /* there was one */
};

/* Lists at once, once a minute, soon after cross_check_changed(), and every two seconds while a pod
 * has a device from another plugin. `socket`: of the API. */
void cross_check_start(struct cross_check *c, uv_loop_t *loop, const char *kubelet_dir);

/* kubelet has given devices to a container, or taken them back. */
void cross_check_changed(struct cross_check *c);

/* Evaluates one answer, a ListResponse. -EBADMSG: it is none. */
int cross_check_take(struct cross_check *c, const uint8_t *list, size_t size);

/* The same of an AllocatableResourcesResponse, before the list; NULL: kubelet gave none. */
int cross_check_take_allocatable(struct cross_check *c, const uint8_t *answer, size_t size);

/* The CPUs that containers can have for themselves; not known where all CPUs are on one NUMA node,
 * or containers have none for themselves. NULL: kubelet has not answered yet. */
const struct node_cpus *cross_check_node_cpus(const struct cross_check *c);

/* What another device plugin has given of a device, by the last list; NULL: nothing. While lists
 * fail it stays given until the API server says that the pod has ended. */
const struct cross_check_other *cross_check_other(const struct cross_check *c, const char *uuid);

/* Nothing is called back afterwards. */
void cross_check_stop(struct cross_check *c);
