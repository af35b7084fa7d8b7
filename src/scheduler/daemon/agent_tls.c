/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/daemon/agent_tls.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "base/log.h"
#include "base/server_time.h"
#include "kube/objects/agent_certificate.h"
#include "scheduler/cluster/agent_signer.h"
#include "scheduler/daemon/scheduler.h"
#include "wire/certificate.h"
#include "wire/certificate_request.h"
#include "wire/tls.h"

#define PEM_MAX CERTIFICATE_AUTHORITY_PEM_MAX
#define RETRY_MIN_MS 1000
#define RETRY_MAX_MS 60000
#define OF_AGENTS "fieldSelector=spec.signerName%3D" AGENT_SIGNER_ESCAPED

struct agent_tls {
    struct scheduler *scheduler;
    struct kube_reflector *requests;
    struct agent_signer signer;
    uint64_t retry_at, retry_ms; /* of what fails: not before, and the pause after that */
    /* This replica's certificate as a client, and the authorities of that time. */
    struct buf bundle, cert, key;
    int64_t renew_at;
    bool failing; /* and it was logged */
};

/* ---- the agents' certificates ---- */

static void on_begin(void *userdata) {
    struct agent_tls *t = userdata;
    t->signer.missed = false;
}

static bool may_sign(struct agent_tls *t) {
    return scheduler_leads(t->scheduler) && authority_is_fresh(&t->scheduler->endpoints.authority);
}

/* What is seen without the Lease is listed again with it: another replica may have missed it. So is
 * what is seen with an authority that may have been replaced. */
static void on_request(enum kube_event event, struct json object, void *userdata) {
    struct agent_tls *t = userdata;
    if (event == KUBE_DELETED || agent_signer_is_done(object))
        return;
    if (may_sign(t))
        agent_signer_see(&t->signer, object);
    else
        t->signer.missed = true;
}

/* All are listed for what was missed. So that becomes ever more seldom while answers fail. */
static void list_missed(struct agent_tls *t) {
    uint64_t now = scheduler_now(t->scheduler);
    if (!t->signer.failing) {
        t->retry_at = 0;
        t->retry_ms = RETRY_MIN_MS;
    }
    if (!t->signer.missed || t->signer.in_flight > 0 || now < t->retry_at || !may_sign(t) ||
        !kube_reflector_is_synced(t->requests))
        return;
    t->retry_at = now + t->retry_ms;
    t->retry_ms = t->retry_ms * 2 > RETRY_MAX_MS ? RETRY_MAX_MS : t->retry_ms * 2;
    t->signer.missed = false;
    kube_reflector_relist(t->requests);
}

static void on_end(void *userdata) {
    (void) userdata;
}

static void on_trouble(const char *text, unsigned retry_ms, void *userdata) {
    (void) userdata;
    log_warn("the agents' CertificateSigningRequests: %s; trying again in %u ms", text, retry_ms);
}

/* ---- this replica's certificate ---- */

static int issue(struct agent_tls *t, struct err *err) {
    const struct certificate_authority *own = &t->scheduler->endpoints.authority.own;
    _cleanup_wipe_ struct buf key = BUF_INIT(PEM_MAX);
    _cleanup_buf_ struct buf cert = BUF_INIT(PEM_MAX);
    int r = certificate_authority_issue_client(own, AGENT_CLIENT_NAME, AGENT_CERTIFICATE_SECONDS,
                                               server_time(), &cert, &key, err);
    if (r < 0)
        return r;
    buf_done(&t->cert);
    buf_wipe(&t->key);
    t->cert = cert;
    t->key = key;
    cert = key = BUF_INIT(PEM_MAX);
    t->renew_at = certificate_renewal(&t->cert, &t->key, buf_str(&t->bundle));
    return 0;
}

/* At two thirds of its time, and when its authority is not one of those to trust any more. The
 * agents trust what is stored: until then this replica goes on with what it has. */
static void renew(struct agent_tls *t) {
    const struct authority *authority = &t->scheduler->endpoints.authority;
    const struct buf *now = &authority->own.bundle;
    struct err err;
    if (!authority_is_stored(authority) || now->len == 0)
        return;
    if (now->len != t->bundle.len || memcmp(now->data, t->bundle.data, now->len) != 0) {
        buf_reset(&t->bundle);
        buf_append(&t->bundle, now->data, now->len);
        t->renew_at = certificate_renewal(&t->cert, &t->key, buf_str(&t->bundle));
    }
    if (server_time() < t->renew_at)
        return;
    bool failed = issue(t, &err) < 0;
    if (failed && !t->failing)
        log_warn("the certificate by which agents know this replica: %s; trying again", err.text);
    t->failing = failed;
}

bool agent_tls_credentials(void *agent_tls, struct tls_client_options *ret) {
    struct agent_tls *t = agent_tls;
    if (t->cert.len == 0)
        return false;
    ret->ca = buf_str(&t->bundle);
    ret->cert = buf_str(&t->cert);
    ret->key = buf_str(&t->key);
    return true;
}

/* ---- life ---- */

void agent_tls_tick(struct agent_tls *t) {
    if (!t)
        return;
    renew(t);
    list_missed(t);
}

int agent_tls_start(struct scheduler *s, struct agent_tls **ret, struct err *err) {
    static const struct kube_reflector_handlers handlers = {on_begin, on_request, on_end,
                                                            on_trouble};
    const struct kube_reflector_options options = {.path = CERTIFICATE_REQUESTS,
                                                   .query = OF_AGENTS};
    struct agent_tls *t = calloc(1, sizeof(*t));
    if (!t)
        return err_errno(err, ENOMEM, "cannot sign certificates of agents");
    *ret = t;
    t->scheduler = s;
    t->retry_ms = RETRY_MIN_MS;
    t->bundle = t->cert = t->key = BUF_INIT(PEM_MAX);
    t->signer = (struct agent_signer){.api = s->requeue.api,
                                      .name_space = s->options.name_space,
                                      .authority = &s->endpoints.authority.own,
                                      .now = server_time};
    return kube_reflector_start(s->client, &options, &handlers, t, &t->requests, err);
}

void agent_tls_stop(struct agent_tls *t) {
    if (t && t->requests)
        kube_reflector_stop(t->requests);
}

void agent_tls_done(struct agent_tls *t) {
    if (!t)
        return;
    buf_done(&t->bundle);
    buf_done(&t->cert);
    buf_wipe(&t->key);
    free(t);
}
