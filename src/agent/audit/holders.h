/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Processes of containers that have a node of the driver open or mapped, by /proc/PID/fd and
 * /proc/PID/map_files: a card, the driver's control node, UVM, capabilities, or a dma-buf. Through
 * these, processes that the driver does not list can hold memory of a card, too. An io_uring counts
 * as a node: a node registered with it is in no descriptor table.
 *
 * A tenant can have thousands of processes, threads and descriptors, and can block a reader of its
 * mappings with a lock on its address space. So the work for one container is bounded, and the walk
 * runs in a child process, which its parent kills when it hangs. */

#include <stddef.h>
#include <stdint.h>

#include "agent/os/cgroup.h"

#define HOLDERS_COMMAND "driver-holders"
/* Limits of a walk for one container. A container with more is reported as HOLDER_UNREADABLE. */
#define HOLDERS_FILES_MAX 16384
#define HOLDERS_PROCESSES_MAX 2048

enum holder_how {
    HOLDER_OPEN,
    HOLDER_MAPPED,
    HOLDER_SENT,       /* a descriptor waits to be received in one of its sockets */
    HOLDER_UNREADABLE, /* it has more files, or its container more processes, than the limits */
    HOLDER_LOOKING,    /* its mappings are read next; another record may follow */
    HOLDER_END,        /* no process: the walk is complete */
};

struct holder {
    uint32_t pid; /* in the PID namespace of the caller */
    uint32_t how; /* enum holder_how */
    struct cgroup_id id;
};

/* Walks over all processes of pods from PID `from` on, except those of containers whose IDs are in
 * `skip` ("": none), and reports each that holds a node of the directories in `dirs` ("/dev",
 * "/run/aliquot-sim"; names that begin with "nvidia", and those below a directory of such a name).
 * Ends with HOLDER_END. */
void holders_walk(const char *const *dirs, size_t ndirs, uint32_t from, const char *skip,
                  void (*report)(const struct holder *h, void *userdata), void *userdata);

/* The child: `argv` is HOLDERS_COMMAND, the first PID, `skip`, directories. Writes struct holder
 * after struct holder to its standard output. Returns the exit status. */
int holders_main(int argc, char **argv);
