/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Members of a struct as members of a JSON object: one table from which both are written and read.
 *
 *     static const struct json_field fields[] = {
 *         JSON_FIELD(struct card, "name", name),
 *         JSON_FIELD(struct card, "freeMemory", free_memory),
 *     };
 *     JSON_PUT_FIELDS(w, fields, card);
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/json.h"
#include "wire/json_write.h"

enum json_field_kind {
    JSON_FIELD_NUMBER,
    JSON_FIELD_BOOL,
    JSON_FIELD_FLAG,  /* a bool that is 0 or 1 in the object */
    JSON_FIELD_TEXT,  /* a pointer; NULL: null */
    JSON_FIELD_ARRAY, /* char[] with a text */
};

struct json_field {
    const char *name;
    enum json_field_kind kind;
    size_t offset, size;
};

/* TYPE(type, kind): the types that a member can have, besides bool and char *. An int32_t is
 * written as the unsigned number of the same bits. */
#define JSON_FIELD_TYPES(TYPE)                                                                     \
    TYPE(uint8_t, NUMBER)                                                                          \
    TYPE(uint16_t, NUMBER)                                                                         \
    TYPE(uint32_t, NUMBER)                                                                         \
    TYPE(int32_t, NUMBER)                                                                          \
    TYPE(uint64_t, NUMBER)                                                                         \
    TYPE(const char *, TEXT)                                                                       \
    TYPE(char *, ARRAY)

#define JSON_FIELD_OF_TYPE(type, kind) , type : JSON_FIELD_##kind
#define JSON_FIELD_OF_VALUE(value, of_bool)                                                        \
    _Generic((value), bool : of_bool JSON_FIELD_TYPES(JSON_FIELD_OF_TYPE))

/* A pointer and an array of char are told apart by their addresses. */
#define JSON_FIELD_KIND(value, of_bool)                                                            \
    _Generic(&(value), char ** : JSON_FIELD_TEXT, default : JSON_FIELD_OF_VALUE(value, of_bool))

/* A row of a table. */
#define JSON_FIELD_MEMBER(type, member) (((type *) 0)->member)
#define JSON_FIELD_AS(type, name, member, of_bool)                                                 \
    {                                                                                              \
        name, JSON_FIELD_KIND(JSON_FIELD_MEMBER(type, member), of_bool), offsetof(type, member),   \
            sizeof(JSON_FIELD_MEMBER(type, member))                                                \
    }
#define JSON_FIELD(type, name, member) JSON_FIELD_AS(type, name, member, JSON_FIELD_BOOL)
/* The same, a bool as 0 or 1. */
#define JSON_NUMBER(type, name, member) JSON_FIELD_AS(type, name, member, JSON_FIELD_FLAG)

/* Writes the members of the struct, in the order of the table, into the object that is open. */
void json_put_fields(struct json_writer *w, const struct json_field *fields, size_t n,
                     const void *from);
#define JSON_PUT_FIELDS(w, fields, from)                                                           \
    json_put_fields(w, fields, sizeof(fields) / sizeof((fields)[0]), from)

/* Reads numbers, bools and flags; texts are left to the caller, who knows what is too long. What is
 * missing or of another type leaves its member as it is. False: a number does not fit its member,
 * which is left, too. */
bool json_read_fields(struct json object, const struct json_field *fields, size_t n, void *ret);
#define JSON_READ_FIELDS(object, fields, ret)                                                      \
    json_read_fields(object, fields, sizeof(fields) / sizeof((fields)[0]), ret)
