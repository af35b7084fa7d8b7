/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube/objects/assignment.h"
#include "wire/json.h"

/* Whether a pod, as the API server has it, was given a share of a node's cards and has not ended.
 */
static inline bool pod_holds_share(struct json pod) {
    struct json phase = JSON_PATH(pod, "status", "phase");

    return json_valid(JSON_PATH(pod, "spec", "nodeName")) &&
           json_valid(JSON_PATH(pod, "metadata", "annotations", ANNOTATION_ASSIGNMENT)) &&
           !json_is_string(phase, "Succeeded") && !json_is_string(phase, "Failed");
}
