/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The NVML child: the only process of ours that the driver's library is loaded into. */

/* Hidden first argument that makes the agent's binary be the child. */
#define GPU_WORKER_COMMAND "nvml-worker"
/* Where the child finds its end of the SOCK_SEQPACKET pair. */
#define GPU_WORKER_FD 3

/* Last argument: measure contexts too (a process of its own does it, and ends). */
#define GPU_WORKER_MEASURE "measure"

/* argv: program, GPU_WORKER_COMMAND, path of the NVML library, perhaps GPU_WORKER_MEASURE. Serves
 * until the agent is gone or the driver fails; returns the exit status. */
int gpu_worker_main(int argc, char **argv);
