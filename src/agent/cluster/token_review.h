/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Asks the API server whether the holder of a token may read what the containers of this node use:
 * a TokenReview, for the agents' own audience and then for the API server's, and a
 * SubjectAccessReview for `get` on gpus/usage. */

struct kube_client;
struct token_review;

#define AGENT_AUDIENCE "aliquot-agent"

enum access_verdict {
    ACCESS_ALLOWED,
    ACCESS_UNKNOWN,   /* the API server does not take the token, or not for these audiences */
    ACCESS_FORBIDDEN, /* it takes the token, and its account has no such right */
    ACCESS_BUSY,      /* the API server was not asked: too many other tokens are waiting */
    ACCESS_NO_ANSWER, /* the API server did not say, see the text */
    ACCESS_NO_RIGHT,  /* the agent itself may not ask, see the text */
};

/* `text` is a reason for the last two, else "". It never holds the token. Valid during the call. */
typedef void (*token_review_cb)(enum access_verdict verdict, const char *text, void *userdata);

/* Calls on_verdict exactly once, later, from the loop of the client; the review is gone then.
 * `token` is copied. 0 or a negative errno, and then there is no call. */
int token_review_start(struct kube_client *client, const char *token, token_review_cb on_verdict,
                       void *userdata, struct token_review **ret);

/* Ends it without a call. Only before the call. */
void token_review_cancel(struct token_review *review);
