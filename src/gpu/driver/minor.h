/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The number of a card's device node, by what the driver's kernel module says now. NVML's answer is
 * as old as the last poll, and a reset or another driver can exchange the numbers of two cards. */

#include <stdint.h>

struct err;
struct gpu_device;

/* Whether `device->minor` is that number: 0 or -ENODEV. `root` is what the path of /proc begins
 * with, in the agent's view. The module takes locks of the card for its answer, and the caller
 * waits for them: a card that does not answer is not asked, its number is not known. What remains
 * is a card that hangs and has not been found unhealthy yet.
 *
 * Where the module has no file for the card, or the card no PCI address, the number counts that the
 * card has reported. */
int minor_check(const char *root, const struct gpu_device *device, struct err *err);

/* The number in `text`, the content of such a file, of the card with that UUID. -ENODEV: it is of
 * another card; -EBADMSG: it has no number. */
int minor_parse(const char *text, const char *uuid, int32_t *ret);
