/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "sim/cuda/cuda.h"

/* Is all complete that was submitted in any context? */
bool context_all_idle(void);
