/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The child of the agent that divides cards. A driver that hangs stops only it, and when it is
 * killed, the next one begins with what the driver says. */

/* Hidden first argument that makes the agent's binary be the child. */
#define GPU_MIG_WORKER_COMMAND "mig-worker"

/* argv: program, GPU_MIG_WORKER_COMMAND, path of the NVML library. Carries out one order of
 * messages.h, from descriptor GPU_WORKER_FD; returns the exit status. */
int gpu_mig_worker_main(int argc, char **argv);
