/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The usage of cards by namespace, updated with every allocation and its end, and with the claims
 * of the namespace. What a claim has counts once: by itself, and not by the pods that use it. */

#include <stdint.h>

#include "kube/objects/quota_object.h"
#include "scheduler/state/state.h"

struct state_space {
    UT_hash_handle hh;
    char name[KUBE_LABEL_MAX];
    struct state *state;     /* that it is a part of */
    struct state_pod *first; /* those that ask for GPUs, whether they hold anything or not */
    uint32_t pods, charges;  /* how many there are */
    struct quota_usage used; /* by pods with an allocation, and by charges */
};

/* Reserved capacity that is of a namespace, as that of a claim. */
struct state_charge {
    UT_hash_handle hh;
    struct state_space *space;
    struct quota_use use;
    char id[];
};

/* NULL: no pod of that namespace requests GPUs, and no claim has any. */
struct state_space *state_space_find(struct state *s, const char *name);

/* What is allocated to the container of allocation *at, with a slot for each card; *at is then the
 * first allocation of the next container. */
struct place_amount state_container_amount(const struct state_pod *pod, uint32_t *at);

/* What is allocated to the pod, but for what is charged to its namespace already; `except` (may be
 * NULL) is a container that is not counted. Init containers run one after the other, so only the
 * largest counts. */
struct quota_use state_pod_use(const struct state_pod *pod, const char *except);

/* What containers take together as a quota counts it; slots are cards here. */
struct quota_use quota_use_of(const struct place_sum *sum);

/* ---- charges ---- */

/* More than any claim or container can have. An object may say more, and sums are not to overflow.
 */
#define STATE_CHARGE_MAX (UINT64_C(1) << 48)

static inline uint64_t state_charge_bound(uint64_t amount) {
    return amount < STATE_CHARGE_MAX ? amount : STATE_CHARGE_MAX;
}

/* Counts what is reserved under `id` as used by the namespace, whether or not it is reserved yet;
 * pods of the namespace that draw on it do not count for that. Replaces an earlier charge of that
 * id; 0 or -ENOMEM, which leaves none. What is more than STATE_CHARGE_MAX counts as that. */
int state_charge(struct state *s, const char *id, const char *namespace,
                 const struct quota_use *use);
void state_uncharge(struct state *s, const char *id);
const struct state_charge *state_charge_find(const struct state *s, const char *id);

/* Whether the container's amounts are those of a claim that is charged to the pod's namespace. */
bool state_is_charged(const struct state_pod *pod, const char *container);

/* ---- for objects.c, allocation.c and reserved.c ---- */

int space_join(struct state *s, struct state_pod *pod); /* 0 or -ENOMEM */
void space_leave(struct state *s, struct state_pod *pod);
void space_take(struct state_pod *pod);    /* the pod has come to hold what it holds */
void space_give(struct state_pod *pod);    /* and is about to lose it */
void space_recount(struct state_pod *pod); /* it draws on something else */
