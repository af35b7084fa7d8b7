/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Whether a user may read a metric. Who the user is, the API server says in headers of the requests
 * that it passes on; whether it may, a SubjectAccessReview says: the API server has authorised the
 * path as it came, and the review is about what was read from it. Answers are kept for a while. One
 * thread.
 */

#include <stdbool.h>

#include "scheduler/cluster/api.h"
#include "scheduler/metrics_api/request.h"
#include "wire/http.h"

#define ACCESS_USER "X-Remote-User" /* header: the name of the user, of the front proxy */
#define ACCESS_ALLOWED_MS 10000     /* that an answer is kept */
#define ACCESS_REFUSED_MS 2000
#define ACCESS_MAX 512 /* answers that are kept */

struct access;

struct access *access_new(const struct api *api); /* copies it. NULL: out of memory */
/* Pending checks end without their callbacks, and no answer of the API server may come afterwards.
 * Takes NULL, returns NULL. */
struct access *access_free(struct access *a);

enum access_verdict {
    ACCESS_YES,
    ACCESS_NO,      /* the user has no such right */
    ACCESS_NO_USER, /* the headers name none, or more than is read */
    ACCESS_UNKNOWN, /* the API server does not answer */
};

typedef void (*access_cb)(enum access_verdict verdict, void *userdata);

/* Calls `done` once, later or inside this call. */
void access_check(struct access *a, const struct http_exchange *exchange,
                  const struct metrics_request *request, access_cb done, void *userdata);
