/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Ends all processes of one container; kubelet then starts it again, or not, as its pod says. */

#include "agent/cgroup.h"

/* `pid` is any process of the container, `id` what cgroup_of_pid() said of it. By the kernel's own
 * cgroup.kill where it has one, which no fork escapes; else by SIGKILL to every process found in
 * the cgroup, through pidfds, so that no other process that got the number is hit, and again until
 * a look finds none. `host_root` is where the host's / is mounted ("" for /). Returns the number of
 * processes that were signalled (1 for cgroup.kill), or negative errno; -ESRCH: nobody is left. */
int evict_container(int pid, const struct cgroup_id *id, const char *host_root);
