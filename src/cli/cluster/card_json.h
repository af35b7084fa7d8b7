/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Nodes, cards and holders as the document of -o json, whose schemas are docs/schemas. */

#include "cli/cluster/agents.h"
#include "cli/cluster/cards.h"
#include "wire/json_write.h"

/* {"nodes": [...]}; with `agents` the use of each card and holder as "use". */
void cards_document(const struct cards *cards, const struct agents *agents, struct json_writer *w);

/* "claim", and as "users" the containers that have its share together. `container`: the key of
 * their names. */
void holder_write_claim(struct json_writer *w, const struct holder *h, const char *container);

/* "node/NAME" of each node; "gpu.elasticgpu.io/NAME" of each card. */
void cards_node_names(const struct cards *cards, struct buf *out);
void cards_names(const struct cards *cards, struct buf *out);
