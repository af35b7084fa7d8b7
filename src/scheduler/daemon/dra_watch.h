/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* ResourceClaims in the daemon: rows of the watch table, and its start. Without the option --dra
 * none of the objects is watched, and nothing is allocated. */

#include "scheduler/daemon/watch.h"

struct scheduler;

/* The rows' `wanted`. */
bool dra_watch_wanted(const struct scheduler *s);

extern const struct watch_handlers dra_claims, dra_classes, dra_slices, dra_templates;

/* The same of pods and nodes, which have rows of their own. */
extern const struct watch_handlers dra_pods, dra_nodes;

/* Sets up s->dra. 0, or -ENOSPC: a table is full. */
int dra_start(struct scheduler *s);
