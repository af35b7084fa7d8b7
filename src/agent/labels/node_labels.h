/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The difference between the labels that a Node has and those that it should have. The annotation
 * NODE_LABELS_OWNED has the keys of the labels that an agent wrote: others are never removed. */

#include <stdbool.h>

#include "agent/labels/labels.h"
#include "base/buf.h"
#include "wire/json.h"

#define NODE_LABELS_OWNED "elasticgpu.io/feature-labels"
#define NODE_LABELS_TIMESTAMP "nvidia.com/gfd.timestamp"

/* What a Node has, of the two prefixes that are written. All zero: none. */
struct node_labels {
    struct label_set labels;
    char *owned; /* keys, each with a comma behind it; NULL: none */
};

/* Reads a Node object. -ENOMEM: *ret is not usable. node_labels_done() frees it. */
int node_labels_read(struct json node, struct node_labels *ret);

/* Whether the Node needs a patch. */
bool node_labels_differ(const struct node_labels *have, const struct label_set *want);

/* A merge patch of the Node that sets what differs, removes what is owned and not wanted, and says
 * when, in Unix time; 0: it does not. */
void node_labels_patch(const struct node_labels *have, const struct label_set *want, int64_t now,
                       struct buf *ret);

/* The labels as a file of node feature discovery, a line KEY=VALUE each. */
void node_labels_file(const struct label_set *want, struct buf *ret);

void node_labels_done(struct node_labels *labels);
