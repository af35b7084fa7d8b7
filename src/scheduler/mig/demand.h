/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Pods that request whole MIG instances by NVIDIA's names, and what nodes offer of those. */

#include <stdbool.h>
#include <stdint.h>

#include "kube/api/labels.h"
#include "kube/api/names.h"
#include "kube/objects/resources.h"
#include "mig/name.h"
#include "wire/json.h"

#define MIG_NEEDS_MAX 8

/* Instances of each profile. */
struct mig_needs {
    uint32_t n;
    struct mig_need {
        struct mig_name profile;
        uint32_t count;
    } v[MIG_NEEDS_MAX];
};

uint32_t mig_needs_get(const struct mig_needs *needs, const struct mig_name *profile);
/* What has no room is left out. */
void mig_needs_add(struct mig_needs *needs, const struct mig_name *profile, uint32_t count);

struct mig_pod {
    char uid[KUBE_UID_MAX];
    char namespace[KUBE_LABEL_MAX];
    char name[KUBE_NAME_MAX];
    char node[KUBE_NAME_MAX]; /* "": it is not bound */
    bool deleting;
    bool unschedulable; /* kube-scheduler has found no node for it */
    bool gated;         /* kube-scheduler does not try to place it */
    int64_t created;    /* seconds since 1970 */
    struct mig_needs needs;
    struct cpu_memory room;
    struct label_terms labels;     /* spec.nodeSelector */
    struct node_selector affinity; /* the nodes that its node affinity requires */
    char *tolerations;             /* JSON; NULL: none */
    char *constraints;             /* JSON of these three, to compare */
};

/* -ENOENT: it requests no MIG instance; -EINVAL: it is no pod, or what it requires of nodes cannot
 * be read; -ENOMEM. */
int mig_pod_read(struct json object, struct mig_pod *ret);
void mig_pod_done(struct mig_pod *pod);

/* Whether both need the same on the same nodes: where one has no room, the other has none. */
bool mig_pod_is_alike(const struct mig_pod *a, const struct mig_pod *b);

struct mig_node {
    char name[KUBE_NAME_MAX];
    struct mig_needs allocatable;
    char *labels; /* as labels_read() */
    char *taints; /* JSON; NULL: none */
};

/* -ENOENT: a node without devices of a GPU; -EINVAL: it is no node; -ENOMEM. */
int mig_node_read(struct json object, struct mig_node *ret);
void mig_node_done(struct mig_node *node);

/* Whether nodeSelector, required node affinity and taints let the pod be on the node. */
bool mig_pod_may_be_on(const struct mig_pod *pod, const struct mig_node *node);
