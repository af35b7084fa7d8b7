/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube/api/names.h"
#include "wire/json.h"

#define OWNER_SIZE (KUBE_NAME_MAX + KUBE_LABEL_MAX)

/* What creates the pod, as "Deployment/web"; of a pod without a controller "Pod/NAME". A ReplicaSet
 * with the hash of a template in its name belongs to a Deployment. */
const char *owner_of(struct json pod, char ret[static OWNER_SIZE]);
