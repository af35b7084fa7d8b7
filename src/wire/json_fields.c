/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/json_fields.h"

#include <string.h>

/* Numbers are unsigned and the processors little-endian: the first bytes are those of any size. */
static uint64_t number_at(const struct json_field *f, const void *from) {
    uint64_t value = 0;

    memcpy(&value, (const char *) from + f->offset, f->size);
    return value;
}

void json_put_fields(struct json_writer *w, const struct json_field *fields, size_t n,
                     const void *from) {
    for (const struct json_field *f = fields; f < fields + n; f++) {
        const char *at = (const char *) from + f->offset;

        switch (f->kind) {
        case JSON_FIELD_NUMBER:
        case JSON_FIELD_FLAG:
            json_put_u64(w, f->name, number_at(f, from));
            break;
        case JSON_FIELD_BOOL:
            json_put_bool(w, f->name, number_at(f, from) != 0);
            break;
        case JSON_FIELD_TEXT:
            json_put_string(w, f->name, *(const char *const *) (const void *) at);
            break;
        case JSON_FIELD_ARRAY:
            json_put_string(w, f->name, at);
            break;
        }
    }
}

bool json_read_fields(struct json object, const struct json_field *fields, size_t n, void *ret) {
    bool fits = true;

    for (const struct json_field *f = fields; f < fields + n; f++) {
        const uint64_t most = f->kind == JSON_FIELD_FLAG ? 1 : UINT64_MAX >> (64 - 8 * f->size);
        void *at = (char *) ret + f->offset;
        struct json v = json_get(object, f->name);
        uint64_t value;

        if (f->kind == JSON_FIELD_BOOL)
            (void) json_bool(v, at);
        else if (f->kind == JSON_FIELD_TEXT || f->kind == JSON_FIELD_ARRAY || !json_u64(v, &value))
            continue;
        else if (value > most)
            fits = false;
        else
            memcpy(at, &value, f->size);
    }
    return fits;
}
