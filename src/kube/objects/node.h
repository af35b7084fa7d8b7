/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The part of a Node that matters here. */

#include <stdbool.h>

#include "kube/objects/node_cpus.h"
#include "kube/objects/pod.h"

/* The condition by which an agent reports that it is about to end (False), and that kubelet has
 * taken its plugins (True). */
#define NODE_AGENT_CONDITION "AliquotAgentReady"

enum node_agent {
    NODE_AGENT_UNKNOWN, /* the condition is missing or Unknown */
    NODE_AGENT_READY,
    NODE_AGENT_STOPPING,
};

struct node_object {
    char name[KUBE_NAME_MAX];
    char uid[KUBE_UID_MAX];
    char internal_ip[64]; /* first InternalIP, or "" */
    struct cpu_memory allocatable;
    /* allocatable has some of each resource that a device plugin of ours always offers. kubelet
     * sets them to 0 within about 10 s of the end of the plugin's socket. */
    bool offered;
    /* allocatable has some of a resource of whole devices ("nvidia.com/..."), capacity names one.
     */
    bool offers_whole, names_whole;
    enum node_agent agent;
    int64_t agent_since; /* Unix time at which it became that; 0: not known */
    struct node_cpus cpus;
    bool unready; /* the condition Ready is False or Unknown; not when it is missing */
};

/* An agent takes some seconds to stop, and kubelet some more to withdraw its resources. If they are
 * still offered after this time, an agent runs that does not write the condition. */
#define NODE_AGENT_STOPPING_MAX_S 300

/* State of the condition at that Unix time: NODE_AGENT_STOPPING becomes NODE_AGENT_UNKNOWN
 * NODE_AGENT_STOPPING_MAX_S after it was written. */
enum node_agent node_agent_at(const struct node_object *node, int64_t now);

/* Whether pods with a share can be bound to the node: kubelet offers our resources, and the agent
 * is not about to end. */
bool node_serves(const struct node_object *node, int64_t now);

/* The same for a node that offers no shares, because all its cards are in MIG mode. Of one that has
 * never offered whole devices either, it is not known whether its agent runs: true. */
bool node_serves_whole(const struct node_object *node, int64_t now);

/* Reads a Node object; -EINVAL when it is none. */
int node_object_parse(struct json object, struct node_object *ret_node, struct err *err);
