/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Time-slices of the hardware: how long the GPU runs the channel groups of a context before it
 * switches to those of another. Sets slices in the proportion of the shares, where the limits file
 * has LIMITS_HARDWARE_SLICES; without effect where the driver refuses.
 *
 * For this the driver library's own import of ioctl is replaced, in that library alone: this
 * shows which channel groups it makes. Numbers and layouts: NVIDIA's open kernel modules,
 * nvos.h, cl a06c and ctrla06c.h. */

#include <stdint.h>

#include "share/limits_core.h"

typedef int timeslice_ioctl_fn(int fd, unsigned long request, ...);

/* How long the slices of a share of `ndevices` cards are, in microseconds; 0: they are not to be
 * touched, which is so without the option and when its cards differ in their percent. */
uint32_t timeslice_of(const struct limits_file *limits, uint32_t ndevices);

/* Where the limits have the option, replaces the driver's import of ioctl; otherwise, and from the
 * second call on, does nothing. To be called before the driver makes a context. `limits` must stay
 * valid. */
void timeslice_begin(const struct limits_file *limits, uint32_t ndevices);

/* What the driver's ioctl does from then on: `real`, and what follows from it for the slices, which
 * are to be `slice` microseconds long. errno and the result are those of `real`. */
int timeslice_step(timeslice_ioctl_fn *real, uint32_t slice, int fd, unsigned long request,
                   void *argument);
