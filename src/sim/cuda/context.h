/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "sim/cuda/cuda.h"

/* True when all work submitted in any context is complete. */
bool context_all_idle(void);
