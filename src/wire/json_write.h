/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* JSON out: appends compact JSON to a buffer and puts the commas itself. `key` is NULL for elements
 * of an array and for the outermost value. Strings are escaped; bytes that are not UTF-8 become
 * U+FFFD, so that the output is always valid. Failures are the buffer's (buf_error).
 *
 *     struct json_writer w = {.out = &buf};
 *     json_object_begin(&w, NULL);
 *     json_put_string(&w, "name", name);
 *     json_object_end(&w);
 */

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct json_writer {
    struct buf *out;
    bool comma; /* the next value needs one before it */
};

void json_object_begin(struct json_writer *w, const char *key);
void json_object_end(struct json_writer *w);
void json_array_begin(struct json_writer *w, const char *key);
void json_array_end(struct json_writer *w);
void json_put_string(struct json_writer *w, const char *key, const char *value); /* NULL: null */
void json_put_stringf(struct json_writer *w, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void json_put_u64(struct json_writer *w, const char *key, uint64_t value);
void json_put_i64(struct json_writer *w, const char *key, int64_t value);
void json_put_bool(struct json_writer *w, const char *key, bool value);
void json_put_null(struct json_writer *w, const char *key);
/* `text` is JSON already and is copied as it is. */
void json_put_raw(struct json_writer *w, const char *key, const char *text);
