/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Credits what the ledgers of containers have orphaned (share/ledger_core.h), by the driver's
 * figures. Where several containers of a card have orphaned memory, the figures tell the sum only:
 * then what is back is credited to the one whose amount grew last. */

#include <stdbool.h>
#include <stdint.h>

struct agent;
struct slot_device;

/* The driver is going to be asked. */
void orphans_begin(struct agent *a);

/* It has answered, and all processes were named. Returns whether it should be asked again soon. */
bool orphans_end(struct agent *a);

/* Bytes of an account of the ledger (the n-th device's, or its card account) that were orphaned
 * when the driver was asked last. */
uint64_t orphans_of(const struct slot_device *d, uint32_t n, uint32_t account);
