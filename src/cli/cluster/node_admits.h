/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "wire/json.h"

/* Whether the node takes the pod by `kubectl cordon`, its taints, and the pod's nodeSelector and
 * required node affinity. `as_new`: whether a new node with the same labels and taints would, which
 * has another name and no taint that Kubernetes puts on a node by its state. */
bool node_admits(struct json node, struct json pod, bool as_new);
