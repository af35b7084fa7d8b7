/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Which containers of a pod use which ResourceClaims. */

#include <stddef.h>

#include "kube/api/names.h"
#include "wire/json.h"

/* A container uses a ResourceClaim of the pod's namespace. */
struct pod_claim_use {
    char container[KUBE_LABEL_MAX];
    char claim[KUBE_NAME_MAX];
};

#define POD_CLAIM_USES_MAX 256 /* of claims that are looked up */

/* Each use once, of claims that are there, init containers included; what is beyond the limit is
 * left out. 0 or -ENOMEM; *ret is the caller's to free, in any case. */
int pod_claim_uses_read(struct json pod, struct pod_claim_use **ret, size_t *ret_n);
