/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The status of the node's division on the Node: mig-manager's label nvidia.com/mig.config.state,
 * and the annotation MIG_ANNOTATION, which says of which configuration and why. Both are repaired
 * when they are changed. Without a wish they are removed, if an agent wrote them. */

#include "agent/mig/manager.h"
#include "wire/json.h"

struct kube_client;
struct mig_node_status;

#define MIG_STATE_LABEL "nvidia.com/mig.config.state"
#define MIG_ANNOTATION "elasticgpu.io/mig-config"

int mig_node_status_new(struct kube_client *client, const char *node, struct mig_node_status **ret);

/* The node as the API server has it. */
void mig_node_status_see(struct mig_node_status *s, struct json node);

void mig_node_status_set(struct mig_node_status *s, const struct mig_status *status);

/* Why it is not written; "": it is. */
const char *mig_node_status_trouble(const struct mig_node_status *s);

/* Before the client is closed. */
void mig_node_status_stop(struct mig_node_status *s);
