/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The GPU's time. Kernels of one process run one after the other; several processes share a card in
 * time slices, in turn; a context switch between processes may cost time. All completions carry the
 * time at which they are due, not the time of the poll, so that a daemon that wakes late loses no
 * GPU time.
 *
 * Times are CLOCK_MONOTONIC nanoseconds. The contents of a ring can harm only the client that
 * writes it. */

#include <stdbool.h>
#include <stdint.h>

#include "sim/daemon/machine.h"

#define ENGINE_SLICE_NS 2000000ull
#define ENGINE_NEVER UINT64_MAX

/* Brings all GPUs of a machine up to `now`, taking new entries from the rings as they come due.
 * Returns the time of the next event, or ENGINE_NEVER. */
uint64_t engine_run(struct sim_machine *m, uint64_t now);

/* Tells the clients to ring the doorbell (true) or that the daemon is awake (false). After `true`,
 * call engine_pending() once more before sleeping. */
void engine_set_bells(struct sim_machine *m, bool need);
bool engine_pending(const struct sim_machine *m);

/* Completes the channel's work at once, and later work likewise while the process is broken on that
 * card. */
void engine_stop_channel(struct sim_channel *c);

/* Discards the work of a channel, of a session. Used by session.c. */
void engine_drop_channel(struct sim_channel *c);
void engine_drop_session(struct sim_session *s);
