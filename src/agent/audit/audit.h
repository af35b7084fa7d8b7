/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Compares containers' ledgers with NVML's figures. */

#include <stdint.h>

struct audit;
struct gpu_device;
struct slot;
struct slot_device;

/* The driver is going to be asked. */
void audit_begin(struct audit *a);
/* A process of the container holds `bytes` on the device; d->driver_memory counts it already. */
void audit_process(struct audit *a, struct slot *slot, struct slot_device *d, uint32_t pid,
                   uint64_t bytes);
/* Sets up the timers and what a policy needs. */
void audit_start(struct audit *a);
/* The agent stops. */
void audit_stop(struct audit *a);
/* A process of no container with a share of the card is on it. */
void audit_shareless(struct audit *a, const struct gpu_device *card, uint32_t pid);
/* All processes of a new answer were named. */
void audit_end(struct audit *a);
/* What keeps it from being certain; "" when nothing does. */
const char *audit_trouble(const struct audit *a);
