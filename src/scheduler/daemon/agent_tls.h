/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The agents' TLS in the daemon (--agent-tls): the leader signs their certificates
 * (scheduler/cluster/agent_signer.h), and every replica has a certificate of its own by which
 * agents know it. */

#include <stdbool.h>

struct agent_tls;
struct err;
struct scheduler;
struct tls_client_options;

/* After the client of the API server is there. 0 or negative errno; *ret is to be ended with
 * agent_tls_stop() and agent_tls_done(). */
int agent_tls_start(struct scheduler *s, struct agent_tls **ret, struct err *err);

/* To be called about once a second. NULL is fine. */
void agent_tls_tick(struct agent_tls *t);

/* Sets authorities, certificate and key for a connection to an agent, valid until the loop runs
 * again; false: there is no certificate yet. */
bool agent_tls_credentials(void *agent_tls, struct tls_client_options *ret);

/* Ends the watch; before kube_client_close(). Both take NULL. */
void agent_tls_stop(struct agent_tls *t);
void agent_tls_done(struct agent_tls *t);
