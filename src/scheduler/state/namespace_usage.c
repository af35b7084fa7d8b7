/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/state/namespace_usage.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct state_space *state_space_find(struct state *s, const char *name) {
    struct state_space *space;
    HASH_FIND_STR(s->spaces, name, space);
    return space;
}

struct quota_use quota_use_of(const struct place_sum *sum) {
    const struct place_amount total = place_sum_total(sum);
    return (struct quota_use){{
        [QUOTA_CORE] = total.core,
        [QUOTA_MEMORY] = total.memory,
        [QUOTA_CARDS] = total.slots,
    }};
}

/* The allocations of one container follow each other. */
struct place_amount state_container_amount(const struct state_pod *pod, uint32_t *at) {
    const char *container = pod->allocations[*at].container;
    struct place_amount amount = {0};
    for (; *at < pod->nallocations && strcmp(pod->allocations[*at].container, container) == 0;
         (*at)++) {
        amount.core += pod->allocations[*at].device.core;
        amount.memory += pod->allocations[*at].device.memory;
        amount.slots++;
    }
    return amount;
}

/* A quota counts slots as cards. */
struct quota_use state_pod_use(const struct state_pod *pod) {
    struct place_sum sum = {0};
    for (uint32_t i = 0; i < pod->nallocations;) {
        const enum container_phase phase = pod->allocations[i].phase;
        const struct place_amount amount = state_container_amount(pod, &i);
        place_sum_add(&sum, phase, &amount);
    }
    return quota_use_of(&sum);
}

int space_join(struct state *s, struct state_pod *pod) {
    struct state_space *space = state_space_find(s, pod->namespace);
    if (!space) {
        if (!(space = calloc(1, sizeof(*space))))
            return -ENOMEM;
        space->state = s;
        memcpy(space->name, pod->namespace, sizeof(space->name));
        HASH_ADD_STR(s->spaces, name, space);
        if (!(space = hash_added_or_freed(space)))
            return -ENOMEM;
    }
    space->pods++;
    pod->space = space;
    return 0;
}

void space_leave(struct state *s, struct state_pod *pod) {
    struct state_space *space = pod->space;
    pod->space = NULL;
    if (!space || --space->pods > 0)
        return;
    HASH_DEL(s->spaces, space);
    free(space);
}

void space_take(struct state_pod *pod) {
    struct quota_use use = state_pod_use(pod);
    if (!pod->space)
        return;
    pod->space->state->uses++;
    for (int r = 0; r < QUOTA_RESOURCES; r++) {
        assert(use.of[r] <= UINT64_MAX - pod->space->used.of[r]);
        pod->space->used.of[r] += use.of[r];
    }
}

void space_give(struct state_pod *pod) {
    struct quota_use use = state_pod_use(pod);
    if (!pod->space)
        return;
    pod->space->state->uses++;
    for (int r = 0; r < QUOTA_RESOURCES; r++) {
        assert(use.of[r] <= pod->space->used.of[r]);
        pod->space->used.of[r] -= use.of[r];
    }
}
