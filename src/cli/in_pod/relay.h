/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Passes requests on to the API server, as `kubectl proxy --unix-socket` does. Its client is
 * `aliquot` (cli/cluster/api.h), on a socket that no other process can open: what is not written as
 * that writes it ends the connection. */

#include <uv.h>

#include "base/err.h"
#include "kube/api/transport.h"

struct relay;

/* Takes connections on a new socket of that name as soon as the loop runs. The transport must
 * outlive the relay. */
int relay_start(uv_loop_t *loop, const char *socket, struct kube_transport *transport,
                struct relay **ret, struct err *err);

/* Ends all connections; what it has goes as the loop runs on. */
void relay_stop(struct relay *relay);
