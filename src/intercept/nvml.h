/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "abi/nvml.h"
#include "intercept/share.h"

/* Index in the share of an NVML device, or -1. */
int nvml_device(struct share *share, nvmlDevice_t device);
