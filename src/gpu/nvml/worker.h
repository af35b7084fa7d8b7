/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The NVML child: the only process of ours that the driver's library is loaded into. */

/* Hidden first argument that makes the agent's binary be the child. */
#define GPU_WORKER_COMMAND "nvml-worker"
/* Where the child finds its end of the SOCK_SEQPACKET pair. */
#define GPU_WORKER_FD 3

/* Last argument: measure contexts too (a process of its own does it, and ends). */
#define GPU_WORKER_MEASURE "measure"

/* Last but one argument, before a UUID: only make a context on that device, and say END, or FAILED
 * and why. */
#define GPU_WORKER_PROBE "probe"

/* argv: program, GPU_WORKER_COMMAND, path of the NVML library, perhaps one of the above. Serves
 * until the agent is gone or the driver fails; returns the exit status. */
int gpu_worker_main(int argc, char **argv);
