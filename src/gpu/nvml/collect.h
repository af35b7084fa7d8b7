/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The answer to a poll on its way into a snapshot: pure, but for the heap. */

#include <stdint.h>

#include "gpu/device.h"
#include "gpu/nvml/worker_protocol.h"

struct gpu_collect {
    struct gpu_snapshot next;
    struct gpu_device *receiving; /* the last one of it; NULL: it is left out */
};

/* Empties it for the next answer. */
void gpu_collect_clear(struct gpu_collect *c);

/* Adds a message of type DRIVER, DEVICE, LINKS or PROCESSES. `now` is what was known before: the
 * identity of devices that do not report it, and links that were not read this time. */
void gpu_collect_add(struct gpu_collect *c, const struct gpu_snapshot *now,
                     const union gpu_message *msg);

/* After the last message: `now` becomes what was received, and keeps the cards of `left_out` (bits,
 * by index) as they are. Parts of a card that is unhealthy and did not list them stay, unhealthy.
 * `room` is empty before and afterwards. */
void gpu_collect_end(struct gpu_collect *c, struct gpu_snapshot *now, uint64_t left_out,
                     struct gpu_snapshot *room);

/* Has no valid figures any more, because of `why`. */
void gpu_set_unhealthy(struct gpu_device *d, const char *why);

/* The index of the card that the device is or is a part of; GPU_CARDS_MAX: its card is not known.
 */
uint32_t gpu_card_index(const struct gpu_snapshot *s, const struct gpu_device *d);
