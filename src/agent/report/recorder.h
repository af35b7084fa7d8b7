/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Writes a step of the history of all shares every HISTORY_STEP_MS. */

#include "agent/report/report.h"

/* Goes on with the file `history` of the state directory. Without it figures of the past are
 * missing and all else works: an error is in the log. */
void recorder_start(struct report *report);
void recorder_stop(struct report *report);

/* Steps since boot, and how long ago the last one ended, in ms. */
uint64_t recorder_step(uint64_t *ret_ago_ms);
