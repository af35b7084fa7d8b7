/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

struct err;
struct gpu_snapshot;

/* Whether NVIDIA's MIG strategy `single` can serve the node: all cards are in MIG mode, none is
 * empty, and all instances are of one profile. -EINVAL: `why` (or NULL) has what is in its way. A
 * node without a divided card has no instances, which is no error. */
int gpu_mig_check_single(const struct gpu_snapshot *s, struct err *why);
