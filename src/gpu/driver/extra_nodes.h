/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Device nodes of what works with cards and is no part of their driver: those that NVIDIA's
 * container toolkit adds for GPUDirect Storage, RDMA, GDRCopy and IMEX. */

struct err;
struct gpu_driver;
struct gpu_driver_places;
struct gpu_edits;

enum gpu_extra {
    GPU_EXTRA_GDS = 1,
    GPU_EXTRA_MOFED = 2,
    GPU_EXTRA_GDRCOPY = 4,
    GPU_EXTRA_IMEX = 8,           /* channel 0 */
    GPU_EXTRA_IMEX_REQUIRED = 16, /* it must be there */
};

/* Adds those of `extras` (of enum gpu_extra) that are on this node: character devices where the
 * driver's nodes are, or in the host's /dev; files beside them from the host's root. -ENXIO: one
 * that must be there is not; -ENOSPC, -ENAMETOOLONG. */
int gpu_extra_nodes(const struct gpu_driver *driver, const struct gpu_driver_places *places,
                    unsigned int extras, struct gpu_edits *edits, struct err *err);
