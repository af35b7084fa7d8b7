/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The certificate by which the agent is known to clients of its HTTP port (--tls). Its key is made
 * here and leaves the node never; Aliquot's authority signs it by a CertificateSigningRequest
 * (scheduler/cluster/agent_signer.h). Both are in one file, so that a restart goes on with them
 * while the node has the same name. Until there is one that the authority has signed, the agent has
 * one that no authority has signed: as kubelet does, for clients that verify nothing, such as
 * probes. One thread. */

#include "agent/cluster/map_watch.h"

struct agent_certificate;
struct gnutls_session_int;
struct kube_client;
struct server_cert;

#define CERTIFICATE_FILE "tls.pem" /* in the directory of the agent's state */

/* `dir`, `node` must outlive it. */
int agent_certificate_new(const char *dir, const char *node, struct agent_certificate **ret,
                          struct err *err);

/* Follows the authority's ConfigMap in that namespace, and gets a certificate whenever one is due:
 * at two thirds of its time, and when its authority is not to be trusted any more. `on_state`: with
 * the reason while it has had no valid one for a while, again and again; with "" once it has one,
 * and after each new one. */
int agent_certificate_follow(struct agent_certificate *c, struct kube_client *client,
                             const char *namespace,
                             void (*on_state)(const char *trouble, void *userdata), void *userdata,
                             struct err *err);

struct server_cert *agent_certificate_served(const struct agent_certificate *c);

/* Whether the client of the session has a certificate of the authority as aliquot-scheduler's. 0 or
 * -EACCES with the reason. */
int agent_certificate_check_client(const struct agent_certificate *c,
                                   struct gnutls_session_int *session, struct err *err);

/* Why the certificate is not one that the authority has signed; "": it is. */
const char *agent_certificate_trouble(const struct agent_certificate *c);

/* Ends requests, before the client is closed. Takes NULL. The loop must run once more; the
 * certificate is freed by agent_certificate_free(), after the HTTP server. */
void agent_certificate_stop(struct agent_certificate *c);
struct agent_certificate *agent_certificate_free(struct agent_certificate *c);
