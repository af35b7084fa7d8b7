/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The claims controller in the daemon: rows of the watch table, and its start. */

#include "scheduler/daemon/watch.h"

struct scheduler;

extern const struct watch_handlers elastic_egpus, elastic_claims, elastic_classes;

/* Sets up s->elastic and its gate, which is the first one because it completes the pod's request.
 * 0, -ENOMEM, or -ENOSPC: a table is full. */
int elastic_start(struct scheduler *s);
