/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Nodes that do not exist yet: a cluster autoscaler checks whether a pod would fit on a node of a
 * group, given by a template. The node is evaluated as empty and is not stored. */

#include <stdint.h>

#include "place/place.h"
#include "wire/json.h"

struct gpu_selection;

/* The number of cards comes from status.allocatable (elasticgpu.io/gpu-core, else nvidia.com/gpu)
 * or the label nvidia.com/gpu.count; their memory from elasticgpu.io/gpu-memory or the label
 * nvidia.com/gpu.memory (MiB); their model from the label nvidia.com/gpu.product. `selection` may
 * be NULL. */
enum place_reason template_judge(struct place_plan *plan, const struct gpu_selection *selection,
                                 struct json node, int64_t *ret_score);
