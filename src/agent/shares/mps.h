/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* NVIDIA's MPS, where the node runs it: a container gets the pipe directory of the control daemon,
 * and MPS limits the percentage of active threads and the pinned memory of each of its programs.
 * These limits are per process; those of the share count for the whole container. */

struct gpu_edits;
struct slot_grant;

/* `dir` is where the daemon has its `pipe` directory (and perhaps `shm`, which clients need as
 * their /dev/shm), the same path on the host; "" for none. `host_root` is where the host's / is
 * mounted. Adds nothing where no daemon runs. -ENOSPC: too many edits. */
int mps_edits(const char *dir, const char *host_root, const struct slot_grant *g,
              struct gpu_edits *edits);
