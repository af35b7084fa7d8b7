/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/* From /proc/PID/cgroup to the pod and the container that a process belongs to.
 *
 * The forms that occur: cgroup v1 and v2; kubelet's cgroupfs driver
 * (`/kubepods/burstable/pod<uid>/<id>`) and systemd driver (`...-pod<uid with
 * _>.slice/cri-containerd-<id>.scope`); containerd told to use cgroupfs under a systemd kubelet
 * (`...-pod<uid>.slice:cri-containerd:<id>`); CRI-O, docker; any of these below a prefix (kind,
 * k3s, --cgroup-root) or seen from another cgroup namespace (`/../..`). */

struct cgroup_id {
    char pod_uid[37];      /* canonical, with dashes; 32 hex digits for static pods */
    char container_id[65]; /* "" where the process is in the pod but in no container (conmon) */
};

/* Finds the outermost pod in `text` (`len` bytes, the whole file; no NUL needed). The outermost,
 * because a tenant may create what it likes below its own cgroup, and nothing above it. Returns 1
 * and fills *ret, or 0 when the process is in no pod. No allocation, any thread. */
int cgroup_parse(const char *text, size_t len, struct cgroup_id *ret);

/* Reads and parses /proc/<pid>/cgroup. Returns 1, 0 as above, or negative errno (-ESRCH, -ENOENT:
 * gone). */
int cgroup_of_pid(int pid, struct cgroup_id *ret);
