/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Which clients may read what containers use: verdicts on tokens, kept for a time, and asked of the
 * API server (token_review.h) a bounded number at a time. One thread, the client's loop.
 *
 * Bounds, so that a flood of bad tokens neither reaches the API server nor keeps good ones waiting
 * for long: reviews by second, waiting reviews, and of these by address of the client. Where an
 * address has no room, a new token takes the place of one that waits, so that those that came first
 * do not keep others of the same address out. A token that was allowed of late has a bound of its
 * own. Verdicts that allow are kept apart, so that the others do not displace them. */

#include <stdint.h>

#include "agent/cluster/token_review.h"

struct access;
struct err;

#define ACCESS_TOKEN_MAX 16384      /* longest token */
#define ACCESS_ALLOWED_MAX 256      /* verdicts that are kept */
#define ACCESS_REFUSED_MAX 512      /* the same of unknown and forbidden tokens */
#define ACCESS_ACCOUNTS_MAX 256     /* the same of accounts */
#define ACCESS_PER_SECOND 2         /* reviews that begin */
#define ACCESS_BURST 10             /* the same after a pause */
#define ACCESS_REVIEWS_MAX 32       /* tokens that wait for a verdict */
#define ACCESS_REVIEWS_OF_CLIENT 4  /* of these from one address */
#define ACCESS_RETURN_MS 900000     /* after the end of a verdict that allowed, in which: */
#define ACCESS_RETURN_PER_SECOND 50 /* reviews of the same token begin, beside the others */

struct access_options {
    struct kube_client *client;
    const char *token_file; /* see token_reviewer; is copied */
    /* The agent may not ask the API server; `text` says why. Called at the start, if it is so
     * then, and with each review that fails by it. */
    void (*on_no_right)(const char *text, void *userdata);
    void *userdata;
};

/* As token_review_cb. */
typedef void (*access_cb)(enum access_verdict verdict, const char *text, void *userdata);

/* 0 or a negative errno. */
int access_start(const struct access_options *options, struct access **ret, struct err *err);

/* Calls on_verdict exactly once: before it returns where the verdict is known or none can be had,
 * else from the loop. `address` is the client's. */
void access_ask(struct access *access, const char *token, const unsigned char address[static 16],
                access_cb on_verdict, void *userdata);

/* Answers all that wait with ACCESS_NO_ANSWER. Before the client is closed; the loop must run once
 * more. NULL is fine. */
void access_stop(struct access *access);
