/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A pod that uses ResourceClaims: which, and what keeps it off nodes. */

#include <stdbool.h>
#include <stdint.h>

#include "kube/api/labels.h"
#include "kube/api/names.h"
#include "kube/objects/pod.h"
#include "kube/objects/pod_claim_uses.h"
#include "kube/objects/resources.h"
#include "model/request_code.h"
#include "wire/json.h"

struct err;

#define POD_DEVICE_CLAIMS_MAX 32 /* of a pod; more are not served */
#define POD_TOLERATIONS_MAX ((size_t) 64 << 10)

struct pod_device_claim {
    char name[KUBE_LABEL_MAX];
    char claim[KUBE_NAME_MAX];   /* name of the ResourceClaim; "": not made of its template yet */
    char code[REQUEST_CODE_MAX]; /* name of its template where that is a request; "" */
};

struct pod_devices {
    char uid[KUBE_UID_MAX];
    char namespace[KUBE_LABEL_MAX];
    char name[KUBE_NAME_MAX];
    char node[KUBE_NAME_MAX]; /* "" while not bound */
    bool gated;               /* has the scheduling gate DRA_GATE */
    bool gated_by_others;     /* has another one */
    bool deleting;
    bool too_many; /* claims: those beyond the limit are left out */
    int32_t priority;
    int64_t created; /* seconds since 1970, or 0 */
    struct cpu_memory room;
    uint32_t nclaims;
    struct pod_device_claim *claims;
    size_t nuses; /* of claims that are there */
    struct pod_claim_use *uses;
    struct label_terms selector;   /* spec.nodeSelector */
    struct node_selector affinity; /* what its node affinity requires; n == 0: nothing */
    char *tolerations;             /* JSON; NULL: none */
    struct pod_terms terms;        /* of a pod with such templates */
};

/* Reads a pod. 0 where it uses no claims and has not our gate, and nothing is to be freed then; 1
 * where it does or has; -EINVAL: it is no pod, or a name is too long; -ENOMEM. Free with
 * pod_devices_done(). */
int pod_devices_parse(struct json object, struct pod_devices *ret, struct err *err);
void pod_devices_done(struct pod_devices *pod);

/* Whether a node with these labels ("key=value,"; NULL: none) and that name is one that the pod
 * names. */
bool pod_devices_may_be_on(const struct pod_devices *pod, const char *labels, const char *node);
