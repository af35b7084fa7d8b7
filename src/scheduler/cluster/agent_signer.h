/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Signs the agents' CertificateSigningRequests (signer elasticgpu.io/agent) by Aliquot's authority.
 * A request is approved and signed when an agent has made it for its own node: the API server says
 * of which account it is, and by the account's token of which node. All others are denied. Nothing
 * is kept of a request but in the API server. */

#include <stdbool.h>
#include <stdint.h>

#include "scheduler/cluster/api.h"
#include "wire/certificate_authority.h"
#include "wire/json.h"

#define AGENT_SIGNER_AT_ONCE 64 /* requests to the API server under way */

struct agent_signer {
    struct api api;
    const char *name_space;
    const struct certificate_authority *authority;
    int64_t (*now)(void); /* seconds since 1970 */
    unsigned in_flight;
    bool missed;  /* not all that was seen has been served: it is to be listed again */
    bool failing; /* and it was logged */
};

/* Whether the request has its certificate, or will have none. */
bool agent_signer_is_done(struct json request);

/* A CertificateSigningRequest of this signer, as it is now. */
void agent_signer_see(struct agent_signer *s, struct json request);

/* The certificate (PEM) that the request is worth. 0; -EACCES: none, with the reason; -EAGAIN:
 * there is no authority yet; other negative errno: try again. */
int agent_signer_judge(const struct agent_signer *s, struct json request, struct buf *ret_cert,
                       struct err *err);
