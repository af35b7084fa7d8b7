/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the tools of other projects read of a pod: annotations, written with its Binding, and
 * environment variables of its containers. For information: the signed assignment decides what a
 * container gets. Each kind is a row of the table in dialect_export.c. Pure. */

#include <stddef.h>
#include <stdint.h>

#include "kube/objects/assignment.h"
#include "model/dialect.h"

struct json_writer;

struct export_pod {
    const struct container_request *containers;
    uint32_t ncontainers;
    const struct assignment *assignment;
    /* Memory of a card that the node offers, bytes; 0: not known. */
    uint64_t (*card_memory)(const char *uuid, void *userdata);
    void *userdata;
    uint64_t now_ns; /* since 1970 */
};

/* Writes the annotations of all dialects that the pod uses, as members of the object that `w` is
 * in. */
void export_annotate(const struct export_pod *pod, struct json_writer *w);

/* A part of a card that a container has. */
struct export_part {
    uint32_t index;
    uint32_t core;
    uint64_t memory, pod_memory, card_memory; /* bytes: its own, its pod's, all of the card */
};

#define EXPORT_ENV_MAX 96

/* Calls `put` with "NAME=value" for each variable, at most EXPORT_ENV_MAX long with its end and at
 * most 20 of them; stops at the first result below 0, which it returns. */
int export_env(enum export_kind kind, const struct export_part *parts, size_t n,
               int (*put)(const char *variable, void *userdata), void *userdata);

/* The kind as a stable name ("hami"), and back: EXPORT_NONE for others. */
const char *export_kind_name(enum export_kind kind);
enum export_kind export_kind_find(const char *name);
