/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "sim/proto.h"

/* Checks one packet from a client and copies it out. `device_socket`: it came in on a device's
 * socket, where only ATTACH is allowed. Returns 0, or -EPROTO for anything that a library of this
 * version would not send. The caller checks the meaning of the numbers. */
int request_parse(const void *data, size_t len, bool device_socket, struct sim_request *ret);
