/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Requests of the API server through `kubectl proxy` (cli/cluster/proxy.h), or with the login of
 * the thread (cli/login.h). Each thread has connections of its own. */

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "wire/json.h"

#define API_GPUS "/apis/elasticgpu.io/v1alpha1/gpus"
#define API_UNBOUND_PODS "/api/v1/pods?fieldSelector=spec.nodeName%3D"
#define API_NAME_MAX 253 /* longest name of an object */

/* One of many requests. */
struct api_get {
    char *path;         /* owned */
    const char *who;    /* answers behind the API server, as "the agent"; NULL: that itself */
    const char *token;  /* for the one behind it; NULL: none */
    const char *accept; /* media types; NULL: JSON */
    size_t max;         /* bytes of its answer; 0: as a list of a large cluster */
    struct buf text;    /* the answer */
    int result;         /* 0 or a negative errno, and then the text of `err` */
    struct err err;
};

/* Appends the answer to `ret`. -ENOENT: there is no such object, or the server does not know the
 * kind; -EACCES: the user may not; -EEXIST: it is there already, or is another one by now; -EBUSY:
 * the server puts it off; the text is the server's. -EKEYREJECTED: it does not take the token of
 * the thread's login (any more). */
int api_get(const char *path, struct buf *ret, struct err *err);

/* The same for what Aliquot has in every cluster; -ENOENT says that it is not installed, and that
 * the cluster `lacks` something ("knows no GPU objects"). */
int api_get_own(const char *path, const char *lacks, struct buf *ret, struct err *err);

/* The same as api_get(), parsed. The parser to free is in *ret_parser, untouched on failure. */
int api_read(const char *path, struct json_parser **ret_parser, struct json *ret, struct err *err);

/* Calls `each` with every object of a list. */
int api_each(const char *path, void (*each)(struct json object, void *userdata), void *userdata,
             struct err *err);

/* The path of a list: of "/apis/GROUP/VERSION/KIND" or "/api/v1/KIND" with a query or none, in a
 * namespace (a name, see below), or in all where that is NULL. */
#define API_PATH_MAX (API_NAME_MAX + 128)
const char *api_list_path(const char *of_all, const char *namespace, char ret[static API_PATH_MAX]);

/* Where a list with a limit goes on: `more`, its metadata.continue, as it may be written into the
 * next path. -EBADMSG: it cannot be. */
#define API_CONTINUE_MAX 1024
int api_continue(const char *more, char ret[static API_CONTINUE_MAX], struct err *err);

/* Creates an object, and parses the answer. */
int api_create(const char *path, const char *object, struct json_parser **ret_parser,
               struct json *ret, struct err *err);

/* Changes an object by a patch of that type (kube/api/client.h). */
int api_patch(const char *path, const char *type, const char *patch, struct err *err);

/* Deletes an object, or all of a collection, and appends the answer to `ret`. */
int api_delete(const char *path, struct buf *ret, struct err *err);

/* Does all of them, a bounded number at a time. Results as of api_get(); -ENOKEY: `who` does
 * not take the token, or asks for one. Each has `each_ms` from its start, and all together
 * have `all_ms`. */
void api_get_all(struct api_get *gets, size_t n, unsigned each_ms, unsigned all_ms);
void api_gets_done(struct api_get *gets, size_t n); /* what they own, and the array */

/* Has `take_turn` called by the requests of this thread when a good answer begins to come, and
 * again while it comes, with what there is of it. One of which nothing comes for 3 s from then on
 * is given up: -ETIMEDOUT. NULL: nothing is called. */
void api_on_answer(void (*take_turn)(size_t len));

/* A request of this thread that is made alone has so long from now on, and one that the server puts
 * off (429) is not made again. 0: neither. */
void api_hurry(unsigned ms);

/* While the descriptor can be read, all requests of this thread end: -ECANCELED. Connecting is not
 * broken off. -1: none does. */
void api_cancel_by(int fd);

/* Closes the connections of this thread, which no request uses now. */
void api_close(void);

/* Whether a text can be the name of an object or a namespace, and so a segment of a path. */
bool api_is_name(const char *text);
