/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Access to the mapping of a file that another process can truncate at any moment: a fault ends the
 * access with an error instead of the process. */

#include <stddef.h>

/* Installs the SIGBUS handler behind guard_run, which passes on every fault that is not in a
 * guarded mapping. Call it whenever such a file is opened: the program may have replaced
 * the handler since. Any thread. */
void guard_install(void);

/* Runs `fn` and returns what it returns; -EBADMSG when the mapping of `size` bytes at `start` ends
 * under it. What `fn` has done until then is not undone, so it takes no locks and allocates
 * nothing. One at a time per thread. */
int guard_run(const void *start, size_t size, int (*fn)(void *arg), void *arg);
