/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The ElasticGPUClaims that a pod names by annotations, one for each container at most:
 * `egpuc.elasticgpu.io/CONTAINER: CLAIM`, also spelled `elasticgpu.io/egpuc-CONTAINER` and
 * `egpuc-CONTAINER`; or a template `egpuct.elasticgpu.io/CONTAINER: SPEC`, the spec of a claim as
 * JSON, from which a claim of the pod's own is made. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pod_claim {
    char container[64];
    char claim[254]; /* name of the claim; of a template "" until pod_claims_name() */
    char *template;  /* JSON text, or NULL */
};

struct pod_claims {
    uint32_t n;
    struct pod_claim *list;
};

#define POD_CLAIMS_MAX 32 /* containers of a pod with a claim; more are not read */
#define POD_CLAIM_TEMPLATE_MAX 16384

/* What comes before the container's name; NULL past the last spelling. */
const char *pod_claims_prefix(size_t i);

/* Takes in one annotation, if it is of these. 0 or -ENOMEM. */
int pod_claims_add(struct pod_claims *claims, const char *key, const char *value);

/* Names the claims of templates: POD-CONTAINER. */
void pod_claims_name(struct pod_claims *claims, const char *pod);

/* The container's claim, or NULL. */
const struct pod_claim *pod_claims_find(const struct pod_claims *claims, const char *container);

/* Has the container's claim change places with list[to]; false when it is not there or
 * before that. */
bool pod_claims_move(struct pod_claims *claims, const char *container, uint32_t to);

/* Forgets all but the first `n`. */
void pod_claims_cut(struct pod_claims *claims, uint32_t n);

/* 0 or -ENOMEM. */
int pod_claims_copy(const struct pod_claims *from, struct pod_claims *ret);

void pod_claims_done(struct pod_claims *claims);
