/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The part of a Pod that matters here. */

#include <stdbool.h>

#include "kube/dialect.h"
#include "wire/json.h"

struct err;

#define KUBE_UID_MAX 64
#define KUBE_LABEL_MAX 64 /* namespace, container name */
#define KUBE_NAME_MAX 254 /* pod, node, other objects' names */

struct pod {
    char uid[KUBE_UID_MAX];
    char namespace[KUBE_LABEL_MAX];
    char name[KUBE_NAME_MAX];
    char node[KUBE_NAME_MAX];     /* "" while not bound */
    bool deleting;                /* has a deletionTimestamp: its containers may still run */
    bool finished;                /* phase Succeeded or Failed: no container will run again */
    char *assignment;             /* annotation elasticgpu.io/assignment, or NULL */
    char *signature;              /* annotation elasticgpu.io/assignment-signature, or NULL */
    size_t annotation_bytes;      /* keys and values of all annotations, as the API server counts */
    enum request_problem problem; /* why `request` is not usable; REQUEST_OK otherwise */
    char problem_container[KUBE_LABEL_MAX];
    struct gpu_request request; /* n == 0: asks nothing of us */
};

/* Reads a Pod object. -EINVAL when it is none (no uid, name or namespace, or a wrong type where it
 * matters); a malformed GPU request is no error but a `problem`. Call pod_done() after success. */
int pod_parse(struct json object, struct pod *ret_pod, struct err *err);

void pod_done(struct pod *pod);
