/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What scheduler, agents and their clients agree on about the agents' TLS. */

#define AGENT_SIGNER "elasticgpu.io/agent" /* of the agents' CertificateSigningRequests */
#define AGENT_SIGNER_ESCAPED "elasticgpu.io%2Fagent"
#define CERTIFICATE_REQUESTS "/apis/certificates.k8s.io/v1/certificatesigningrequests"
/* A certificate of an agent is for this name, for clients that ask all agents, and for NODE.NAME.
 * The authority also signs for Services: no name of a node is one of these. */
#define AGENT_SERVER_NAME "agents.elasticgpu.io"
#define AGENT_CLIENT_NAME                                                                          \
    "aliquot-scheduler"                 /* the common name of the client that agents trust         \
                                         */
#define AGENT_CERTIFICATE_SECONDS 86400 /* the lifetime of both */
#define AUTHORITY_CONFIG_MAP "aliquot-authority"
#define AUTHORITY_ENTRY "ca.crt" /* of it: the authorities to trust, PEM */
/* The annotation of an agent's pod by which its clients know that it speaks TLS. Prometheus'
 * well-known configuration reads it, too. */
#define AGENT_SCHEME_ANNOTATION "prometheus.io/scheme"
#define AGENT_SCHEME_TLS "https"
