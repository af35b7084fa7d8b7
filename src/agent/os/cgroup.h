/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/* Finds the pod and the container of a process from /proc/PID/cgroup.
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

/* The container's own directory below the mount of cgroup v2, from `text` as above (terminated):
 * the process may sit further down. -ENOENT where there is no cgroup v2 or its upper part is
 * hidden. */
int cgroup_path(const char *text, const struct cgroup_id *id, char *ret, size_t size);

/* The same as a directory that is there, in the agent's view; `host_root` is where the host's / is
 * mounted ("" for /). -ENOENT: there is none. */
int cgroup_directory(int pid, const struct cgroup_id *id, const char *host_root, char *ret,
                     size_t size);

/* Reads and parses /proc/<pid>/cgroup. In cgroup v1 a process whose main thread has ended has no
 * group: a living thread is used. Returns 1, 0 as above, or negative errno (-ESRCH, -ENOENT: gone).
 */
int cgroup_of_pid(int pid, struct cgroup_id *ret);
