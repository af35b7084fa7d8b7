/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Runs one program of a hook and waits for its end. */

#include <stdbool.h>

#include "base/err.h"

struct hook_program {
    const char *const *argv; /* argv[0] is looked up in $PATH where it has no slash */
    const char *const *env;
    const char *root;    /* "": here */
    const char *workdir; /* below the root; NULL: the root, or here */
    bool output;         /* its output is this process's standard error */
    unsigned timeout_ms;
    unsigned tell_ms;
    void (*tell)(unsigned seconds, void *userdata); /* every tell_ms */
    void *userdata;
};

/* 0: it ended with status 0. -EINVAL: another status, a signal, or it was killed with its process
 * group as it was late; the text has the last line that it printed. -ENOENT, -EACCES ...: it could
 * not be run. It is killed when this process ends. */
int hook_program_run(const struct hook_program *p, struct err *err);
