/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A connection that carries requests of the API server: to `kubectl proxy` (cli/cluster/proxy.h),
 * or by TLS to the API server itself. */

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

struct api_login;
struct channel;

/* `login` NULL: to `kubectl proxy`. Waits until it can be written to. NULL with the reason in
 * *err; to the API server itself its code is EHOSTUNREACH. */
struct channel *channel_open(const struct api_login *login, struct err *err);
struct channel *channel_close(struct channel *channel); /* takes NULL, returns NULL */

/* Sends all of it. 0 or a negative errno. */
int channel_send(struct channel *channel, const void *data, size_t len);

/* What has come, without waiting: how much; 0: the server has closed it; -EAGAIN: nothing now;
 * other negative errno: it is broken. */
ssize_t channel_receive(struct channel *channel, void *ret, size_t size);

/* Whether more may have come than the descriptor says. */
bool channel_holds(const struct channel *channel);

int channel_fd(const struct channel *channel); /* to poll for input */
