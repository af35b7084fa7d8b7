/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "wire/json.h"

/* Whether the condition Ready of a pod, as the API server has it, is True. */
static inline bool pod_is_ready(struct json pod) {
    struct json conditions = JSON_PATH(pod, "status", "conditions");

    return json_is_string(json_get(json_find(conditions, "type", "Ready"), "status"), "True");
}
