/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Aliquot's certificate authority and the certificate that the scheduler serves with. Both are made
 * here and kept in the Secret aliquot-webhook, so that all replicas show the same; both are renewed
 * in time (wire/certificate_authority.h). Whom to trust is written into the webhook configurations
 * named aliquot, the APIServices and the ConfigMap aliquot-authority, as often as it is found
 * missing there. An APIService that
 * names another Service is left alone, and the log says so. */

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "scheduler/cluster/api.h"
#include "wire/certificate_authority.h"

#define AUTHORITY_SECRET "aliquot-webhook"
#define WEBHOOK_SERVICE "aliquot-webhook"
#define WEBHOOK_CONFIGURATION "aliquot" /* of both kinds */
#define METRICS_API_SERVICE "aliquot-metrics-api"
#define AUTHORITY_PLACES 5       /* where the bundle is written */
#define AUTHORITY_NAMES 6        /* of both Services */
#define AUTHORITY_CHECK_MS 60000 /* check interval */
#define AUTHORITY_RETRY_MS 2000  /* after a failure */
#define AUTHORITY_FRESH_MS 5000

struct err;

struct authority_options {
    const char *name_space;
    bool webhook;     /* the webhook configurations are told whom to trust */
    bool metrics_api; /* likewise the APIServices */
    bool agents;      /* likewise the ConfigMap, which the agents read */
    /* There is a certificate, maybe a new one; called at each check, before clients are told whom
     * to trust. After an error the check is repeated. */
    int (*on_certificate)(void *userdata, struct err *err);
    void *userdata;
};

struct authority {
    uv_loop_t *loop; /* NULL: not started */
    struct api api;
    struct authority_options options;
    int64_t (*now)(void);             /* seconds since 1970 */
    uint64_t next_ms;                 /* loop time of the next check; UINT64_MAX during one */
    uint64_t read_ms;                 /* loop time at which `own` was last what the Secret has;
                                         0: it is not */
    unsigned step;                    /* which place of the bundle is next */
    bool failing;                     /* and it was logged */
    bool foreign[AUTHORITY_PLACES];   /* it is another product's, which was logged */
    char names[AUTHORITY_NAMES][256]; /* of the Services; "": no more */
    struct certificate_authority own;
};

/* What `options` points to must outlive it. */
void authority_start(struct authority *a, uv_loop_t *loop, const struct api *api,
                     const struct authority_options *options);

/* Whether `own` is what the Secret has. What is not may never be stored: nothing is signed by it,
 * and no client is to trust it. */
bool authority_is_stored(const struct authority *a);

/* Whether `own` was read within the last AUTHORITY_FRESH_MS; else it is read soon. Another replica
 * may have made an authority anew meanwhile. */
bool authority_is_fresh(struct authority *a);

/* To be called about once a second. Takes what was never started (all zero), as does
 * authority_done(), before which requests to the API server must have ended. */
void authority_tick(struct authority *a, uint64_t now_ms);
void authority_done(struct authority *a);
