/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The claims controller in the daemon: rows of the watch table, and its start. */

#include "scheduler/daemon/watch.h"

struct scheduler;

void elastic_egpus_begin(struct scheduler *s);
void elastic_on_egpu(struct scheduler *s, enum kube_event event, struct json object);
void elastic_egpus_end(struct scheduler *s);
void elastic_claims_begin(struct scheduler *s);
void elastic_on_claim(struct scheduler *s, enum kube_event event, struct json object);
void elastic_claims_end(struct scheduler *s);
void elastic_classes_begin(struct scheduler *s);
void elastic_on_class(struct scheduler *s, enum kube_event event, struct json object);
void elastic_classes_end(struct scheduler *s);

/* Sets up s->elastic and its gate, which is the first one because it completes the pod's request.
 * 0, -ENOMEM, or -ENOSPC: a table is full. */
int elastic_start(struct scheduler *s);
