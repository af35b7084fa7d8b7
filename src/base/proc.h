/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

/* Whether a line of /proc/PID/stat or /proc/PID/task/TID/stat is that of a thread which is on its
 * way out or has ended. True for a line that is cut off, or empty. */
bool proc_stat_is_ending(const char *text);
