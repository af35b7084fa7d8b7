/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* ResourceClaims in the daemon: rows of the watch table, and its start. Without the option --dra
 * none of the objects is watched, and nothing is allocated. */

#include "scheduler/daemon/watch.h"

struct scheduler;

/* The rows' `wanted`. */
bool dra_watch_wanted(const struct scheduler *s);

void dra_claims_begin(struct scheduler *s);
void dra_on_claim(struct scheduler *s, enum kube_event event, struct json object);
void dra_claims_end(struct scheduler *s);
void dra_classes_begin(struct scheduler *s);
void dra_on_class(struct scheduler *s, enum kube_event event, struct json object);
void dra_classes_end(struct scheduler *s);
void dra_slices_begin(struct scheduler *s);
void dra_on_slice(struct scheduler *s, enum kube_event event, struct json object);
void dra_slices_end(struct scheduler *s);

/* The same of pods and nodes, which have rows of their own. */
void dra_pods_begin(struct scheduler *s);
void dra_on_pod(struct scheduler *s, enum kube_event event, struct json object);
void dra_pods_end(struct scheduler *s);
void dra_nodes_begin(struct scheduler *s);
void dra_on_node(struct scheduler *s, enum kube_event event, struct json object);
void dra_nodes_end(struct scheduler *s);

/* Sets up s->dra. 0, or -ENOSPC: a table is full. */
int dra_start(struct scheduler *s);
