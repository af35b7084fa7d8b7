/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a namespace may hold of the cluster's cards: an ElasticGPUQuota, or the entries of a
 * ResourceQuota that Kubernetes keeps and does not count. */

#include <stdbool.h>
#include <stdint.h>

#include "kube/objects/pod.h"

struct buf;

#define QUOTAS_PATH "/apis/elasticgpu.io/v1alpha1/elasticgpuquotas"
#define RESOURCE_QUOTAS_PATH "/api/v1/resourcequotas"

/* How the reasons begin for which a quota holds a pod, in kube-scheduler's message as well. */
#define QUOTA_EXCEEDED "quota exceeded: namespace"
#define QUOTA_NOTHING_LEFT "nothing left to borrow: cohort"

/* Counted over all cards that a pod has: a pod with 30 % of each of two cards uses 60. */
enum quota_resource {
    QUOTA_CORE,   /* percent of a card */
    QUOTA_MEMORY, /* bytes */
    QUOTA_CARDS,  /* cards of which it has a share or all */
    QUOTA_RESOURCES,
};

struct quota_use {
    uint64_t of[QUOTA_RESOURCES];
};

/* What a namespace has of them. */
struct quota_usage {
    struct quota_use all;
    struct quota_use claims; /* the part that its claims have, whether pods use them or not */
};

/* Resource name under which it is written: "elasticgpu.io/gpu-core". */
const char *quota_resource_name(enum quota_resource resource);

struct quota_object {
    char namespace[KUBE_LABEL_MAX];
    char name[KUBE_NAME_MAX];
    char cohort[KUBE_LABEL_MAX];          /* quotas that borrow from each other; "": none */
    bool counted[QUOTA_RESOURCES];        /* whether it limits that resource */
    uint64_t guaranteed[QUOTA_RESOURCES]; /* 0 where not given */
    uint64_t max[QUOTA_RESOURCES];        /* UINT64_MAX: no limit of its own */
    /* Limits that Kubernetes counts, by the requests of pods: where there are claims, they are for
     * claims and pods together. */
    bool has_requests[QUOTA_RESOURCES];
    uint64_t requests[QUOTA_RESOURCES];
    bool has_used;           /* there is a status */
    bool has_claims;         /* with the part of claims */
    struct quota_usage used; /* of the status */
};

/* Reads an ElasticGPUQuota; -EINVAL when it is none. */
int quota_object_parse(struct json object, struct quota_object *ret, struct err *err);

/* Reads a ResourceQuota: its entries limits.NAME for the names above and HAMi's gpumem and
 * gpucores, and requests.NAME for compute and memory. One without such entries, or with scopes,
 * counts nothing. */
int resource_quota_parse(struct json object, struct quota_object *ret, struct err *err);

/* Appends the patch of its status. */
void quota_object_encode_status(const struct quota_usage *used, struct buf *out);
