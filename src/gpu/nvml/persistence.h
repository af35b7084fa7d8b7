/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The persistence mode of a card, read or set through NVML by a process of its own. The driver
 * refuses the reset of a card in persistence mode. */

/* Hidden first argument that makes the agent's binary be that process. */
#define GPU_PERSISTENCE_COMMAND "persistence-mode"

/* argv: program, GPU_PERSISTENCE_COMMAND, path of the NVML library, UUID of the card, perhaps "0"
 * or "1" to set. Prints the mode that the card had before, "0" or "1", and returns 0; on failure
 * prints the reason and returns 1. */
int gpu_persistence_main(int argc, char **argv);
