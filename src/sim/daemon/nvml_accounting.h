/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* NVML's accounting: what each process used of a card, kept after its end while that is switched
 * on for the card. Times are microseconds since the epoch. */

#include "sim/daemon/machine.h"

/* The process has its first context on the card, or ends there. */
void account_begin(struct sim_channel *c, uint64_t now_us);
void account_end(struct sim_channel *c, uint64_t now_us);

/* What is to be said of a process that lives. */
struct sim_account account_of(const struct sim_channel *c, uint64_t now_us);

/* The i-th of those that have ended, the oldest first; NULL behind the last. */
const struct sim_account *account_at(const struct sim_gpu *g, uint32_t i);

/* Forgets those that have ended. */
void account_clear(struct sim_gpu *g);
