/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Other commands of this program. */

#include "base/buf.h"

#define SELF_WORDS_MAX 16

/* A command that runs. */
struct self_command {
    int pid; /* 0: none runs */
    int out; /* to poll, and not to be closed by others; -1: none runs */
};

/* Starts `aliquot WORDS...`, up to a NULL, with the context and the kubeconfig of this one, or with
 * the login of this thread (cli/login.h). It ends with the thread that calls this. 0 or a negative
 * errno. */
int self_start(const char *const *words, struct self_command *ret);

/* Appends what it has printed, standard error included, and does not wait for more. When it has
 * ended, or has printed more than `ret` holds, *command is as if none ran. */
void self_read(struct self_command *command, struct buf *ret);

/* Ends it, if one runs. */
void self_cancel(struct self_command *command);

/* Starts one and waits for its end. Its exit status; negative errno where it could not be run, was
 * ended by a signal or has printed more than `ret` holds. */
int self_run(const char *const *words, struct buf *ret);
