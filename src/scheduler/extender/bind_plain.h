/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Pods that request nothing of us: a managed resource name with quantity 0, or one that is left to
 * another plugin. */

#include "scheduler/cluster/api.h"
#include "scheduler/extender/binding.h"

/* For a pod that the state does not know to request a share. kube-scheduler hands over each pod
 * with a managed resource name, whatever its quantity, and names that are left to others; so the
 * API server is asked for the pod, and one that requests nothing gets a Binding without an
 * assignment. `request` is handed to `done`, inside the call or later; `api` must outlive that. */
void bind_plain(const struct api *api, const struct bind_target *target, bind_done done,
                void *request);
