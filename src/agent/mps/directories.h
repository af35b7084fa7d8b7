/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The directories of one card's MPS control daemon, which have the same path on the host: `pipe`
 * and `shm`, which its clients get, `log`, and a record of the card's former compute mode. */

#include <stdbool.h>
#include <stddef.h>

struct err;

/* Longest path of a pipe directory: the control daemon puts sockets into it, whose paths have at
 * most 107 bytes, and exits without a message when a path is longer. */
#define MPS_PIPE_MAX 87

struct mps_directories {
    char base[128];
    char pipe[MPS_PIPE_MAX + 1];
    char log[136], shm[136];
};

/* <dir>/<uuid> and what is in it; makes nothing. -ENAMETOOLONG: the pipe directory would have more
 * than MPS_PIPE_MAX bytes. */
int mps_directories_name(const char *dir, const char *uuid, struct mps_directories *ret,
                         struct err *err);

/* Makes what is missing, and labels what clients get for containers if `selinux`, the directory
 * where SELinux has its interface, is there. With `bounded`, `pipe` and `shm` are tmpfs of limited
 * size, so that a container cannot fill the file system of `base`; directories of a control daemon
 * that holds the lock stay as they are. */
int mps_directories_make(const struct mps_directories *d, const char *selinux, bool bounded,
                         struct err *err);

/* Unmounts and removes all of them; missing ones are no error. */
int mps_directories_remove(const struct mps_directories *d, struct err *err);

/* The PID of the control daemon that holds the lock of the pipe directory, also one that does not
 * listen yet; 0: none. */
int mps_directories_holder(const struct mps_directories *d);

/* The compute mode that the card had before MPS. Reading: -ENOENT if there is no record. A record
 * that is there is not overwritten: the mode that another agent found is the former one. */
int mps_record_write(const struct mps_directories *d, unsigned mode, struct err *err);
int mps_record_read(const struct mps_directories *d, unsigned *ret, struct err *err);
