/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/extender/args.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "wire/json_write.h"

#define NODES_MAX 100000

const char *const args_keep[] = {
    /* filter, prioritize */
    "Pod",
    "NodeNames",
    "Nodes/items/*/metadata/name",
    "Nodes/items/*/metadata/labels",
    "Nodes/items/*/status/allocatable",
    /* preempt: the identity of whole pods */
    "NodeNameToVictims/*/NumPDBViolations",
    "NodeNameToVictims/*/Pods/*/UID",
    "NodeNameToVictims/*/Pods/*/metadata/uid",
    "NodeNameToMetaVictims",
    /* bind */
    "PodName",
    "PodNamespace",
    "PodUID",
    "Node",
    NULL,
};

int args_read(struct json_parser *parser, const char *body, size_t len, struct args *ret,
              struct err *err) {
    struct json root;
    int r = json_parse(parser, body, len, &root, err);
    if (r < 0) {
        err_wrap(err, "cannot read the request");
        return r;
    }
    if (json_type(root) != JSON_OBJECT)
        return err_set(err, EINVAL, "the request is not a JSON object");
    struct args args = {.pod = json_get_nocase(root, "Pod"),
                        .nodes = json_get_nocase(root, "NodeNames")};
    if (json_type(args.nodes) != JSON_ARRAY) {
        args.nodes = json_get_nocase(json_get_nocase(root, "Nodes"), "items");
        args.objects = true;
    }
    if (json_type(args.nodes) != JSON_ARRAY)
        return err_set(err, EINVAL, "the request has neither NodeNames nor Nodes");
    args.n = json_size(args.nodes);
    if (args.n > NODES_MAX)
        return err_set(err, EINVAL, "the request names more than %d nodes", NODES_MAX);
    args.at = json_iter(args.nodes);
    *ret = args;
    return 0;
}

static size_t next_objects(struct args *args, struct json_text *names, struct json *objects,
                           size_t max) {
    size_t n = 0;
    for (; n < max && json_next(&args->at, NULL, &objects[n]); n++) {
        struct json metadata = json_get_nocase(objects[n], "metadata");
        const char *name = json_string(json_get_nocase(metadata, "name"));
        if (!name)
            break;
        names[n] = (struct json_text){name, strlen(name)};
    }
    return n;
}

int args_next(struct args *args, struct json_text *ret_names, struct json *ret_objects, size_t max,
              struct err *err) {
    size_t left = args->n < max ? args->n : max, n;
    if (args->objects) {
        n = next_objects(args, ret_names, ret_objects, left);
    } else {
        memset(ret_objects, 0, left * sizeof(*ret_objects));
        n = json_next_texts(&args->at, ret_names, left);
    }
    args->n -= n;
    if (n < left)
        return err_set(err, EINVAL, "%s holds something other than %s",
                       args->objects ? "Nodes" : "NodeNames",
                       args->objects ? "nodes with a name" : "names");
    return (int) n;
}

void args_put_begin(struct json_writer *w, bool objects) {
    if (objects)
        json_object_begin(w, "Nodes");
    json_array_begin(w, objects ? "items" : "NodeNames");
}

void args_put(struct json_writer *w, const char *name, struct json object) {
    _cleanup_buf_ struct buf text = BUF_INIT(w->out->max);
    if (!json_valid(object)) {
        json_put_string(w, NULL, name);
        return;
    }
    json_print(&text, object);
    json_put_raw(w, NULL, buf_str(&text));
    if (text.error)
        w->out->error = text.error;
}

void args_put_end(struct json_writer *w, bool objects) {
    json_array_end(w);
    if (objects)
        json_object_end(w);
}
