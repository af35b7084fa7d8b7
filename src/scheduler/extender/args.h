/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What kube-scheduler sends to filter and prioritize (k8s.io/kube-scheduler extender/v1,
 * ExtenderArgs), and the nodes of an answer in the form in which they were asked: with
 * nodeCacheCapable they are names, without it they are Node objects. Keys are without regard to
 * case, as Go's decoder takes them. */

#include <stdbool.h>
#include <stddef.h>

#include "wire/json.h"

struct err;
struct json_writer;

/* What is of use in a body: http_options.keep. For an unknown Node these are what it is judged by,
 * and what goes back of every Node. */
extern const char *const args_keep[];

/* Borrows from the parser. */
struct args {
    struct json pod;
    struct json nodes; /* array of names, or of Node objects */
    bool objects;      /* the latter */
    size_t n;          /* nodes left */
    struct json_iter at;
};

/* -EINVAL, -EBADMSG or -ENOMEM with the reason when it cannot be understood. */
int args_read(struct json_parser *parser, const char *body, size_t len, struct args *ret,
              struct err *err);

/* The next nodes offered, at most `max` of them: how many, 0 after the last one, or -EINVAL.
 * ret_objects[] are invalid where nodes are asked by name. */
int args_next(struct args *args, struct json_text *ret_names, struct json *ret_objects, size_t max,
              struct err *err);

/* An answer's list of nodes: between begin and end, those that the caller chooses. */
void args_put_begin(struct json_writer *w, bool objects);
void args_put(struct json_writer *w, const char *name, struct json object);
void args_put_end(struct json_writer *w, bool objects);
