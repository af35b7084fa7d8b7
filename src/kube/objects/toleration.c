/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/objects/toleration.h"

#include <string.h>

static bool tolerates(struct json toleration, struct json taint) {
    const char *key = json_string_or(json_get(toleration, "key"), "");
    const char *effect = json_string_or(json_get(toleration, "effect"), "");
    if ((effect[0] && !json_is_string(json_get(taint, "effect"), effect)) ||
        (key[0] && !json_is_string(json_get(taint, "key"), key)))
        return false;
    if (json_is_string(json_get(toleration, "operator"), "Exists"))
        return true;
    return key[0] && strcmp(json_string_or(json_get(toleration, "value"), ""),
                            json_string_or(json_get(taint, "value"), "")) == 0;
}

bool taint_is_tolerated(struct json taint, struct json tolerations) {
    struct json_iter it = json_iter(tolerations);
    struct json toleration;
    if (json_is_string(json_get(taint, "effect"), "PreferNoSchedule"))
        return true;
    while (json_next(&it, NULL, &toleration))
        if (tolerates(toleration, taint))
            return true;
    return false;
}

bool taints_are_tolerated(const char *taints, const char *tolerations) {
    _cleanup_json_ struct json_parser *of_pod = NULL, *of_node = NULL;
    struct json list = {0}, all, taint;

    if (!taints)
        return true;
    if ((tolerations && json_open(tolerations, strlen(tolerations), &of_pod, &list, NULL) < 0) ||
        json_open(taints, strlen(taints), &of_node, &all, NULL) < 0)
        return false;
    struct json_iter it = json_iter(all);
    while (json_next(&it, NULL, &taint))
        if (!taint_is_tolerated(taint, list))
            return false;
    return true;
}
