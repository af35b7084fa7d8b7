/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/state/namespace_usage.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "scheduler/state/state_internal.h"

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
struct quota_use state_pod_use(const struct state_pod *pod, const char *except) {
    struct place_sum sum = {0};
    for (uint32_t i = 0; i < pod->nallocations;) {
        const struct state_allocation *of = &pod->allocations[i];
        const struct place_amount amount = state_container_amount(pod, &i);
        if (!state_is_charged(pod, of->container) &&
            (!except || strcmp(except, of->container) != 0))
            place_sum_add(&sum, of->phase, &amount);
    }
    return quota_use_of(&sum);
}

/* ---- namespaces ---- */

static struct state_space *space_get(struct state *s, const char *name) {
    struct state_space *space = state_space_find(s, name);
    if (space || !(space = calloc(1, sizeof(*space))))
        return space;
    space->state = s;
    memcpy(space->name, name, strlen(name) + 1);
    HASH_ADD_STR(s->spaces, name, space);
    return hash_added_or_freed(space);
}

static void space_drop_if_unused(struct state *s, struct state_space *space) {
    if (space->pods > 0 || space->charges > 0)
        return;
    HASH_DEL(s->spaces, space);
    free(space);
}

int space_join(struct state *s, struct state_pod *pod) {
    struct state_space *space = space_get(s, pod->namespace);
    if (!space)
        return -ENOMEM;
    space->pods++;
    DL_APPEND2(space->first, pod, space_prev, space_next);
    pod->space = space;
    return 0;
}

void space_leave(struct state *s, struct state_pod *pod) {
    struct state_space *space = pod->space;
    pod->space = NULL;
    if (!space)
        return;
    space->pods--;
    DL_DELETE2(space->first, pod, space_prev, space_next);
    space_drop_if_unused(s, space);
}

static void add(struct state_space *space, struct quota_use *sum, const struct quota_use *use) {
    space->state->uses++;
    for (int r = 0; r < QUOTA_RESOURCES; r++) {
        assert(use->of[r] <= UINT64_MAX - sum->of[r]);
        sum->of[r] += use->of[r];
    }
}

static void subtract(struct state_space *space, struct quota_use *sum,
                     const struct quota_use *use) {
    space->state->uses++;
    for (int r = 0; r < QUOTA_RESOURCES; r++) {
        assert(use->of[r] <= sum->of[r]);
        sum->of[r] -= use->of[r];
    }
}

void space_take(struct state_pod *pod) {
    if (!pod->space)
        return;
    pod->used = state_pod_use(pod, NULL);
    add(pod->space, &pod->space->used.all, &pod->used);
}

void space_give(struct state_pod *pod) {
    if (!pod->space)
        return;
    subtract(pod->space, &pod->space->used.all, &pod->used);
    pod->used = (struct quota_use){0};
}

void space_recount(struct state_pod *pod) {
    space_give(pod);
    space_take(pod);
}

/* ---- charges ---- */

static struct quota_use bounded(const struct quota_use *use) {
    struct quota_use ret;
    for (int r = 0; r < QUOTA_RESOURCES; r++)
        ret.of[r] = state_charge_bound(use->of[r]);
    return ret;
}

static struct state_charge *find_charge(const struct state *s, const char *id) {
    struct state_charge *charge;
    HASH_FIND_STR(s->charges, id, charge);
    return charge;
}

const struct state_charge *state_charge_find(const struct state *s, const char *id) {
    return find_charge(s, id);
}

static bool is_claimed(const struct state_pod *pod, const char *container) {
    for (uint32_t i = 0; i < pod->ncontainers; i++)
        if (strcmp(pod->containers[i].container, container) == 0)
            return pod->containers[i].claimed;
    return false;
}

bool state_is_charged(const struct state_pod *pod, const char *container) {
    const struct state_charge *charge =
        pod->space && pod->space->charges > 0 && is_claimed(pod, container)
            ? find_charge(pod->space->state, state_draw_id(pod, container))
            : NULL;
    return charge && charge->space == pod->space;
}

static void recount_pods(struct state_space *space) {
    for (struct state_pod *pod = space->first; pod; pod = pod->space_next)
        if (pod->draws && pod->nallocations > 0)
            space_recount(pod);
}

void state_uncharge(struct state *s, const char *id) {
    struct state_charge *charge = find_charge(s, id);
    if (!charge)
        return;
    struct state_space *space = charge->space;
    HASH_DEL(s->charges, charge);
    subtract(space, &space->used.all, &charge->use);
    subtract(space, &space->used.claims, &charge->use);
    free(charge);
    recount_pods(space);
    space->charges--;
    space_drop_if_unused(s, space);
}

/* One that counts nothing yet. */
static struct state_charge *charge_new(struct state *s, const char *id, const char *namespace) {
    size_t len = strlen(id) + 1;
    struct state_charge *charge = calloc(1, sizeof(*charge) + len);
    struct state_space *space = charge ? space_get(s, namespace) : NULL;
    if (!space) {
        free(charge);
        return NULL;
    }
    memcpy(charge->id, id, len);
    HASH_ADD_STR(s->charges, id, charge);
    if (!(charge = hash_added_or_freed(charge))) {
        space_drop_if_unused(s, space);
        return NULL;
    }
    charge->space = space;
    space->charges++;
    return charge;
}

int state_charge(struct state *s, const char *id, const char *namespace,
                 const struct quota_use *use) {
    struct state_charge *charge = find_charge(s, id);
    const struct quota_use now = bounded(use);
    if (charge && strcmp(charge->space->name, namespace) != 0) {
        state_uncharge(s, id);
        charge = NULL;
    }
    bool new = !charge;
    if (new && !(charge = charge_new(s, id, namespace)))
        return -ENOMEM;
    struct state_space *space = charge->space;
    if (!new &&memcmp(&charge->use, &now, sizeof(now)) == 0)
        return 0;
    subtract(space, &space->used.all, &charge->use);
    subtract(space, &space->used.claims, &charge->use);
    charge->use = now;
    add(space, &space->used.all, &now);
    add(space, &space->used.claims, &now);
    if (new)
        recount_pods(space);
    return 0;
}
