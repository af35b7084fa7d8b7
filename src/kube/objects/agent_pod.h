/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The pod of an agent. */

#include <stdbool.h>

#include "wire/json.h"

/* Whether the object is the pod of an agent that is installed in the namespace. `ret_runs`: one of
 * its containers runs. */
bool agent_pod_read(struct json pod, const char *name_space, bool *ret_runs);
