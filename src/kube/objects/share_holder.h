/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube/objects/assignment.h"
#include "model/dra.h"
#include "wire/json.h"

/* Whether a pod, as the API server has it, was given a share of a node's cards and has not ended.
 */
static inline bool pod_holds_share(struct json pod) {
    struct json phase = JSON_PATH(pod, "status", "phase");

    return json_valid(JSON_PATH(pod, "spec", "nodeName")) &&
           json_valid(JSON_PATH(pod, "metadata", "annotations", ANNOTATION_ASSIGNMENT)) &&
           !json_is_string(phase, "Succeeded") && !json_is_string(phase, "Failed");
}

/* Whether a ResourceClaim, as the API server has it, has devices of our driver that pods use. */
static inline bool claim_holds_share(struct json claim) {
    struct json results = JSON_PATH(claim, "status", "allocation", "devices", "results");

    return json_valid(json_find(results, "driver", DRA_DRIVER)) &&
           json_size(JSON_PATH(claim, "status", "reservedFor")) > 0;
}
