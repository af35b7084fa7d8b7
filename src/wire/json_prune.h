/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A JSON document that comes in pieces, reduced to the members that the caller lists: of 75 MB of
 * Node objects what is left fits in a few. Memory is what is kept and 2 KiB, however long the
 * document is.
 *
 * What is kept is copied byte by byte and must still be parsed. Of what is dropped, strings and
 * brackets are followed, and nothing else is checked. */

#include <stddef.h>

struct buf;
struct json_prune;

#define JSON_PRUNE_KEEP_MAX 32 /* paths */

/* `keep`: paths of members from the root, parts joined by '/', "*" for each element of an array or
 * member of an object ("Nodes/items/ * /metadata/name" without blanks), without regard to ASCII
 * case as Go's decoder does it; ends with NULL and must outlive the object. Keys are compared as
 * they are written: no encoder escapes a letter, and a key with such an escape ("\u0050od") is on
 * no path. What is on the way to a path stays too: objects and arrays with less in them, and
 * scalars as they are. `out` is appended to; its bound is the bound of what is kept. NULL: out of
 * memory. */
struct json_prune *json_prune_new(const char *const *keep, struct buf *out);
struct json_prune *json_prune_free(struct json_prune *p); /* takes NULL, returns NULL */

/* 0, -EBADMSG for what cannot be JSON, or the error of `out` (-EFBIG: past its bound). After an
 * error every further call gives the same one. */
int json_prune_feed(struct json_prune *p, const char *data, size_t len);

/* The document has ended. -EBADMSG when it is not complete. */
int json_prune_end(struct json_prune *p);
