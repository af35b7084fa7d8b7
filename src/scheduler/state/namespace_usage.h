/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What each namespace holds of the cluster's cards, kept true while pods come, are promised
 * something, and go. */

#include <stdint.h>

#include "kube/objects/quota_object.h"
#include "scheduler/state/state.h"

struct state_space {
    UT_hash_handle hh;
    char name[KUBE_LABEL_MAX];
    struct state *state;   /* that it is a part of */
    uint32_t pods;         /* that ask for GPUs, whether they hold anything or not */
    struct quota_use used; /* by pods that are bound or promised something */
};

/* NULL: no pod of that namespace asks for GPUs. */
struct state_space *state_space_find(struct state *s, const char *name);

/* What the pod holds or is promised: as its containers run, so that of init containers the one that
 * has most counts. */
struct quota_use state_pod_use(const struct state_pod *pod);

/* What containers take together as a quota counts it; slots are cards here. */
struct quota_use quota_use_of(const struct place_sum *sum);

/* ---- for objects.c and allocation.c ---- */

int space_join(struct state *s, struct state_pod *pod); /* 0 or -ENOMEM */
void space_leave(struct state *s, struct state_pod *pod);
void space_take(struct state_pod *pod); /* the pod has come to hold what it holds */
void space_give(struct state_pod *pod); /* and is about to lose it */
