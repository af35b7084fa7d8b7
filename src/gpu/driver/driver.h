/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Drivers as data: where the NVML library of this machine is, and what a container needs to use a
 * card. "nvidia" is the real one, "simulated" is `aliquot sim --listen`. Reads the file system
 * only; loads nothing. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/device.h"
#include "gpu/driver/edits.h"

struct err;

struct gpu_driver_places {
    const char *host_root; /* where the host's / is in the agent's view: "" or "/host" */
    /* Where the driver is on the host: "/run/nvidia/driver", "/". NULL: in the first place of
     * driver_roots that has one. */
    const char *driver_root;
    /* Below which directory of the host the device nodes are: "/" or "/run/nvidia/driver". NULL:
     * the host's /dev if it has the control node, or that of the driver's root. */
    const char *dev_root;
    const char *sim_dir; /* of the simulated driver, the same path on the host and here */
    /* Where gpu_driver_find() has found them, in the host's view; "" is its root. */
    const char *found_root, *found_dev;
};

struct gpu_driver; /* a row of the table */

/* The driver that is here now, or NULL; all functions below need it and the places it was found in.
 * `ret_library` receives the path of its NVML library in the agent's view. */
const struct gpu_driver *gpu_driver_find(struct gpu_driver_places *places,
                                         char ret_library[static 512]);

/* A program of the driver ("nvidia-smi"), links resolved, in the agent's view: 0, -ENOENT,
 * -ENAMETOOLONG. */
int gpu_driver_program(const struct gpu_driver *driver, const struct gpu_driver_places *places,
                       const char *name, char *ret, size_t size);

/* Where the agent sees the host's root for paths of the driver: the simulated one is at the same
 * path for both. */
const char *gpu_driver_view(const struct gpu_driver *driver,
                            const struct gpu_driver_places *places);

const char *gpu_driver_name(const struct gpu_driver *driver);

/* "/dev/nvidia0": the card's own node, in the host's view; of a MIG instance the one of its card.
 */
void gpu_driver_path(const struct gpu_driver *driver, const struct gpu_driver_places *places,
                     const struct gpu_device *device, char ret[static 64]);

/* Everything that a container which gets `devices` needs of the driver for `capabilities` (of enum
 * driver_capability). `shadow` is a directory of the host ("": none) with libraries that take the
 * names of the driver's libcuda.so.1 and libnvidia-ml.so.1, which then are beside them as
 * libcuda-driver.so.1 and libnvidia-ml-driver.so.1. Optional files that are not here are left out.
 * A MIG instance comes with its card's node and both of its capability nodes. -ENOSPC when there
 * are more than GPU_EDITS_MAX, -ENOENT when a node or one of those two libraries is missing (while
 * a driver is exchanged: callers wait), -ENODEV and -EBADMSG as gpu/driver/capabilities.h, -ENODEV
 * as gpu/driver/minor.h (callers wait); `ret` is empty then. */
int gpu_driver_edits(const struct gpu_driver *driver, const struct gpu_driver_places *places,
                     const struct gpu_device *const *devices, size_t ndevices, uint8_t capabilities,
                     const char *shadow, struct gpu_edits *ret, struct err *err);
