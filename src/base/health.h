/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How kubelet learns of a replica's health. It cannot ask by HTTP: several replicas on one node
 * share its network, and the port belongs to one of them. So each writes marks into a directory of
 * its own, and a probe is this program, looking at a mark. */

#include <stdbool.h>

struct err;

#define HEALTH_ALIVE "alive" /* the loop turns */
#define HEALTH_READY "ready" /* the cluster is known, so that this replica could act */

/* A mark that is older is no mark. */
#define HEALTH_FRESH_MS 10000

/* Sets a mark anew, or takes it away. To be called about once a second. 0 or a negative errno. */
int health_mark(const char *directory, const char *name, bool good);

/* Whether the mark is there and fresh; 0 or a negative errno with a reason. */
int health_probe(const char *path, struct err *err);
