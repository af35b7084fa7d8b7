/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the GPU object of a card or MIG instance says, from what the agent knows. */

#include <stdbool.h>
#include <stdint.h>

#include "kube/objects/pod.h"

struct gpu_device;
struct gpu_object;
struct health_cards;
struct node_object;
struct report;
struct shares;

/* `card`: `d` itself, or the card of the instance. "" when the names of node and address are too
 * long for one. */
void device_object_name(const struct report *report, const struct node_object *node,
                        const struct gpu_device *card, const struct gpu_device *d,
                        char ret[static KUBE_NAME_MAX]);

/* `card` as above. `d` itself, or the card of the instance. Everything but status.unattributed. */
void device_object(const struct report *report, const struct node_object *node,
                   const struct gpu_device *card, const struct gpu_device *d,
                   struct gpu_object *ret);

/* Names pods of a card that is to be drained in ret->evict, as many as fit; other turns name the
 * others. */
void device_object_evict(const struct shares *shares, const struct health_cards *health,
                         const char *uuid, uint64_t turn, struct gpu_object *ret);

/* Links are the same while the driver does not tell them, a path while it is not known. */
bool device_object_same_spec(const struct gpu_object *have, const struct gpu_object *want);

/* Of cores and bytes in the status; both 0 where the device gives no shares. */
bool device_object_same_capacity(const struct gpu_object *have, const struct gpu_object *want);

/* Of the order to reset that ended last; what an agent has reported of a former one stays. */
bool device_object_same_reset(const struct gpu_object *have, const struct gpu_object *want);

/* Of status.resourceClaims. */
bool device_object_same_claims(const struct gpu_object *have, const struct gpu_object *want);
