/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The compute policy and limits of a share: from annotations of its pod, else from the node. The
 * share itself is signed by the scheduler, and nothing here enlarges it: a policy or a weight
 * concerns unused time, and a memory limit is within the share. So users that can write the pod may
 * set them, as far as admission (deploy/base/policy-terms.yaml) and the node (--pod-policies) allow
 * it. Pure. */

#include <stdbool.h>
#include <stdint.h>

#include "agent/shares/slot.h"
#include "kube/objects/pod.h"
#include "share/compute.h"

struct err;

/* The settings of the node. */
struct compute_policy_node {
    enum share_policy policy; /* of containers that have a share and ask for no policy */
    uint32_t pods_may;        /* bit 1 << policy: a pod may ask for it */
    bool slices;              /* containers ask the driver for time-slices by share */
};

/* The terms of a container with `core` percent of each card (0: none; 100: all). An invalid or
 * forbidden annotation is replaced by the node's setting; *why then has the reason, and the result
 * is -EINVAL or -EPERM (of the first such annotation). */
int compute_policy_read(const struct compute_policy_node *node, const struct pod *pod,
                        const char *container, uint32_t core, struct slot_terms *ret,
                        struct err *why);

/* A policy by our name or by that of qGPU ("fixed-share", "burst-share"); -EINVAL. */
int compute_policy_parse(const char *text, enum share_policy *ret);

/* "fixed,burst,..." as bits, "all" or "none"; -EINVAL. */
int compute_policies_parse(const char *text, uint32_t *ret);
