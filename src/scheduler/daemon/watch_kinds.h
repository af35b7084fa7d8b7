/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The kinds of objects that the scheduler watches, and the handlers of those that belong to no
 * controller: pods, nodes, GPU objects, namespaces, disruption budgets. */

#include "scheduler/daemon/watch.h"

/* Ends with a row without a path. */
extern const struct watch_kind watch_kinds[];
