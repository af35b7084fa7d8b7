/* SPDX-License-Identifier: Apache-2.0 */

/* Exclusive CPUs. kubelet chooses them after the Binding, and does not know the card: with a policy
 * of its topology manager it takes the first NUMA node that has as many as the container requests,
 * or, where all cards are on one, that one, if it has as many. So a card of that NUMA node is
 * chosen here. What is free is what the agent has read from kubelet, less the CPUs of pods that
 * were bound since. */

#include <errno.h>
#include <string.h>

#include "scheduler/state/state_internal.h"

int state_node_cpus(struct state *s, const char *name, const struct node_cpus *cpus) {
    struct state_node *node = state_node_get(s, name);
    if (!node)
        return -ENOMEM;
    if (memcmp(&node->cpus, cpus, sizeof(*cpus)) != 0)
        state_touch(node);
    node->cpus = *cpus;
    return 0;
}

/* -1: not known. */
static int numa_of(const struct state_node *node, const char *uuid) {
    for (uint32_t i = 0; i < node->ncards; i++)
        if (strcmp(node->cards[i]->uuid, uuid) == 0)
            return node->cards[i]->numa;
    return -1;
}

static void take(uint16_t *free, uint32_t *left, uint32_t amount) {
    amount = amount < *left ? amount : *left;
    *left -= amount;
    *free = amount < *free ? (uint16_t) (*free - amount) : 0;
}

static void take_of(const struct state_pod *pod, struct node_cpus *cpus, uint32_t *left) {
    int numa = pod->nallocations > 0 ? numa_of(pod->node, pod->allocations[0].device.uuid) : -1;
    uint16_t unknown = 0;
    take(numa >= 0 && numa < NODE_CPUS_NUMA_NODES ? &cpus->free[numa] : &unknown, left,
         pod->room.exclusive);
}

/* The agent has not seen the CPUs of the pods that came last. They are where their cards are; those
 * of a pod without cards can be anywhere. */
static void take_unseen(const struct state_node *node, const struct state_pod *without,
                        struct node_cpus *cpus) {
    uint32_t own = without && without->node == node ? without->room.exclusive : 0;
    uint32_t seen = node_cpus_taken(cpus), all = node->used.exclusive - own;
    uint32_t left = all > seen ? all - seen : 0;
    const struct state_pod *pod = node->pods ? node->pods->prev : NULL; /* the last one */
    const struct state_load *load = node->loads ? node->loads->prev : NULL;
    while (left > 0 && (pod || load)) {
        if (load && (!pod || load->came > pod->came)) {
            left -= load->room.exclusive < left ? load->room.exclusive : left;
            load = load == node->loads ? NULL : load->prev;
        } else {
            if (pod != without)
                take_of(pod, cpus, &left);
            pod = pod == node->pods ? NULL : pod->prev;
        }
    }
}

/* The agent tells kubelet the NUMA node of shares then. */
static bool on_one_numa_node(const struct state_node *node) {
    for (uint32_t i = 1; i < node->ncards; i++)
        if (node->cards[i]->numa != node->cards[0]->numa)
            return false;
    return true;
}

void state_count_cpus(const struct state_node *node, const struct state_pod *without,
                      struct place_card cards[static PLACE_CARDS_MAX]) {
    struct node_cpus cpus = node->cpus;
    uint32_t before[NODE_CPUS_NUMA_NODES] = {0}, most = 0;
    bool one = on_one_numa_node(node);
    if (!node_cpus_known(&cpus))
        return;
    take_unseen(node, without, &cpus);
    for (uint32_t i = 0; i < NODE_CPUS_NUMA_NODES; i++) {
        before[i] = one ? 0 : most;
        most = cpus.free[i] > most ? cpus.free[i] : most;
    }
    for (uint32_t i = 0; i < node->ncards; i++) {
        int numa = node->cards[i]->numa;
        if (numa >= 0 && numa < NODE_CPUS_NUMA_NODES)
            cards[i].cpus = (struct place_cpus){true, before[numa], cpus.free[numa]};
    }
}
