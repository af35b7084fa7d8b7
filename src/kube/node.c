/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/node.h"

#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "kube/field.h"

int node_object_parse(struct json object, struct node_object *ret_node, struct err *err) {
    struct json meta = json_get(object, "metadata");
    struct node_object node = {0};
    if (field_copy(json_get(meta, "name"), node.name, sizeof(node.name)) < 0 ||
        field_copy(json_get(meta, "uid"), node.uid, sizeof(node.uid)) < 0)
        return err_set(err, EINVAL, "not a node: name or uid is missing or too long");
    node.allocatable = resources_read(JSON_PATH(object, "status", "allocatable"));
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
