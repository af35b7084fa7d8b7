/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a page asks beside the readings: the last hour of a pod's containers, from the agent of its
 * node. */

#include "base/buf.h"
#include "base/err.h"

struct session;

struct question {
    struct question *prev, *next;
    char *node, *namespace, *pod; /* valid names; owned */
    struct buf text;              /* the answer, where the result is 0 */
    int result;                   /* 0 or a negative errno, and then the text of `err` */
    struct err err;
    struct session *session; /* set by session_ask() */
    void *userdata;          /* of the one that asks */
};

/* NULL without memory. */
struct question *question_new(const char *node, const char *namespace, const char *pod);
struct question *question_free(struct question *question); /* takes NULL, returns NULL */
