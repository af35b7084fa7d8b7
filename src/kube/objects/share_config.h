/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* ShareConfig (gpu.elasticgpu.io/v1alpha1): the opaque parameters of a ResourceClaim or of its
 * DeviceClass for our driver, the terms of a share beside its amounts. */

#include <stdint.h>

#include "kube/objects/resource_claim.h"
#include "model/selection.h"
#include "wire/json.h"

struct err;

#define SHARE_CONFIG_VERSION "gpu.elasticgpu.io/v1alpha1"
#define SHARE_CONFIG_KIND "ShareConfig"
#define SHARE_CONFIG_WORD_MAX 32

struct share_config {
    /* A word; what words there are the agent knows (share/compute_policies.h). "": the node's. */
    char compute_policy[SHARE_CONFIG_WORD_MAX];
    uint8_t weight;                         /* 1 to 100; 0: by the share */
    uint8_t ceiling;                        /* percent, 1 to 100; 0: none */
    char placement_policy[POLICY_NAME_MAX]; /* of model/placement_policies.h; "": as without */
};

/* Reads one; what it does not name stays in *config as it is. -EINVAL with the member in `err`: it
 * is no ShareConfig, has a member that is not known, or one of a wrong type or value. *config is
 * then as it was. */
int share_config_read(struct json parameters, struct share_config *config, struct err *err);

/* The terms of a request ("request" or "request/choice") by these configs: those of the class come
 * first, and the claim's, which are read later, count before them. -EINVAL as above; -ENOMEM. */
int share_config_of(const struct device_config *configs, uint32_t n, const char *request,
                    struct share_config *ret, struct err *err);
