/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Fields of API objects into fixed arrays. */

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "wire/json.h"

/* Whether it can be used in the path of a URL as it is: only what Kubernetes allows in names. */
static inline bool field_is_name(const char *name) {
    size_t allowed = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-.");
    return name[allowed] == '\0' && name[0] != '.' && name[0] != '\0';
}

/* Copies a string that must be there, not empty, and shorter than `size`. */
static inline int field_copy(struct json value, char *ret, size_t size) {
    const char *text = json_string(value);
    size_t len = text ? strlen(text) : 0;
    if (len == 0 || len >= size)
        return -EINVAL;
    memcpy(ret, text, len + 1);
    return 0;
}

/* The same, but absent, null and empty give "". */
static inline int field_copy_optional(struct json value, char *ret, size_t size) {
    enum json_type type = json_type(value);
    const char *text = json_string(value);
    if (type == JSON_INVALID || type == JSON_NULL || (text && *text == '\0')) {
        *ret = '\0';
        return 0;
    }
    return field_copy(value, ret, size);
}

/* "2026-01-31T12:34:56Z", as the API server writes times, in seconds since 1970; 0 for all else. */
static inline int64_t field_time(struct json value) {
    const char *text = json_string(value);
    struct tm tm = {0};
    const char *end = text ? strptime(text, "%Y-%m-%dT%H:%M:%S", &tm) : NULL;
    return end && strcmp(end, "Z") == 0 ? (int64_t) timegm(&tm) : 0;
}
