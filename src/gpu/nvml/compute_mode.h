/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The compute mode of a card, read or set through NVML by a process of its own: a call that hangs
 * holds up nothing else. */

/* Hidden first argument that makes the agent's binary be that process. */
#define GPU_COMPUTE_MODE_COMMAND "compute-mode"

/* NVML's numbers: nvmlComputeMode_t. */
#define GPU_COMPUTE_MODE_DEFAULT 0
#define GPU_COMPUTE_MODE_EXCLUSIVE_PROCESS 3

/* argv: program, GPU_COMPUTE_MODE_COMMAND, path of the NVML library, UUID of the card, perhaps the
 * mode to set. Prints the mode that the card had before and its compute capability ("0 9.0") and
 * returns 0; on failure prints the reason and returns 1. */
int gpu_compute_mode_main(int argc, char **argv);
