/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Why a node cannot take a pod, container by container. Used inside place. */

#include "place/place.h"

/* Why the node could not take one of the containers even alone, a lasting reason before one that
 * can end; PLACE_OK: it could take each of them. */
enum place_reason place_reason_alone(const struct gpu_request *request,
                                     const struct place_node *node);
