/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The lock of a machine's divisions: one process at a time changes the instances. It ends with the
 * process that holds it. */

#include "base/err.h"

#define GPU_MIG_LOCK_NAME "mig.lock" /* in the state directory of the agent */
#define GPU_MIG_LOCK "/run/aliquot/" GPU_MIG_LOCK_NAME

/* Takes the lock, whose file has the process ID of its holder, and makes the directory where it is
 * missing. Returns a descriptor, which holds the lock until it is closed. -EBUSY: another process
 * has it, which the text names; -EACCES, -ENOSPC and others. */
int gpu_mig_lock(const char *path, struct err *err);
