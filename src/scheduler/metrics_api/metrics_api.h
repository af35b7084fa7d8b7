/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * custom.metrics.k8s.io and external.metrics.k8s.io, which kube-apiserver passes on to this replica
 * (docs/autoscaling.md). Discovery is a constant, the same for every client, and is answered by a
 * replica that knows nothing yet: while an API is without it, no namespace of the cluster can be
 * deleted. Values are given only to the API server's front proxy, and to users that may read them.
 */

#include "scheduler/cluster/api.h"
#include "scheduler/figures/agents.h"
#include "scheduler/gates/quota.h"
#include "scheduler/state/state.h"
#include "wire/http.h"

/* Requests for values under way, of all users and of one. */
#define METRICS_VALUES_MAX 64
#define METRICS_VALUES_OF_USER 16

struct metrics_api;

struct metrics_api_options {
    struct api api;
    struct state *state;
    struct quotas *quotas;
    struct agents *agents;
    bool (*ready)(void *userdata); /* whether `state` is that of the cluster */
    void *userdata;
};

/* Copies `options`. NULL: out of memory. */
struct metrics_api *metrics_api_new(const struct metrics_api_options *options);
/* When neither an agent nor the API server can answer any more and the server has ended. Takes
 * NULL, returns NULL. */
struct metrics_api *metrics_api_free(struct metrics_api *m);

/* For a server with `client_certs`; userdata is the metrics_api. */
extern const struct http_route metrics_api_routes[];

/* Whom the API server connects as: `data` of ConfigMap
 * kube-system/extension-apiserver-authentication; the invalid view: no such client is known. */
void metrics_api_trust(struct metrics_api *m, struct json data);
