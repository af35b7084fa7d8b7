/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "wire/json.h"

/* Whether a taint keeps no pod with these tolerations off its node, which PreferNoSchedule never
 * does: as kube-scheduler decides. */
bool taint_is_tolerated(struct json taint, struct json tolerations);

/* The same of all taints of a node, as JSON texts; NULL: there are none. What cannot be read keeps
 * the pod off. */
bool taints_are_tolerated(const char *taints, const char *tolerations);
