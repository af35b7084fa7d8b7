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

/* Up to 8 members at once, each as its type wants it. An int is refused: it could be a bool.
 *
 *     json_put(&w, "name", card->name, "memory", card->memory, "healthy", card->healthy);
 */
#define json_put(w, ...)                                                                           \
    JSON_PUT_OF(__VA_ARGS__, JSON_PUT_8, , JSON_PUT_7, , JSON_PUT_6, , JSON_PUT_5, , JSON_PUT_4, , \
                JSON_PUT_3, , JSON_PUT_2, , JSON_PUT_1, )                                          \
    (w, __VA_ARGS__)

#define JSON_PUT_TYPES(TYPE)                                                                       \
    TYPE(char *, string)                                                                           \
    TYPE(const char *, string)                                                                     \
    TYPE(int64_t, i64)                                                                             \
    TYPE(uint8_t, u64)                                                                             \
    TYPE(uint16_t, u64)                                                                            \
    TYPE(uint32_t, u64)                                                                            \
    TYPE(uint64_t, u64)
#define JSON_PUT_BY_TYPE(type, name) , type : json_put_##name

#define JSON_PUT_OF(k1, v1, k2, v2, k3, v3, k4, v4, k5, v5, k6, v6, k7, v7, k8, v8, name, ...) name
#define JSON_PUT_1(w, key, value)                                                                  \
    _Generic((value), bool : json_put_bool JSON_PUT_TYPES(JSON_PUT_BY_TYPE))(w, key, value)
#define JSON_PUT_2(w, key, value, ...) (JSON_PUT_1(w, key, value), JSON_PUT_1(w, __VA_ARGS__))
#define JSON_PUT_3(w, key, value, ...) (JSON_PUT_1(w, key, value), JSON_PUT_2(w, __VA_ARGS__))
#define JSON_PUT_4(w, key, value, ...) (JSON_PUT_1(w, key, value), JSON_PUT_3(w, __VA_ARGS__))
#define JSON_PUT_5(w, key, value, ...) (JSON_PUT_1(w, key, value), JSON_PUT_4(w, __VA_ARGS__))
#define JSON_PUT_6(w, key, value, ...) (JSON_PUT_1(w, key, value), JSON_PUT_5(w, __VA_ARGS__))
#define JSON_PUT_7(w, key, value, ...) (JSON_PUT_1(w, key, value), JSON_PUT_6(w, __VA_ARGS__))
#define JSON_PUT_8(w, key, value, ...) (JSON_PUT_1(w, key, value), JSON_PUT_7(w, __VA_ARGS__))
