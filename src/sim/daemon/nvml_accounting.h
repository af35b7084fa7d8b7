/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* NVML's accounting: each process's use of a card, kept after its end while accounting is on for
 * the card. Times are microseconds since the epoch. */

#include "sim/daemon/machine.h"

/* The process has its first context on the card, or ends there. */
void nvml_accounting_begin(struct sim_channel *c, uint64_t now_us);
void nvml_accounting_end(struct sim_channel *c, uint64_t now_us);

/* The record of a running process. */
struct sim_account nvml_accounting_of(const struct sim_channel *c, uint64_t now_us);

/* The i-th ended process, the oldest first; NULL behind the last. */
const struct sim_account *nvml_accounting_at(const struct sim_gpu *g, uint32_t i);

/* Clears the records of ended processes. */
void nvml_accounting_clear(struct sim_gpu *g);
