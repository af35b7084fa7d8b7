/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The part of a Pod that matters here. */

#include <stdbool.h>

#include "kube/api/names.h"
#include "kube/objects/pod_claims.h"
#include "kube/objects/resources.h"
#include "model/dialect.h"
#include "wire/json.h"

/* That the API server gives a pod which names none. */
#define POD_DEFAULT_SCHEDULER "default-scheduler"

struct err;
struct gpu_selection;
struct pod_gang;

/* Settings that a pod's annotations have for its containers: pairs `container=value`, separated by
 * commas, or one value for all containers. */
enum pod_setting {
    SETTING_POLICY,  /* elasticgpu.io/compute-policy, or tke.cloud.tencent.com/app-class */
    SETTING_WEIGHT,  /* elasticgpu.io/compute-weight */
    SETTING_CEILING, /* elasticgpu.io/compute-ceiling, or tencent.com/vcuda-core-limit */
    SETTING_MEMORY,  /* elasticgpu.io/memory-limit */
    SETTING_OVERUSE, /* elasticgpu.io/on-overuse: "stop" where the node only reports */
    SETTING_SCALING, /* elasticgpu.io/memory-scaling: the oversubscription of its memory */
    POD_SETTINGS,
};

struct pod {
    char uid[KUBE_UID_MAX];
    char namespace[KUBE_LABEL_MAX];
    char name[KUBE_NAME_MAX];
    char node[KUBE_NAME_MAX];     /* "" while not bound */
    bool deleting;                /* has a deletionTimestamp: its containers may still run */
    bool skips_upgrades;          /* has the label DRIVER_UPGRADE_SKIP_LABEL */
    bool finished;                /* phase Succeeded or Failed: no container will run again */
    char *assignment;             /* annotation elasticgpu.io/assignment, or NULL */
    char *signature;              /* annotation elasticgpu.io/assignment-signature, or NULL */
    char *settings[POD_SETTINGS]; /* NULL without the annotation */
    size_t annotation_bytes;      /* keys and values of all annotations, as the API server counts */
    enum request_problem problem; /* why `request` is not usable; REQUEST_OK otherwise */
    struct dialect_pair mixed;    /* of REQUEST_MIXED_DIALECTS */
    char problem_container[KUBE_LABEL_MAX];
    struct gpu_request request;      /* n == 0: requests no GPU of us */
    int32_t priority;                /* spec.priority; 0 where there is none */
    bool never_preempts;             /* spec.preemptionPolicy is Never */
    char nominated[KUBE_NAME_MAX];   /* status.nominatedNodeName: room is being made there, or "" */
    int64_t created;                 /* metadata.creationTimestamp, seconds since 1970, or 0 */
    struct cpu_memory room;          /* its requests of CPU and memory */
    bool guaranteed;                 /* see resources_guaranteed() */
    bool resource_claims;            /* it uses ResourceClaims, and `request` is empty */
    struct gpu_selection *selection; /* which cards it wants and how; NULL: any */
    /* Of a pod with GPU requests or ResourceClaims, as the next one; NULL: none. */
    struct pod_gang *gang;
    char *labels; /* "key=value," for each; NULL: none */
    /* spec.schedulerName; "": not known. */
    char scheduler[KUBE_NAME_MAX];
    struct pod_claims claims; /* of its containers; first of those that run the longest */
    uint32_t unserved;        /* its annotations without effect, as bits of dialect_unserved() */
};

/* What a pod's annotations say of its shares beside the amounts. */
struct pod_terms {
    char *settings[POD_SETTINGS];    /* NULL without the annotation */
    struct gpu_selection *selection; /* NULL: any cards */
    bool bad_selection;              /* one of its annotations has an invalid value */
};

/* Reads a Pod object. -EINVAL when it is none (no uid, name or namespace, or a wrong type where it
 * matters); a malformed GPU request is no error but a `problem`. Call pod_done() after success. */
int pod_parse(struct json object, struct pod *ret_pod, struct err *err);

void pod_done(struct pod *pod);

/* The value for one container, copied without blanks around it; false when there is none
 * for it, or more than fits. */
bool pod_setting(const struct pod *pod, enum pod_setting setting, const char *container,
                 char ret[static 64]);

/* As much of a pod whose requests are in claims. 0 or -ENOMEM. Call pod_terms_done() after success.
 */
int pod_terms_read(struct json annotations, struct pod_terms *ret);
void pod_terms_done(struct pod_terms *terms);
bool pod_terms_setting(const struct pod_terms *terms, enum pod_setting setting,
                       const char *container, char ret[static 64]);

/* The name of the annotation, for messages. */
const char *pod_setting_annotation(enum pod_setting setting);
