/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What NVML says of a card that can be divided. */

#include "abi/nvml.h"
#include "base/err.h"
#include "mig/card.h"

struct nvml;

/* Reads a whole card. One that knows no MIG is no error: `capable` is false. Instances are in use
 * where a process computes or draws on them; the driver names those only to a caller with the
 * privileges for it. MPS servers do not count, their clients do. A driver that tells nothing of
 * profiles before a card is in MIG mode leaves `nprofiles` 0. -EIO: a call failed, or an instance
 * has a profile with a number that is not known; the text names it. */
int gpu_mig_read(const struct nvml *n, nvmlDevice_t device, struct mig_card *ret, struct err *err);

/* -EIO with "<call>: <NVML's text>". */
int gpu_mig_error(const struct nvml *n, nvmlReturn_t code, const char *call, struct err *err);
