/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How programs of MPS are run from the driver's root: with their libraries, and the control daemon
 * with a /dev/shm of its own. */

#include "agent/mps/directories.h"

struct err;

/* Hidden first argument that makes the agent's binary become the control daemon. */
#define MPS_LAUNCH_COMMAND "mps-daemon"

/* Where the driver's files are, in the agent's view. */
struct mps_driver {
    char control[512]; /* nvidia-cuda-mps-control; "": there is none */
    char server[512];  /* nvidia-cuda-mps-server, likewise */
    char nvml[512];    /* libnvidia-ml.so.1, links resolved; libcuda lies beside it */
};

#define MPS_ENV_MAX 6

struct mps_environment {
    char text[MPS_ENV_MAX][1200];
    const char *list[MPS_ENV_MAX + 1];
};

/* The environment of the control daemon, of the servers that it starts, and of its control
 * interface. -ENAMETOOLONG. */
int mps_environment_make(const struct mps_directories *d, const struct mps_driver *driver,
                         const char *uuid, struct mps_environment *ret, struct err *err);

/* Makes the directory of the environment's LD_LIBRARY_PATH anew: links to NVIDIA's libraries only.
 * Where the driver's directory has the libraries of the distribution as well, a libc that does not
 * belong to the agent's loader would be loaded from it. */
int mps_libraries_link(const struct mps_directories *d, const struct mps_driver *driver,
                       struct err *err);

/* argv: program, MPS_LAUNCH_COMMAND, directory for /dev/shm, path of nvidia-cuda-mps-control.
 * Becomes `nvidia-cuda-mps-control -d`, which ends when the daemon listens; prints the reason and
 * returns 1 if that is not possible. */
int mps_launch_main(int argc, char **argv);
