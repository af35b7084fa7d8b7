/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cluster/waiting.h"

#include <stdio.h>

#include "base/cleanup.h"
#include "cli/cluster/api.h"
#include "cli/cluster/wants.h"
#include "kube/objects/pod.h"

static const char *reason_of(const struct pod *pod, struct json object) {
    struct json conditions = JSON_PATH(object, "status", "conditions");
    struct json condition = json_find(conditions, "type", "PodScheduled");

    if (pod->problem != REQUEST_OK)
        return request_problem_text(pod->problem, pod->mixed);
    if (json_size(JSON_PATH(object, "spec", "schedulingGates")) > 0)
        return "scheduling gates";
    if (json_is_string(json_get(condition, "status"), "False"))
        return json_string_or(json_get(condition, "message"), "");
    return "not tried yet";
}

static void take_pod(struct json object,
                     void (*each)(const struct waiting_pod *pod, void *userdata), void *userdata) {
    char wants[WANTS_SIZE] = "";
    struct pod pod = {0};

    if (pod_parse(object, &pod, NULL) < 0)
        return;
    if (pod.request.n > 0)
        (void) request_wants(&pod.request, wants);
    if ((pod.request.n > 0 || pod.problem != REQUEST_OK) && !pod.node[0] && !pod.finished)
        each(
            &(struct waiting_pod){
                .namespace = pod.namespace,
                .name = pod.name,
                .wants = wants,
                .reason = reason_of(&pod, object),
                .since = (time_t) pod.created,
            },
            userdata);
    pod_done(&pod);
}

/* Pods that are on no node: few, where nothing is wrong. */
int waiting_read(const char *namespace, void (*each)(const struct waiting_pod *pod, void *userdata),
                 void *userdata, struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json pods, pod;
    char path[API_NAME_MAX + 96];

    if (namespace && !api_is_name(namespace))
        return err_set(err, EINVAL, "'%s' is no name of a namespace", namespace);
    (void) snprintf(path, sizeof(path), "/api/v1/%s%s%spods?fieldSelector=spec.nodeName%%3D",
                    namespace ? "namespaces/" : "", namespace ? namespace : "",
                    namespace ? "/" : "");
    int r = api_read(path, &parser, &pods, err);
    if (r < 0)
        return r;
    struct json_iter it = json_iter(json_get(pods, "items"));
    while (json_next(&it, NULL, &pod))
        take_pod(pod, each, userdata);
    return 0;
}
