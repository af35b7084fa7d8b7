/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Multiples of a byte. */

#include <stdint.h>

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
