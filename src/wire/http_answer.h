/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* An answer of an HTTP/1.1 server, read from pieces of any size. No I/O. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define HTTP_ANSWER_HEAD_MAX 65536u /* bytes of status line and fields, and of a trailer */

#define HTTP_ANSWER_RETRY_MAX 3600u
#define HTTP_ANSWER_DATE_SIZE 32

enum http_answer_part {
    HTTP_ANSWER_HEAD,
    HTTP_ANSWER_BODY,    /* `left` bytes of it, or up to the end of the connection */
    HTTP_ANSWER_SIZE,    /* line with the size of a chunk */
    HTTP_ANSWER_CHUNK,   /* `left` bytes of it */
    HTTP_ANSWER_GAP,     /* the line end behind a chunk */
    HTTP_ANSWER_TRAILER, /* fields behind the last chunk */
    HTTP_ANSWER_COMPLETE,
};

struct http_answer {
    enum http_answer_part part;
    int status;       /* 0 until the head is read; never 1xx */
    bool keeps;       /* the connection can carry another request */
    bool to_the_end;  /* the body ends with the connection */
    uint32_t retry_s; /* Retry-After in seconds, at most HTTP_ANSWER_RETRY_MAX; 0: not said so */
    uint64_t left;    /* of the body or the chunk */
    char date[HTTP_ANSWER_DATE_SIZE]; /* the field Date; "": there is none */
    struct buf line;                  /* an incomplete head or line */
    struct buf body;                  /* its `max` is the caller's */
};

void http_answer_init(struct http_answer *a, size_t body_max);
void http_answer_done(struct http_answer *a);

/* Takes all of `data`. -EBADMSG: it is no HTTP, or bytes follow a complete answer; -EMSGSIZE: the
 * head or the body is longer than its bound; -ENOMEM. */
int http_answer_feed(struct http_answer *a, const char *data, size_t len, struct err *err);

/* The server has closed the connection. -ECONNRESET unless the answer is complete by that. */
int http_answer_end(struct http_answer *a, struct err *err);
