/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Runs the walk of holders.h in a child process and kills the child when it hangs. The process
 * whose mappings blocked it is then reported as HOLDER_UNREADABLE, and a new child continues with
 * the next process, without the other processes of that container. One thread, on a libuv loop. */

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "agent/audit/holders.h"

struct holder_scan;

/* `complete`: all processes of containers were checked or reported as unreadable. Without
 * HOLDER_LOOKING and HOLDER_END. Called once; the list is freed afterwards. */
typedef void (*holder_scan_done)(const struct holder *found, size_t nfound, bool complete,
                                 void *userdata);

/* `program` is this binary; `dir` holds the nodes of the driver. Returns the scan, which frees
 * itself after `done`, or NULL (out of memory, no process can be started). */
struct holder_scan *holder_scan_start(uv_loop_t *loop, const char *program, const char *dir,
                                      holder_scan_done done, void *userdata);

/* Ends it without a call of `done`. It frees itself when the loop has closed its handles. */
void holder_scan_cancel(struct holder_scan *s);
