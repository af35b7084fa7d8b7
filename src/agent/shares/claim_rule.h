/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A container has the files of one share: of one claim, or of its resource names. kubelet prepares
 * a claim for its first pod only, so that the others are looked at where they show. */

#include <stdbool.h>

struct err;
struct pod_entry;
struct shares;

/* Claims that are about to get a share; NULL: none. */
typedef bool (*claim_rule_cb)(const char *name, const void *userdata);

/* Whether each container of the pod that uses the claim has no other share; -EINVAL: the first one
 * that has. */
int claim_rule_check(const struct shares *s, const struct pod_entry *e, const char *claim,
                     claim_rule_cb is_next, const void *userdata, struct err *err);

/* Whether a container that is to have a share by its resource names uses no claim with a share;
 * -EINVAL. */
int claim_rule_container(const struct shares *s, const struct pod_entry *e, const char *container,
                         struct err *err);
