/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The arbiter of GPU time without an agent: one of a user's `aliquot run` processes does it for all
 * of them on the same machine: the holder of a lock on a file in /dev/shm. When that process ends,
 * the kernel gives the lock to the next. In between every run keeps to its own share by itself.
 * Runs of different users are not arbitrated. */

#include "base/err.h"

/* Starts a thread that waits for the lock and then arbitrates. It never ends. */
int arbitrate_begin(struct err *err);

/* Links the lock file into a new share's directory. */
int arbitrate_name(const char *dir, struct err *err);

/* Wakes the arbiter: a share has changed, or (NULL) one of this machine was added or removed. */
void arbitrate_notice(const char *dir);
