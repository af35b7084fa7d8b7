/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The API server by way of kubectl, which brings the user's contexts, credentials and plugins with
 * it. The program is $KUBECTL, or kubectl on the path. */

#include "base/buf.h"
#include "base/err.h"

/* Runs kubectl with arguments up to a NULL and appends what it prints to `ret`. When it fails, the
 * text is the last line of what it said. */
int kubectl(struct buf *ret, struct err *err, const char *const *arguments);
#define KUBECTL(ret, err, ...) kubectl((ret), (err), (const char *const[]){__VA_ARGS__, NULL})
