/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "model/dialect.h"

#define WANTS_SIZE 64

/* What the container with the largest request wants: "2 whole", "3 x 50 % 20 GiB", "a part". The
 * request has a container. */
const char *request_wants(const struct gpu_request *request, char ret[static WANTS_SIZE]);
