/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A pod's constraints on its cards, from annotations: model, UUID, links between cards, placement
 * policies. The table in selection.c has a row for each annotation. */

#include <stdbool.h>
#include <stdint.h>

#include "model/annotation.h"

/* How well several cards of one container are to be connected. */
enum topology_policy {
    TOPOLOGY_UNSET,      /* as NONE for shares, as BEST among cards of equal cost for whole ones */
    TOPOLOGY_NONE,       /* whichever are cheapest to give away */
    TOPOLOGY_BEST,       /* the best connected that are free */
    TOPOLOGY_RESTRICTED, /* as good as the node has when it is empty, or not on that node */
};

#define POLICY_NAME_MAX 16

/* The lists are words with commas between, as written; NULL: not asked. */
struct gpu_selection {
    char *use_models, *avoid_models; /* parts of a model's name, in any case */
    char *use_uuids, *avoid_uuids;
    char *use_indexes; /* numbers of cards on their node, as HAMi lets a pod name them */
    enum topology_policy topology;
    bool numa_bind;                    /* the cards of one container are on one NUMA node */
    char node_policy[POLICY_NAME_MAX]; /* chooses the node; "" as the scheduler does */
    char card_policy[POLICY_NAME_MAX]; /* chooses the cards on it */
};

/* Reads the annotations of a pod. *ret is NULL when no annotation selects anything; free it with
 * selection_free(). -ENOMEM; -E2BIG: a list exceeds 4,096 bytes or 64 entries; -EINVAL: an
 * annotation of elasticgpu.io has an invalid value. */
int selection_parse(annotation_value value, const void *annotations, struct gpu_selection **ret);
struct gpu_selection *
selection_free(struct gpu_selection *selection); /* takes NULL, returns NULL */
struct gpu_selection *selection_copy(const struct gpu_selection *selection); /* NULL: no memory */

/* Whether the selection allows a card of that model, UUID or index. */
bool selection_model(const struct gpu_selection *selection, const char *model);
bool selection_uuid(const struct gpu_selection *selection, const char *uuid);
bool selection_index(const struct gpu_selection *selection, uint32_t index);

/* A hash, equal for equal selections and never 0; NULL has one, too. */
uint64_t selection_hash(const struct gpu_selection *selection);
