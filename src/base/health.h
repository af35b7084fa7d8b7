/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Marks for exec probes. A daemon writes them into a directory of its own, and the probe is the
 * same program, which reads one. Probes by HTTP do not serve: of several replicas that share a
 * node's network the port belongs to one, and clients of the port can use up its connections. */

#include <stdbool.h>

struct err;

#define HEALTH_ALIVE "alive" /* the loop turns */
#define HEALTH_READY "ready" /* the daemon could do its work */

/* A mark that is older is no mark. */
#define HEALTH_FRESH_MS 10000

/* Renews a mark, or removes it. To be called about once a second. 0 or a negative errno. */
int health_mark(const char *directory, const char *name, bool good);

/* Whether the mark is there and fresh; 0 or a negative errno with a reason. */
int health_probe(const char *path, struct err *err);
