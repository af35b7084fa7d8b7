/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Sessions of client processes: begin, end, and the loss of a device. */

#include "sim/daemon/machine.h"

/* Both own what they return; session_end releases all that the process held. */
struct sim_session *session_begin(struct sim_machine *m, pid_t pid, const uint64_t token[2]);
void session_end(struct sim_session *s);
struct sim_session *session_by_token(struct sim_machine *m, const uint64_t token[2]);

/* The process cannot use the device any longer; releases all that it holds there. */
void session_detach(struct sim_session *s, uint32_t minor);

/* Ends the contexts of the process on a device with `result`: their work ends, and no new work
 * starts. With `lost`, their memory is freed. */
void session_break(struct sim_session *s, uint32_t minor, uint32_t result, bool lost);
