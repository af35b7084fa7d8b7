/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A directory with links to the driver's libraries, for LD_LIBRARY_PATH of the driver's programs:
 * in their own directory there is the C library of the host, too. */

struct err;

/* Fills the directory `to` with links to libcuda and all libnvidia-* beside the NVML library at
 * `nvml` (a path with a '/'), and removes links that lead nowhere. A program that uses the links
 * can go on. Paths that are too long are left out. */
int gpu_driver_link_libraries(const char *nvml, const char *to, struct err *err);
