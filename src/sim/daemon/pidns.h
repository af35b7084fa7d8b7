/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* PIDs in another process's namespace. */

#include <sys/types.h>

#define PIDNS_DEPTH 32 /* the kernel's own bound */

/* The PID namespaces of a process, from its own outwards, with its PID in each. */
struct pidns {
    int depth; /* 0: could not be read */
    ino_t ns[PIDNS_DEPTH];
    pid_t pid[PIDNS_DEPTH];
};

/* Reads them from /proc. `pid` is in the caller's namespace. Returns 0 or a negative errno. */
int pidns_read(pid_t pid, struct pidns *ret);

/* The PID of `process` in the namespace of `reader`, or 0 where it is not visible from there. */
pid_t pidns_translate(const struct pidns *reader, const struct pidns *process);
