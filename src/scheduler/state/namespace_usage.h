/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The usage of cards by namespace, updated with every allocation and its end. */

#include <stdint.h>

#include "kube/objects/quota_object.h"
#include "scheduler/state/state.h"

struct state_space {
    UT_hash_handle hh;
    char name[KUBE_LABEL_MAX];
    struct state *state;   /* that it is a part of */
    uint32_t pods;         /* that ask for GPUs, whether they hold anything or not */
    struct quota_use used; /* by pods with an allocation */
};

/* NULL: no pod of that namespace requests GPUs. */
struct state_space *state_space_find(struct state *s, const char *name);

/* What is allocated to the container of allocation *at, with a slot for each card; *at is then the
 * first allocation of the next container. */
struct place_amount state_container_amount(const struct state_pod *pod, uint32_t *at);

/* What is allocated to the pod. Init containers run one after the other, so only the largest
 * counts. */
struct quota_use state_pod_use(const struct state_pod *pod);

/* What containers take together as a quota counts it; slots are cards here. */
struct quota_use quota_use_of(const struct place_sum *sum);

/* ---- for objects.c and allocation.c ---- */

int space_join(struct state *s, struct state_pod *pod); /* 0 or -ENOMEM */
void space_leave(struct state *s, struct state_pod *pod);
void space_take(struct state_pod *pod); /* the pod has come to hold what it holds */
void space_give(struct state_pod *pod); /* and is about to lose it */
