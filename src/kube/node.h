/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The part of a Node that matters here. */

#include <stdbool.h>

#include "kube/pod.h"

struct node_object {
    char name[KUBE_NAME_MAX];
    char uid[KUBE_UID_MAX];
    char internal_ip[64]; /* first InternalIP, or "" */
    struct cpu_memory allocatable;
};

/* Reads a Node object; -EINVAL when it is none. */
int node_object_parse(struct json object, struct node_object *ret_node, struct err *err);
