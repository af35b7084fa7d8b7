/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Nodes that do not exist yet: a cluster autoscaler asks whether a pod would fit on a node of some
 * kind, and shows what such a node would be. It is judged as if empty, and nothing is remembered
 * of it. */

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
