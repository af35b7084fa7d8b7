/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What uses the share of a ResourceClaim. */

#include <stdbool.h>
#include <stdint.h>

struct json_writer;
struct shares;
struct slot;

/* A container that uses it. The texts belong to the pod or to the slot. */
struct claim_user {
    const char *pod, *pod_uid, *container;
};

/* Calls `each` for all containers with the share: of a claim, those of its pods that have not
 * ended, else the one. */
void claim_users_each(const struct shares *s, const struct slot *slot,
                      void (*each)(const struct claim_user *user, void *userdata), void *userdata);

/* Whether a pod of that name is among them. */
bool claim_users_have(const struct shares *s, const struct slot *slot, const char *pod);

/* The members "claim", "claimUID" and "users" of an object; nothing for the share of a container.
 */
void claim_users_write(const struct shares *s, const struct slot *slot, struct json_writer *w);
