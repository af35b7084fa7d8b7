/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The admission webhook (admission/admission.h) on an HTTPS port of its own. Its authority and
 * certificate are made here and kept in the Secret aliquot-webhook, so that all replicas show the
 * same; both are renewed in time (wire/certificate_authority.h). Whom to trust is written into the
 * webhook configurations named aliquot, as often as it is found missing there. */

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "scheduler/cluster/api.h"
#include "wire/certificate_authority.h"

#define WEBHOOK_SECRET "aliquot-webhook" /* also the name of the Service */
#define WEBHOOK_CONFIGURATION "aliquot"  /* of both kinds */
#define WEBHOOK_CHECK_MS 60000           /* check interval */
#define WEBHOOK_RETRY_MS 2000            /* after a failure */

struct admission;
struct http_server;
struct server_cert;

struct webhook {
    uv_loop_t *loop;
    struct api api;
    const char *listen;
    const char *name_space;
    int64_t (*now)(void); /* seconds since 1970 */
    uint64_t next_ms;     /* loop time of the next check; UINT64_MAX during one */
    unsigned step;        /* which configuration is next */
    bool failing;         /* and it was logged */
    char names[3][256];   /* of the Service */
    struct certificate_authority authority;
    struct server_cert *server_cert; /* NULL until there is a certificate */
    struct http_server *server;
    struct admission *admission;
};

/* Starts the work; the server listens once there is a certificate. Pods are sent to `scheduler` as
 * admission_place_by() has it. The texts must outlive it. 0 or -ENOMEM. */
int webhook_start(struct webhook *w, uv_loop_t *loop, const struct api *api, const char *listen,
                  const char *name_space, const char *scheduler);

/* To be called about once a second. */
void webhook_tick(struct webhook *w, uint64_t now_ms);

/* Stops listening; the loop must run once more. Requests to the API server must have ended before
 * webhook_done(). Both take a webhook that was never started (all zero). */
void webhook_stop(struct webhook *w);
void webhook_done(struct webhook *w);
