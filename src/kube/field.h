/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Fields of API objects into fixed arrays. */

#include <errno.h>
#include <string.h>

#include "wire/json.h"

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
