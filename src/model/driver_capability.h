/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Which parts of the driver a container uses, by NVIDIA's names: the value of
 * NVIDIA_DRIVER_CAPABILITIES in the environment that its pod gives it. */

#include <stdbool.h>
#include <stdint.h>

enum driver_capability {
    DRIVER_COMPUTE = 1 << 0,
    DRIVER_UTILITY = 1 << 1,
    DRIVER_VIDEO = 1 << 2,
    DRIVER_GRAPHICS = 1 << 3,
    DRIVER_DISPLAY = 1 << 4,
    DRIVER_NGX = 1 << 5,
    DRIVER_COMPAT32 = 1 << 6, /* a word that is understood; 32-bit libraries are not given */
};

#define DRIVER_CAPABILITIES_ALL 127
#define DRIVER_CAPABILITIES_UNSAID 0 /* not set by the pod: all driver files */

/* "compute,utility", or "all". The empty list, and one with another word in it, is
 * DRIVER_CAPABILITIES_UNSAID. */
uint8_t driver_capabilities_parse(const char *list);
