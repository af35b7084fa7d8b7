/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"

/* Moves this process into a mount namespace in which /proc/modules, /proc/driver and /sys/bus/pci
 * are those of the simulated machine in `dir`; without the right to that into a user namespace,
 * too. Where the kernel has no /proc/modules, /proc is a copy of names: processes that begin later
 * are below /proc/host only. The process has one thread. */
int host_view_enter(const char *dir, struct err *err);
