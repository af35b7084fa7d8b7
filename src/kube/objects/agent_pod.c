/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/objects/agent_pod.h"

#define NAME_LABEL "app.kubernetes.io/name"
#define NAME "aliquot-agent"

bool agent_pod_read(struct json pod, const char *name_space, bool *ret_runs) {
    struct json meta = json_get(pod, "metadata"), status;
    struct json_iter it = json_iter(JSON_PATH(pod, "status", "containerStatuses"));
    *ret_runs = false;
    if (!json_is_string(json_get(meta, "namespace"), name_space) ||
        !json_is_string(JSON_PATH(meta, "labels", NAME_LABEL), NAME))
        return false;
    while (json_next(&it, NULL, &status))
        *ret_runs |= json_valid(JSON_PATH(status, "state", "running"));
    return true;
}
