/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/extender/binding.h"

#include <stdio.h>

#include "kube/api/object_write.h"
#include "wire/json_write.h"

void binding_path(const struct bind_target *target, const char *subresource,
                  char ret[static BINDING_PATH_MAX]) {
    (void) snprintf(ret, BINDING_PATH_MAX, "/api/v1/namespaces/%s/pods/%s%s", target->namespace,
                    target->name, subresource);
}

void binding_encode(const struct bind_target *target, const char *annotations, struct buf *out) {
    struct json_writer w = {.out = out};
    object_begin(&w, "v1", "Binding", target->name, target->namespace);
    json_put_string(&w, "uid", target->uid);
    json_object_begin(&w, "annotations");
    buf_puts(out, annotations);
    json_object_end(&w);
    json_object_end(&w);
    json_object_begin(&w, "target");
    json_put_string(&w, "apiVersion", "v1");
    json_put_string(&w, "kind", "Node");
    json_put_string(&w, "name", target->node);
    json_object_end(&w);
    json_object_end(&w);
}
