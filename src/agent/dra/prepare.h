/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* kubelet's calls to prepare claims and to unprepare them. kubelet tries a preparation that failed
 * again only after a minute, so what is only late is waited for inside the call; errors are for
 * what does not pass. Their texts stand in the pod's Event. */

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "agent/dra/claim_devices.h"

struct dra_claim_ids;
struct dra_call;
struct grpc_call;
struct kube_client;
struct shares;

#define DRA_WAIT_MAX_MS 40000 /* of the 45 s after which kubelet gives the call up */

struct dra_prepares {
    struct shares *shares;
    struct kube_client *client;
    struct dra_source source;
    void (*on_prepared)(void *userdata); /* containers are about to start */
    void *userdata;
    const char *blocker;   /* why nothing is prepared yet; NULL: it is */
    const char *refusal;   /* why no claim without a share gets one; NULL: all do */
    struct dra_call *list; /* calls that wait */
    uv_idle_t wake;        /* evaluates all of them once, at the end of this turn of the loop */
    uint64_t prepared, refused, unprepared; /* claims */
};

/* Sets up the handle; the caller sets the members up to `userdata`. */
void dra_prepare_init(struct dra_prepares *all);

/* Take the call over. */
void dra_prepare_begin(struct dra_prepares *all, struct grpc_call *call,
                       const struct dra_claim_ids *claims);
void dra_unprepare(struct dra_prepares *all, struct grpc_call *call,
                   const struct dra_claim_ids *claims);

/* Something happened that a waiting call may have waited for. */
void dra_prepare_wake(struct dra_prepares *all);

/* Ends all waiting calls. */
void dra_prepare_stop(struct dra_prepares *all);

size_t dra_prepare_waiting(const struct dra_prepares *all);
