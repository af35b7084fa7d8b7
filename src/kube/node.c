/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/node.h"

#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "kube/field.h"
#include "kube/quantity.h"

static bool is_some(struct json list, const char *name) {
    const char *text = json_string(json_get(list, name));
    uint64_t value;
    return text && quantity_parse(text, strlen(text), &value) == 0 && value > 0;
}

/* The status of the condition of that type; "" where it is missing. */
static const char *condition_status(struct json conditions, const char *wanted) {
    struct json_iter it = json_iter(conditions);
    struct json condition;
    while (json_next(&it, NULL, &condition)) {
        const char *type = json_string(json_get(condition, "type"));
        const char *status = json_string(json_get(condition, "status"));
        if (type && status && strcmp(type, wanted) == 0)
            return status;
    }
    return "";
}

static enum node_agent read_agent(struct json conditions) {
    const char *status = condition_status(conditions, NODE_AGENT_CONDITION);
    if (strcmp(status, "True") == 0)
        return NODE_AGENT_READY;
    return strcmp(status, "False") == 0 ? NODE_AGENT_STOPPING : NODE_AGENT_UNKNOWN;
}

static bool is_unready(struct json conditions) {
    const char *status = condition_status(conditions, "Ready");
    return strcmp(status, "False") == 0 || strcmp(status, "Unknown") == 0;
}

int node_object_parse(struct json object, struct node_object *ret_node, struct err *err) {
    struct json meta = json_get(object, "metadata");
    struct node_object node = {0};
    if (field_copy(json_get(meta, "name"), node.name, sizeof(node.name)) < 0 ||
        field_copy(json_get(meta, "uid"), node.uid, sizeof(node.uid)) < 0)
        return err_set(err, EINVAL, "not a node: name or uid is missing or too long");
    struct json allocatable = JSON_PATH(object, "status", "allocatable");
    node.allocatable = resources_read(allocatable);
    node.offered = is_some(allocatable, RESOURCE_CORE) && is_some(allocatable, RESOURCE_SLOT);
    struct json conditions = JSON_PATH(object, "status", "conditions");
    node.agent = read_agent(conditions);
    node.unready = is_unready(conditions);
    struct json_iter it = json_iter(JSON_PATH(object, "status", "addresses"));
    struct json address;
    while (json_next(&it, NULL, &address)) {
        const char *type = json_string(json_get(address, "type"));
        if (type && strcmp(type, "InternalIP") == 0 &&
            field_copy(json_get(address, "address"), node.internal_ip, sizeof(node.internal_ip)) ==
                0)
            break;
    }
    *ret_node = node;
    return 0;
}
