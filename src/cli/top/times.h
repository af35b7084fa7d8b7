/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Times of the last hour, as clocks show them and as keys go through them. No I/O. */

#include <stdbool.h>
#include <time.h>

#include "base/err.h"

#define TIMES_CLOCK_SIZE 16

/* "14:05:20", or without its seconds "14:05", in local time. */
const char *times_clock(time_t when, bool has_seconds, char ret[static TIMES_CLOCK_SIZE]);

/* The time of the last hour before `now` at which clocks showed HH:MM or HH:MM:SS. -EINVAL where
 * the text is none of these, or they did not: the steps of agents that the hour has are named. */
int times_parse(const char *text, time_t now, time_t *ret, struct err *err);

/* So many seconds further from `at` (0: now), or back; the first step back is to the newest one of
 * a history that was read at `read_at`. 0: that is now. The oldest is an hour before `now`. */
time_t times_step(time_t at, int seconds, time_t read_at, time_t now);
