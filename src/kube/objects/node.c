/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/objects/node.h"

#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "kube/api/field.h"
#include "model/quantity.h"

static bool is_some(struct json list, const char *name) {
    const char *text = json_string(json_get(list, name));
    uint64_t value;
    return text && quantity_parse(text, strlen(text), &value) == 0 && value > 0;
}

#define WHOLE_PREFIX "nvidia.com/" /* of the resources of whole devices, also of renamed ones */

static bool is_whole(const char *name) {
    return strncmp(name, WHOLE_PREFIX, strlen(WHOLE_PREFIX)) == 0;
}

static void read_whole(struct json status, struct node_object *ret) {
    struct json_iter it = json_iter(json_get(status, "capacity"));
    struct json value;
    const char *name;
    while (json_next(&it, &name, &value))
        ret->names_whole |= is_whole(name);
    it = json_iter(json_get(status, "allocatable"));
    while (json_next(&it, &name, &value))
        ret->offers_whole |= is_whole(name) && is_some(json_get(status, "allocatable"), name);
}

static bool has_status(struct json condition, const char *wanted) {
    return json_is_string(json_get(condition, "status"), wanted);
}

static enum node_agent read_agent(struct json condition) {
    if (has_status(condition, "True"))
        return NODE_AGENT_READY;
    return has_status(condition, "False") ? NODE_AGENT_STOPPING : NODE_AGENT_UNKNOWN;
}

enum node_agent node_agent_at(const struct node_object *node, int64_t now) {
    bool old = node->agent_since != 0 && now - node->agent_since > NODE_AGENT_STOPPING_MAX_S;
    return node->agent == NODE_AGENT_STOPPING && old ? NODE_AGENT_UNKNOWN : node->agent;
}

bool node_serves(const struct node_object *node, int64_t now) {
    return !node->unready && node->offered && node_agent_at(node, now) != NODE_AGENT_STOPPING;
}

bool node_serves_whole(const struct node_object *node, int64_t now) {
    return !node->unready && (node->offers_whole || !node->names_whole) &&
           node_agent_at(node, now) != NODE_AGENT_STOPPING;
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
    read_whole(json_get(object, "status"), &node);
    node_cpus_read(json_string(JSON_PATH(meta, "annotations", NODE_CPUS_ANNOTATION)), &node.cpus);
    struct json conditions = JSON_PATH(object, "status", "conditions");
    struct json agent = json_find(conditions, "type", NODE_AGENT_CONDITION);
    struct json ready = json_find(conditions, "type", "Ready");
    node.agent = read_agent(agent);
    node.agent_since = field_time(json_get(agent, "lastTransitionTime"));
    node.unready = has_status(ready, "False") || has_status(ready, "Unknown");
    struct json_iter it = json_iter(JSON_PATH(object, "status", "addresses"));
    struct json address;
    while (json_next(&it, NULL, &address)) {
        if (json_is_string(json_get(address, "type"), "InternalIP") &&
            field_copy(json_get(address, "address"), node.internal_ip, sizeof(node.internal_ip)) ==
                0)
            break;
    }
    *ret_node = node;
    return 0;
}
