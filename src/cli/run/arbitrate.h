/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The arbiter of GPU time without an agent: one of a user's `aliquot run` processes does it for all
 * of them on the same machine. Which one is decided by a lock on a file in /dev/shm; when that
 * process ends, however it ends, the kernel gives the lock to the next. In between every container
 * keeps to its own share by itself. Runs of different users do not know of each other. */

#include "base/err.h"

/* Stands in line for the task, on a thread of its own that never ends. */
int arbitrate_begin(struct err *err);

/* Notes in a new share's directory who arbitrates for it. */
int arbitrate_name(const char *dir, struct err *err);

/* A share has changed, or (NULL) one of this machine has come or gone: who arbitrates looks again.
 */
void arbitrate_notice(const char *dir);
