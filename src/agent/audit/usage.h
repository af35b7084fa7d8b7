/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The memory that containers use: by the driver's list of processes, and by their ledgers. */

#include <stdbool.h>
#include <stdint.h>

#include "gpu/device.h"

struct audit;
struct slot;

/* Attributes the processes of the monitor's snapshot to slots. */
void usage_update(struct audit *a);
/* Gives back in all ledgers what dead processes held; starts and stops its own timer. */
void usage_sweep(struct audit *a);
/* The same for one slot, unless its ledger rests. Returns how many slots of it were given back. */
unsigned usage_sweep_slot(struct slot *slot);

/* Memory that the containers of a slot have booked on its n-th device; 0 when the ledger is
 * unreadable. */
struct slot_usage {
    uint64_t booked[GPU_CARDS_MAX];
    uint64_t peak[GPU_CARDS_MAX]; /* 0: not known */
    uint64_t refused[GPU_CARDS_MAX];
    bool damaged;
};
void usage_of_slot(struct slot *slot, struct slot_usage *ret);
