/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The shares of `aliquot run` on this machine, each a directory with the files that
 * share/limits.h, ledger.h and compute.h describe. Its name says which process made it. Only those
 * of the caller's own user are listed. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct run_share {
    char dir[64];
    pid_t pid;        /* of the `aliquot run`, which may have ended */
    uint32_t machine; /* whose cards they are: simulated machines have cards of the same names */
};

/* The machine that this process sees; 0: the real one. */
uint32_t run_shares_machine(void);

/* Makes a directory for this process; first removes those that are no longer used. */
int run_shares_make(struct run_share *ret, struct err *err);

/* Whether a process that has booked memory lives in the share. */
bool run_shares_in_use(const char *dir);

/* Calls `fn` for each. */
void run_shares_each(void (*fn)(const struct run_share *place, void *userdata), void *userdata);

/* Path of a file of a share. */
void run_shares_path(const char *dir, const char *file, char ret[static 96]);
