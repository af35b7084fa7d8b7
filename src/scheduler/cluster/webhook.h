/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the API server calls: the admission webhook (admission/admission.h), and the metrics APIs,
 * each on an HTTPS port of its own. Their authority and certificate are made here and kept in the
 * Secret aliquot-webhook, so that all replicas show the same; both are renewed in time
 * (wire/certificate_authority.h). Whom to trust is written into the webhook configurations named
 * aliquot and the APIServices, as often as it is found missing there. An APIService that names
 * another Service is left alone, and the log says so. */

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "scheduler/cluster/api.h"
#include "wire/certificate_authority.h"

#define WEBHOOK_SECRET "aliquot-webhook" /* also the name of the Service */
#define WEBHOOK_CONFIGURATION "aliquot"  /* of both kinds */
#define METRICS_API_SERVICE "aliquot-metrics-api"
#define WEBHOOK_PLACES 4       /* where the bundle is written */
#define WEBHOOK_NAMES 6        /* of both Services */
#define WEBHOOK_CHECK_MS 60000 /* check interval */
#define WEBHOOK_RETRY_MS 2000  /* after a failure */

struct admission;
struct http_route;
struct http_server;
struct server_cert;

struct webhook_options {
    const char *name_space;
    const char *listen;              /* NULL: no webhook */
    const char *scheduler;           /* pods are sent there as admission_place_by() has it */
    const char *api_listen;          /* NULL: no metrics APIs */
    const struct http_route *routes; /* of these, with their userdata */
    void *userdata;
};

struct webhook {
    uv_loop_t *loop;
    struct api api;
    struct webhook_options options;
    int64_t (*now)(void);           /* seconds since 1970 */
    uint64_t next_ms;               /* loop time of the next check; UINT64_MAX during one */
    unsigned step;                  /* which place of the bundle is next */
    bool failing;                   /* and it was logged */
    bool foreign[WEBHOOK_PLACES];   /* it is another product's, which was logged */
    char names[WEBHOOK_NAMES][256]; /* of the Services; "": no more */
    struct certificate_authority authority;
    struct server_cert *server_cert; /* NULL until there is a certificate */
    struct http_server *server, *api_server;
    struct admission *admission;
};

/* Starts the work; the servers listen once there is a certificate. What `options` points to must
 * outlive it. 0 or -ENOMEM. */
int webhook_start(struct webhook *w, uv_loop_t *loop, const struct api *api,
                  const struct webhook_options *options);

/* To be called about once a second. */
void webhook_tick(struct webhook *w, uint64_t now_ms);

/* Stops listening; the loop must run once more. Requests to the API server must have ended before
 * webhook_done(). Both take a webhook that was never started (all zero). */
void webhook_stop(struct webhook *w);
void webhook_done(struct webhook *w);
