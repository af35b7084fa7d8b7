/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* JSON in: a read-only view of a parsed document (simdjson behind it: strict RFC 8259, UTF-8
 * checked). JSON out: json_write.h.
 *
 *     struct json root;
 *     if (json_parse(parser, text, len, &root, &err) < 0) ...
 *     const char *node = json_string(JSON_PATH(root, "spec", "nodeName"));   NULL if absent
 *
 * A view is a value of two words; it borrows from its parser and is valid until that parser parses
 * again or is freed. Every accessor takes the invalid view (what a failed look-up returns) and a
 * view of another type, and answers "absent". Of duplicate keys the first counts. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

#define JSON_DEPTH_MAX 128 /* nesting; deeper documents are refused */

struct json {
    const void *doc; /* NULL: invalid */
    size_t index;
};

enum json_type {
    JSON_INVALID,
    JSON_NULL,
    JSON_BOOL,
    JSON_NUMBER,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT,
};

struct json_parser;

struct json_parser *json_parser_new(void);                        /* NULL when out of memory */
struct json_parser *json_parser_free(struct json_parser *parser); /* takes NULL, returns NULL */

/* Parses one document. -EBADMSG for bad JSON (the text names the cause), -ENOMEM. The input is
 * copied. */
int json_parse(struct json_parser *parser, const char *text, size_t len, struct json *ret,
               struct err *err);

/* Both at once, for a document that is read once: the parser to free is in *ret_parser (untouched
 * on failure). */
int json_open(const char *text, size_t len, struct json_parser **ret_parser, struct json *ret,
              struct err *err);

static inline void json_parser_freep(struct json_parser **parser) {
    (void) json_parser_free(*parser);
}

#define _cleanup_json_ __attribute__((cleanup(json_parser_freep)))

enum json_type json_type(struct json v);

static inline bool json_valid(struct json v) {
    return v.doc != NULL;
}

/* The member of an object, or the invalid view. */
struct json json_get(struct json object, const char *key);

/* The same, taking no notice of ASCII case, as Go's decoder does. */
struct json json_get_nocase(struct json object, const char *key);

/* Follows keys up to a NULL. */
struct json json_path(struct json v, const char *const *keys);
#define JSON_PATH(v, ...) json_path((v), (const char *const[]){__VA_ARGS__, NULL})

/* A string as NUL-terminated UTF-8; NULL if v is none, or has a NUL inside. */
const char *json_string(struct json v);

/* The same, `otherwise` in place of NULL. */
const char *json_string_or(struct json v, const char *otherwise);

/* Whether v is the string `text`; false where that is NULL. */
bool json_is_string(struct json v, const char *text);

/* Numbers that are whole and in range; false (and *ret untouched) otherwise. */
bool json_u64(struct json v, uint64_t *ret);
bool json_i64(struct json v, int64_t *ret);
bool json_bool(struct json v, bool *ret);
/* Any number; large whole ones lose precision. */
bool json_double(struct json v, double *ret);

/* Number of elements or members; 0 for anything else. Counts up to 2^24 - 1. */
size_t json_size(struct json v);

/* Walks an array or an object; anything else has nothing to walk.
 *
 *     struct json_iter it = json_iter(array);
 *     struct json item;
 *     while (json_next(&it, NULL, &item)) ...
 *
 * `ret_key` (may be NULL) receives a member's key, NULL if that has a NUL inside. */
struct json_iter {
    struct json at;
    struct json end;
    bool object;
};
struct json_iter json_iter(struct json v);
bool json_next(struct json_iter *it, const char **ret_key, struct json *ret_value);

/* Whether the string `text` is in an array; false where that is NULL. */
bool json_has_string(struct json array, const char *text);

/* The first object of an array whose member `key` is the string `text`, or the invalid view. */
struct json json_find(struct json array, const char *key, const char *text);

/* The next strings of an array, at most `max` of them; fewer at its end, and where something other
 * than a string follows (or one with a NUL inside), which the iterator then precedes. */
struct json_text {
    const char *data; /* as json_string() gives it */
    size_t len;
};
size_t json_next_texts(struct json_iter *it, struct json_text *ret, size_t max);

struct buf;

/* Appends the compact text of v. */
void json_print(struct buf *out, struct json v);

#ifdef __cplusplus
}
#endif
