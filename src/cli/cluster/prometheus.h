/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Questions to a Prometheus. */

#include "base/err.h"
#include "wire/json.h"

/* Whether it can be the place of one: "http://HOST:PORT[/PATH]", "https://...", or
 * "NAMESPACE/SERVICE:PORT", which is reached through the API server. -EINVAL with a text. */
int prometheus_check(const char *where, struct err *err);

/* Calls `take` for each sample of the answer to an instant query, but those that are no number. */
int prometheus_query(const char *where, const char *query,
                     void (*take)(void *arg, struct json labels, double value), void *arg,
                     struct err *err);
