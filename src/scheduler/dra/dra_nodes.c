/* SPDX-License-Identifier: Apache-2.0 */

/* Which nodes can take a pod. */

#include <stdlib.h>
#include <string.h>

#include "kube/objects/toleration.h"
#include "scheduler/dra/dra_search.h"

void dra_count_reason(struct dra_tally *tally, const char *text) {
    uint32_t i = 0;
    while (i < tally->n && strcmp(tally->of[i].text, text) != 0)
        i++;
    if (i == DRA_TALLY_MAX)
        return;
    if (i == tally->n) {
        tally->of[i].text = text;
        tally->of[i].nodes = 0;
        tally->n++;
    }
    tally->of[i].nodes++;
}

static void add_room(struct cpu_memory *sum, const struct cpu_memory *more) {
    sum->cpu += more->cpu;
    sum->memory += more->memory;
}

void dra_count_arrived(struct dra *d, struct dra_pod *pod, const char *name) {
    struct dra_node *node = !pod->object.node[0] && !pod->object.deleting && !pod->arriving
                                ? dra_node_find(d, name)
                                : NULL;
    const struct state_pod *self = dra_self(d, pod);
    if (!node || (self && self->node)) /* there the state counts it */
        return;
    pod->arriving = true;
    add_room(&node->arriving, &pod->object.room);
}

void dra_count_arriving(struct dra *d) {
    for (struct dra_node *node = d->nodes; node; node = node->hh.next)
        node->arriving = (struct cpu_memory){0};
    for (struct dra_pod *pod = d->pods; pod; pod = pod->hh.next) {
        pod->arriving = false;
        for (uint32_t i = 0; i < pod->object.nclaims && !pod->object.node[0]; i++) {
            const struct dra_claim *claim = dra_claim_of(d, &pod->object, i);
            const char *node = claim ? dra_claim_node(claim) : "";
            if (node[0])
                dra_count_arrived(d, pod, node);
        }
    }
}

static bool has_room(const struct dra_search *s, const struct state_node *node,
                     const struct dra_node *known) {
    const struct cpu_memory *all = &node->room;
    struct cpu_memory sum = node->used;
    add_room(&sum, &known->arriving);
    if (!s->pod->arriving)
        add_room(&sum, &s->pod->object.room);
    return (all->cpu == 0 || sum.cpu <= all->cpu) &&
           (all->memory == 0 || sum.memory <= all->memory);
}

/* What kube-scheduler will refuse the node for, as far as it is known here; NULL: nothing. A pod
 * that is bound stays where it is. */
static const char *why_not(const struct dra_search *s, const struct state_node *node) {
    const struct pod_devices *pod = &s->pod->object;
    const struct dra_node *known = dra_node_find(s->d, node->name);
    if (s->node && strcmp(s->node, node->name) != 0)
        return "other claims of the pod, or the pod itself, are on another node";
    if (pod->node[0])
        return NULL;
    if (!known)
        return "they are gone";
    if (!pod_devices_may_be_on(pod, known->labels, node->name))
        return "the pod's node selector or affinity excludes them";
    if (known->unschedulable)
        return "they are cordoned";
    if (!taints_are_tolerated(known->taints, pod->tolerations))
        return "they have a taint that the pod does not tolerate";
    if (!has_room(s, node, known))
        return "too little CPU or memory for the pod";
    if (dra_is_shunned(s->pod, node->name, s->now_ms))
        return "kube-scheduler took the allocation back a moment ago";
    return NULL;
}

bool dra_list_nodes(struct dra_search *s) {
    struct state *state = s->d->state;
    state_refresh_all(state);
    s->nodes = calloc(HASH_COUNT(state->nodes) + 1, sizeof(*s->nodes));
    for (struct state_node *node = state->nodes; s->nodes && node; node = node->hh.next)
        if (node->exists && node->ncards > 0)
            s->nodes[s->nnodes++] = (struct dra_candidate){node, why_not(s, node)};
    s->effort = DRA_EFFORT + s->nnodes * DEVICE_CHOICES_MAX;
    return s->nodes != NULL;
}
