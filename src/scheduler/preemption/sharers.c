/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/preemption/sharers.h"

bool sharers_are(const struct state_pod *a, const struct state_pod *b) {
    const struct state_pod *at = a;
    do {
        if (at == b)
            return true;
        at = at->preemption.next_sharer;
    } while (at != a);
    return false;
}

/* Two rings become one when two of their members change places. */
static void join(struct state_pod *a, struct state_pod *b) {
    struct state_pod *next = a->preemption.next_sharer;
    if (sharers_are(a, b))
        return;
    a->preemption.next_sharer = b->preemption.next_sharer;
    b->preemption.next_sharer = next;
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

void sharers_find(struct state *s, struct state_node *node) {
    for (struct state_pod *pod = node->pods; pod; pod = pod->next)
        pod->preemption.next_sharer = pod;
    for (struct state_reserved *kept = node->reserved; kept; kept = kept->next)
        join_users(s, node, kept);
}
