/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What one process holds of one GPU: memory and contexts. */

#include "sim/daemon/machine.h"

/* The session's channel on a device that it has attached; NULL if it has not, or out of memory. */
struct sim_channel *session_channel(struct sim_session *s, uint32_t minor);

/* Frees bytes that no process is charged for. */
void gpu_give(struct sim_gpu *g, uint64_t bytes);

/* Takes bytes of a device: 0, or -ENOMEM when the card has fewer. */
int channel_take(struct sim_channel *c, uint64_t bytes);
/* Returns bytes, at most those that the process holds alone. */
void channel_give(struct sim_channel *c, uint64_t bytes);

/* For a checkpoint. -EBUSY: it shares memory; -EALREADY. */
int channel_suspend(struct sim_channel *c);
/* -ENOMEM: not all of its memory fits on the card. -EALREADY. */
int channel_resume(struct sim_channel *c);

int channel_context_create(struct sim_channel *c, uint64_t *ret_bytes);
/* -EINVAL when the process has no context there. */
int channel_context_destroy(struct sim_channel *c);
