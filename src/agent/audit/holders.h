/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Processes of containers that have a node of the driver open or mapped, by /proc/PID/fd and
 * /proc/PID/map_files: a card, the driver's control node, UVM, capabilities, or a dma-buf. Memory
 * of a card is held through these, by processes, too, that the driver does not list. An io_uring
 * counts as a node: one can be registered with it, and is then in no process's table.
 *
 * A tenant can have thousands of processes, threads and descriptors, and can make a look at its
 * mappings wait for ever with a lock on its address space. So what is looked at of one container is
 * bounded, and the walk runs in a child process, which its parent kills when it stands still. */

#include <stddef.h>
#include <stdint.h>

#include "agent/os/cgroup.h"

#define HOLDERS_COMMAND "driver-holders"
/* What is looked at of one container in a walk. A container that has more is reported of as
 * HOLDER_UNREADABLE. */
#define HOLDERS_FILES_MAX 16384
#define HOLDERS_PROCESSES_MAX 2048

enum holder_how {
    HOLDER_OPEN,
    HOLDER_MAPPED,
    HOLDER_SENT,       /* a descriptor waits to be received in one of its sockets */
    HOLDER_UNREADABLE, /* it has more files, or its container more processes, than are looked at */
    HOLDER_LOOKING,    /* its mappings are going to be looked at; another record may follow */
    HOLDER_END,        /* no process: the walk is complete */
};

struct holder {
    uint32_t pid; /* in the PID namespace of the caller */
    uint32_t how; /* enum holder_how */
    struct cgroup_id id;
};

/* Walks over all processes of pods from PID `from` on, but those of the containers whose IDs stand
 * in `skip` ("": none), and tells of each that holds a node of the directories in `dirs` ("/dev",
 * "/run/aliquot-sim"; names that begin with "nvidia", and those below a directory of such a name).
 * Ends with HOLDER_END. */
void holders_walk(const char *const *dirs, size_t ndirs, uint32_t from, const char *skip,
                  void (*report)(const struct holder *h, void *userdata), void *userdata);

/* The child: `argv` is HOLDERS_COMMAND, the first PID, `skip`, directories. Writes struct holder
 * after struct holder to its standard output. Returns the exit status. */
int holders_main(int argc, char **argv);
