/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Asks the API server whether the holder of a token may read what the containers of this node use:
 * a TokenReview, for the agents' own audience and the API server's, and a SubjectAccessReview for
 * `get` on gpus/usage, unless the verdict on its account is kept. Where it is not known what the
 * API server's audience is, it is asked a second time, for its own. */

#include "kube/api/kept_verdicts.h"

struct kube_client;
struct token_review;

#define AGENT_AUDIENCE "aliquot-agent"
#define ACCESS_ALLOWED_MS 60000 /* for which a verdict is kept */
#define ACCESS_REFUSED_MS 10000 /* the same of unknown tokens and forbidden accounts */

enum access_verdict {
    ACCESS_ALLOWED,
    ACCESS_UNKNOWN,   /* the API server does not take the token, or not for these audiences */
    ACCESS_FORBIDDEN, /* it takes the token, and its account has no such right */
    ACCESS_BUSY,      /* the API server was not asked: too many other tokens are waiting */
    ACCESS_NO_ANSWER, /* the API server did not say, see the text */
    ACCESS_NO_RIGHT,  /* the agent itself may not ask, see the text */
};

/* All must outlive the reviews. */
struct token_reviewer {
    struct kube_client *client;
    const char *token_file;        /* of the agent, which names the API server's audiences; NULL:
                                      none */
    struct kept_verdicts accounts; /* that may read the figures, and that may not */
};

/* `text` is a reason for ACCESS_NO_ANSWER and ACCESS_NO_RIGHT, else "". It never holds the token.
 * Valid during the call. The others hold until the loop's time `until`. */
typedef void (*token_review_cb)(enum access_verdict verdict, const char *text, uint64_t until,
                                void *userdata);

/* Calls on_verdict exactly once, later, from the loop of the client; the review is gone then.
 * `token` is copied. 0 or a negative errno, and then there is no call. */
int token_review_start(struct token_reviewer *reviewer, const char *token,
                       token_review_cb on_verdict, void *userdata, struct token_review **ret);

/* Ends it without a call. Only before the call. */
void token_review_cancel(struct token_review *review);
