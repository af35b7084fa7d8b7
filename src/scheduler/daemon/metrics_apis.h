/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The metrics APIs (scheduler/metrics_api/metrics_api.h) in the daemon: what they watch besides
 * what every replica watches: the agents' pods, the replicas (scheduler/cluster/peers.h), and how
 * the API server shows itself. */

#include <stdbool.h>

struct err;
struct metrics_apis;
struct scheduler;

/* After the client of the API server is there. 0 or negative errno; *ret is to be ended with
 * metrics_apis_stop() and metrics_apis_done(). */
int metrics_apis_start(struct scheduler *s, struct metrics_apis **ret, struct err *err);

/* What their routes get. */
void *metrics_apis_userdata(struct metrics_apis *m);

/* To be called about once a second. NULL is fine. */
void metrics_apis_tick(struct metrics_apis *m);

/* Ends all that needs the loop, which must run once more; before kube_client_close(). Both take
 * NULL. */
void metrics_apis_stop(struct metrics_apis *m);
void metrics_apis_done(struct metrics_apis *m);
