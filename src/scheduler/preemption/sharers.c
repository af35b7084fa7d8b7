/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/preemption/sharers.h"

/* Each pod leads to one that came before it, or is the lead; the ways are halved as they are gone.
 */
static struct state_pod *lead_of(struct state_pod *pod) {
    while (pod->preemption.lead != pod) {
        pod->preemption.lead = pod->preemption.lead->preemption.lead;
        pod = pod->preemption.lead;
    }
    return pod;
}

/* Two rings become one when two of their members change places. */
static void join(struct state_pod *a, struct state_pod *b) {
    struct state_pod *of_a = lead_of(a), *of_b = lead_of(b);
    struct state_pod *next = a->preemption.next_sharer;
    if (of_a == of_b)
        return;
    a->preemption.next_sharer = b->preemption.next_sharer;
    b->preemption.next_sharer = next;
    if (of_a->came < of_b->came)
        of_b->preemption.lead = of_a;
    else
        of_a->preemption.lead = of_b;
}

static void join_users(struct state *s, struct state_node *node, struct state_reserved *kept) {
    struct state_pod *first = NULL;
    bool all = kept->nusers > 0;
    for (uint32_t i = 0; i < kept->nusers; i++) {
        struct state_pod *pod = state_pod_find(s, kept->users[i]);
        bool here = pod && pod->node == node;
        all &= here && pod->stage == POD_BOUND;
        if (here && first)
            join(first, pod);
        else if (here)
            first = pod;
    }
    kept->sharer = all ? first : NULL;
}

uint32_t sharers_find(struct state *s, struct state_node *node) {
    uint32_t uses = 0;
    for (struct state_pod *pod = node->pods; pod; pod = pod->next)
        pod->preemption.next_sharer = pod->preemption.lead = pod;
    for (struct state_reserved *kept = node->reserved; kept; kept = kept->next) {
        join_users(s, node, kept);
        uses += kept->nusers;
    }
    for (struct state_pod *pod = node->pods; pod; pod = pod->next)
        pod->preemption.lead = lead_of(pod);
    return uses;
}
