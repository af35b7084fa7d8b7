/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The choice of kubelet among the IDs of whole devices and of replicas. Pure. */

#include <stdbool.h>
#include <stddef.h>

#include "agent/backends/backend.h"
#include "agent/config/node_config.h"

/* As `prefer` of struct backend. Instances: those of the cards with the fewest free ones, so that
 * other cards stay idle and can be divided anew. Whole cards: those that are linked best with each
 * other. Replicas: by the policy, as NVIDIA's device plugin: of the device with the fewest replicas
 * in use (distributed), with the most (packed), or first of devices that are linked best with those
 * of the container (aligned). */
size_t choose(const struct backend_choice *c, enum config_allocation policy, bool replicas,
              char **ret);
