/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the API server calls: the admission webhook (admission/admission.h), and the metrics APIs,
 * each on an HTTPS port of its own, with a certificate of Aliquot's authority. */

#include <uv.h>

#include "scheduler/cluster/api.h"
#include "scheduler/cluster/authority.h"

struct admission;
struct http_route;
struct http_server;
struct server_cert;

struct endpoints_options {
    const char *name_space;
    const char *webhook_listen;      /* NULL: no webhook */
    const char *scheduler;           /* pods are sent there as admission_place_by() has it */
    const char *api_listen;          /* NULL: no metrics APIs */
    const struct http_route *routes; /* of these, with their userdata */
    void *userdata;
    bool agents; /* the authority is that of the agents, too */
};

struct endpoints {
    uv_loop_t *loop;
    struct endpoints_options options;
    struct authority authority;
    struct server_cert *server_cert; /* NULL until there is a certificate */
    struct http_server *webhook, *api;
    struct admission *admission;
};

/* Starts the work; the servers listen once there is a certificate, for which authority_tick() is to
 * be called. What `options` points to must outlive it. 0 or -ENOMEM. */
int endpoints_start(struct endpoints *e, uv_loop_t *loop, const struct api *api,
                    const struct endpoints_options *options);

/* Stops listening; the loop must run once more. Requests to the API server must have ended before
 * endpoints_done(). Both take what was never started (all zero). */
void endpoints_stop(struct endpoints *e);
void endpoints_done(struct endpoints *e);
