/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* YAML in: one document as a tree in which every node knows its line and column (libyaml behind
 * it). JSON is YAML, too. Keys are scalars and unique, the document is UTF-8 without NUL, and its
 * size, depth and number of nodes have bounds; an alias counts as all that it stands for, so that
 * a short text cannot describe a large tree. Merge keys (<<) are applied.
 *
 * yaml_read() reads a mapping by a table of its keys: a key that is not in the table is an error
 * that names its line and the key that was probably meant. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define YAML_SIZE_MAX ((size_t) 1 << 20) /* bytes of text; the API server has the same bound */
#define YAML_NODES_MAX 65536u            /* nodes of the tree, aliases expanded */
#define YAML_DEPTH_MAX 64u               /* of the text; aliases in aliases go deeper */
#define YAML_KEYS_MAX 1024u              /* of one map */
#define YAML_ANCHORS_MAX 1024u

enum yaml_type { YAML_NULL, YAML_BOOL, YAML_NUMBER, YAML_STRING, YAML_LIST, YAML_MAP };

/* A node belongs to its document and is read only. */
struct yaml {
    enum yaml_type type;
    uint32_t line, column;   /* from 1 */
    const char *text;        /* of a scalar, quotes and escapes resolved; NULL: a list or a map */
    const struct yaml *key;  /* of a member of a map; otherwise NULL */
    const struct yaml *next; /* the next element or member; NULL after the last one */
    const struct yaml *first;
    size_t size; /* how many elements or members it has */
};

struct yaml_doc;

/* Parses one document; an empty text is one of type YAML_NULL. *ret_root borrows from *ret_doc.
 * -EBADMSG: the text names the line, the column and the cause; -EFBIG: past a bound; -ENOMEM. */
int yaml_parse(const char *text, size_t len, struct yaml_doc **ret_doc,
               const struct yaml **ret_root, struct err *err);

struct yaml_doc *yaml_doc_free(struct yaml_doc *doc); /* takes NULL, returns NULL */

static inline void yaml_doc_freep(struct yaml_doc **doc) {
    (void) yaml_doc_free(*doc);
}

#define _cleanup_yaml_ __attribute__((cleanup(yaml_doc_freep)))

/* The value of a key; NULL where `map` is NULL or no map, or has no such key. */
const struct yaml *yaml_get(const struct yaml *map, const char *key);

/* "a map", "a list", "a number" ... for messages. */
const char *yaml_type_name(const struct yaml *v);

/* -EINVAL, with "line 7, column 3: replicas: " before the text; `replicas` is the key of v. */
int yaml_error(const struct yaml *v, struct err *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- maps by a table of their keys ---- */

/* `target` is where the field is in the caller's struct. Errors are made by yaml_error(). */
typedef int (*yaml_read_fn)(const struct yaml *v, void *target, const void *arg, struct err *err);

struct yaml_field {
    const char *key;
    yaml_read_fn read; /* NULL: the key is known, and its value is not read */
    size_t offset;     /* of the field in the caller's struct */
    const void *arg;   /* for `read` */
    bool required;     /* an error where the key is absent or null */
};

/* The end of a table. */
#define YAML_FIELD_END                                                                             \
    { 0 }

/* Reads each member of v by its field; null values change nothing, v itself may be NULL or null.
 * -EINVAL: v is no map, a key is not in the table, a required key is absent, or a reader's error;
 * what was read before it stays in the target. */
int yaml_read(const struct yaml *v, const struct yaml_field *fields, void *target, struct err *err);

/* Parses and reads a text that must be a map, `expected` in messages. *ret_doc is set, too, where
 * the reading fails. */
int yaml_read_text(const char *text, size_t len, const char *expected,
                   const struct yaml_field *fields, void *target, struct yaml_doc **ret_doc,
                   struct err *err);

/* Calls `each`, a reader, for each element of the list v in order, up to its first error; the
 * target is the same for all. v itself may be NULL or null. -EINVAL also: v is no list. */
int yaml_read_each(const struct yaml *v, yaml_read_fn each, void *target, const void *arg,
                   struct err *err);

/* Readers for the table. */
int yaml_bool(const struct yaml *v, void *target, const void *arg, struct err *err); /* bool * */
/* const char **; any scalar, as it is written. Borrows from the document. */
int yaml_string(const struct yaml *v, void *target, const void *arg, struct err *err);
/* int *; `arg` is a list of words (const char *const *) that ends with NULL, and the index of the
 * value is the result. */
int yaml_word(const struct yaml *v, void *target, const void *arg, struct err *err);
/* uint32_t *; `arg` may be a struct yaml_range, otherwise every 32-bit number is taken. */
int yaml_u32(const struct yaml *v, void *target, const void *arg, struct err *err);
struct yaml_range {
    uint32_t min, max;
};
/* uint64_t * of nanoseconds, as Go writes it: 1s, 1m30s, 250ms, 1.5h. A number without a unit is
 * nanoseconds. Never negative. */
int yaml_duration(const struct yaml *v, void *target, const void *arg, struct err *err);
