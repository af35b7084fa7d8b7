/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* kubectl, which brings the user's contexts, credentials and plugins with it. The program is
 * $KUBECTL, or kubectl on the path. Requests of the API server: cli/cluster/api.h. */

#include <stdbool.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "cli/kubectl_options.h"

/* Runs kubectl with arguments up to a NULL and appends what it prints to `ret`. When it fails, the
 * text is the last line of its standard error. */
int kubectl(struct buf *ret, struct err *err, const char *const *arguments);

/* Starts kubectl with standard output and standard error on these descriptors. It ends with this
 * process, however that ends. */
int kubectl_start(const char *const *arguments, int out, int complaint, pid_t *ret_pid,
                  struct err *err);

/* The same with pipes, of which the caller owns the ends to read from. */
int kubectl_start_piped(const char *const *arguments, int *ret_out, int *ret_complaint,
                        pid_t *ret_pid, struct err *err);

/* kubectl as a client of HTTP, without the user's credentials: appends what the server at `url`,
 * such as "http://127.0.0.1:9401", answers to GET `path`. `verifies`: its certificate by this
 * machine's authorities. */
int kubectl_get_url(const char *url, const char *path, bool verifies, struct buf *ret,
                    struct err *err);

#define KUBECTL(ret, err, ...) kubectl((ret), (err), (const char *const[]){__VA_ARGS__, NULL})
