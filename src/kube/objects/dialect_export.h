/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What other projects' own tools read of a pod: annotations that come with its Binding, and
 * environment variables of its containers. Information only: what a container really gets is the
 * signed assignment's authority. A kind of project is a row of the table in dialect_export.c. Pure.
 */

#include <stddef.h>
#include <stdint.h>

#include "kube/objects/assignment.h"
#include "model/dialect.h"

struct json_writer;

struct foreign_pod {
    const struct container_request *containers;
    uint32_t ncontainers;
    const struct assignment *assignment;
    /* All that is sold of a card, bytes; 0: not known. */
    uint64_t (*card_memory)(const char *uuid, void *userdata);
    void *userdata;
    uint64_t now_ns; /* since 1970 */
};

/* Writes the annotations of all dialects that the pod uses, as members of the object that `w` is
 * in. */
void foreign_annotate(const struct foreign_pod *pod, struct json_writer *w);

/* A part of a card that a container has. */
struct foreign_part {
    uint32_t index;
    uint32_t core;
    uint64_t memory, pod_memory, card_memory; /* bytes: its own, its pod's, all of the card */
};

#define FOREIGN_ENV_MAX 96

/* Calls `put` with "NAME=value" for each variable, at most FOREIGN_ENV_MAX long with its end and at
 * most 20 of them; stops at the first result below 0, which it returns. */
int foreign_env(enum foreign_kind kind, const struct foreign_part *parts, size_t n,
                int (*put)(const char *variable, void *userdata), void *userdata);

/* The kind as a stable name ("hami"), and back: FOREIGN_NONE for others. */
const char *foreign_name(enum foreign_kind kind);
enum foreign_kind foreign_find(const char *name);
