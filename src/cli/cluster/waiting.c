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

struct visitor {
    void (*each)(const struct waiting_pod *pod, void *userdata);
    void *userdata;
};

static void take_pod(struct json object, void *userdata) {
    const struct visitor *visitor = userdata;
    char wants[WANTS_SIZE] = "";
    struct pod pod = {0};

    if (pod_parse(object, &pod, NULL) < 0)
        return;
    if (pod.request.n > 0)
        (void) request_wants(&pod.request, wants);
    if ((pod.request.n > 0 || pod.problem != REQUEST_OK) && !pod.node[0] && !pod.finished)
        visitor->each(
            &(struct waiting_pod){
                .namespace = pod.namespace,
                .name = pod.name,
                .wants = wants,
                .reason = reason_of(&pod, object),
                .since = (time_t) pod.created,
            },
            visitor->userdata);
    pod_done(&pod);
}

/* Pods that are on no node: few, where nothing is wrong. */
int waiting_read(const char *namespace, void (*each)(const struct waiting_pod *pod, void *userdata),
                 void *userdata, struct err *err) {
    struct visitor visitor = {each, userdata};
    char path[API_PATH_MAX];

    if (namespace && !api_is_name(namespace))
        return err_set(err, EINVAL, "'%s' is no name of a namespace", namespace);
    return api_each(api_list_path(API_UNBOUND_PODS, namespace, path), take_pod, &visitor, err);
}
