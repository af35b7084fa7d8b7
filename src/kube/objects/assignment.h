/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The assignment: which part of which cards each container of a pod holds. It travels as
 * annotations of the Binding, signed (Ed25519) over the pod's UID, the node and its own text, so
 * that it can neither be copied to another pod nor be forged. */

#include <stddef.h>
#include <stdint.h>

#include "kube/objects/gpu_object.h"
#include "kube/objects/signing.h"
#include "model/dialect.h"

struct buf;
struct err;

#define ANNOTATION_ASSIGNMENT "elasticgpu.io/assignment"
#define ANNOTATION_SIGNATURE "elasticgpu.io/assignment-signature"
#define ASSIGNMENT_VERSION 1
#define ASSIGNMENT_TEXT_MAX (128 << 10)

/* A share of one card, or all of it (core 100). */
struct assigned_device {
    uint32_t index;
    char uuid[GPU_UUID_MAX];
    uint32_t core;   /* percent; 0: no guarantee; 100: the whole card */
    uint64_t memory; /* bytes, never 0 */
    /* The physical part of `memory`, never 0; less than `memory` only under oversubscription. */
    uint64_t physical;
};

struct assigned_container {
    char name[KUBE_LABEL_MAX];
    uint32_t ndevices;
    struct assigned_device *devices;
};

struct assignment {
    bool newer; /* of a scheduler of a later version: to be counted, and not to be carried out */
    char node[KUBE_NAME_MAX];
    uint32_t ncontainers;
    struct assigned_container *containers;
};

/* Reads and checks the text of the annotation. Strict: wrong types, numbers out of range, no or
 * duplicate containers or cards are -EINVAL. What version 1 has is the same in every version. Free
 * with assignment_done(). */
int assignment_parse(const char *text, struct assignment *ret, struct err *err);
void assignment_done(struct assignment *a);

/* The container's part, or NULL. */
const struct assigned_container *assignment_find(const struct assignment *a, const char *container);

/* Appends the compact JSON text. */
void assignment_encode(const struct assignment *a, struct buf *out);
