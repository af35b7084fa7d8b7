/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Whether the API server takes a token: a SelfSubjectReview with it, in a thread. Only tokens that
 * pass get a session, so that others cost a place in this queue and nothing more. One token is
 * tried after the other, and an answer is waited for 5 s at most, so that a user whom the API
 * server puts off holds others no longer than that. Requests that wait with the same token are one
 * try. */

#include <netinet/in.h>

#include "base/err.h"
#include "cli/login.h"

struct gate;

struct gate_check {
    struct gate_check *prev, *next;
    char *token;            /* login_is_token(); of the one that asks */
    struct in6_addr client; /* its address, as of http_client() */
    int result;             /* 0; -EKEYREJECTED: it is not taken; other negative errno: not known */
    struct err err;
    void *userdata;
};

/* `cluster` without a token is borrowed. `news` is called by the thread when there is an answer. */
int gate_start(const struct api_login *cluster, void (*news)(void *userdata), void *userdata,
               struct gate **ret, struct err *err);

/* -EBUSY: too many are under way, in all or from that address. */
int gate_ask(struct gate *gate, struct gate_check *check);

/* The next one that has an answer; NULL: none. */
struct gate_check *gate_answered(struct gate *gate);
