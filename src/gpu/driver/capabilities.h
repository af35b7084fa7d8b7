/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Capabilities of the driver: a process may use a MIG instance if it can open the character devices
 * /dev/nvidia-caps/nvidia-cap<N> of its GPU instance and of its compute instance. The driver
 * reports N below /proc/driver/nvidia/capabilities. */

#include <stdint.h>

struct err;

/* The N of a GPU instance of the card with that minor number. `root` is what the path of /proc
 * begins with, in the agent's view. -ENODEV: the driver has no such instance; -EBADMSG: the driver
 * reports no number. */
int capability_of_gpu_instance(const char *root, int32_t card, uint32_t gi, uint32_t *ret,
                               struct err *err);

/* The same of a compute instance in it. */
int capability_of_compute_instance(const char *root, int32_t card, uint32_t gi, uint32_t ci,
                                   uint32_t *ret, struct err *err);

/* The number behind `key` and a blank, at the beginning of a line of such a file. -EBADMSG. */
int capability_number(const char *text, const char *key, uint32_t *ret);
