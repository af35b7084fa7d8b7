/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What programs on a node read of its cards outside the driver's libraries: /proc/modules,
 * /proc/driver/nvidia and /sys/bus/pci/devices, as files of the same names in the machine's
 * directory. */

#include "base/err.h"
#include "sim/daemon/machine.h"

/* Writes all of them. */
int host_view_write(const char *dir, const struct sim_machine *m, struct err *err);

/* After a change of the number of a card's device node. */
int host_view_renumber(const char *dir, const struct sim_machine *m, uint32_t minor,
                       struct err *err);

void host_view_remove(const char *dir);
