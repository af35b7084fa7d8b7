/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Which clients may read what containers use: verdicts on tokens, kept for a time, and asked of the
 * API server (token_review.h) a bounded number at a time. One thread, the client's loop.
 *
 * Bounds, so that a flood of bad tokens neither reaches the API server nor keeps good ones waiting
 * for long: reviews by second, waiting reviews, and of these by address of the client. A token that
 * was allowed before is asked about at once. Verdicts that allow are kept apart, so that the others
 * do not displace them. */

#include <stdint.h>

#include "agent/cluster/token_review.h"

struct access;
struct err;

#define ACCESS_TOKEN_MAX 16384     /* longest token */
#define ACCESS_ALLOWED_MS 60000    /* for which a verdict is kept */
#define ACCESS_REFUSED_MS 10000    /* the same of unknown and forbidden tokens */
#define ACCESS_ALLOWED_MAX 256     /* verdicts that are kept */
#define ACCESS_REFUSED_MAX 512     /* the same of unknown and forbidden tokens */
#define ACCESS_PER_SECOND 10       /* reviews that begin */
#define ACCESS_REVIEWS_MAX 32      /* tokens that wait for a verdict */
#define ACCESS_REVIEWS_OF_CLIENT 4 /* of these from one address */

struct access_options {
    struct kube_client *client;
    /* The agent may not ask the API server; `text` says why. Called at the start, if it is so
     * then, and with each review that fails by it. */
    void (*on_no_right)(const char *text, void *userdata);
    void *userdata;
};

/* 0 or a negative errno. */
int access_start(const struct access_options *options, struct access **ret, struct err *err);

/* Calls on_verdict exactly once: before it returns where the verdict is known or none can be had,
 * else from the loop. `address` is the client's. */
void access_ask(struct access *access, const char *token, const unsigned char address[static 16],
                token_review_cb on_verdict, void *userdata);

/* Answers all that wait with ACCESS_NO_ANSWER. Before the client is closed; the loop must run once
 * more. NULL is fine. */
void access_stop(struct access *access);
