/* SPDX-License-Identifier: Apache-2.0 */
#include "model/request_code.h"

#include <string.h>

#define AMOUNTS_MAX 8 /* no dialect has more names */

/* What a word means in a dialect. */
static const struct row {
    enum dialect_id dialect;
    const char *dialect_word, *word;
    const char *name;          /* of the resource; NULL: an annotation */
    enum annotation_part part; /* of an annotation */
} rows[] = {
#define QUANTITY(id, resource, kind, unit, meaning) {DIALECT_##id, #id, #kind, resource, 0},
#define ANNOTATION(id, key, part, meaning) {DIALECT_##id, #id, #part, NULL, ANNOTATION_##part},
#include "model/dialects.def"
};

bool request_code_is(const char *name) {
    return strncmp(name, REQUEST_CODE_PREFIX, strlen(REQUEST_CODE_PREFIX)) == 0 &&
           strlen(name) < REQUEST_CODE_MAX;
}

/* Whether the word is the identifier in small letters and without '_'. */
static bool is_word(const char *word, const char *identifier) {
    for (; *identifier; identifier++) {
        if (*identifier == '_')
            continue;
        char small = *identifier >= 'A' && *identifier <= 'Z' ? (char) (*identifier - 'A' + 'a')
                                                              : *identifier;
        if (*word++ != small)
            return false;
    }
    return *word == '\0';
}

static const struct row *find_row(const char *dialect, const char *word) {
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (is_word(dialect, rows[i].dialect_word) && is_word(word, rows[i].word))
            return &rows[i];
    return NULL;
}

/* Cuts off what comes before the next '-'; NULL: nothing is left. */
static char *next_word(char **rest) {
    char *word = *rest, *end = word ? strchr(word, '-') : NULL;
    if (end)
        *end++ = '\0';
    *rest = end;
    return word && word[0] ? word : NULL;
}

struct amounts {
    enum dialect_id dialect;
    size_t n; /* lines of resources */
    struct resource_line lines[AMOUNTS_MAX + 1];
    struct annotated_request annotated; /* of DIALECT_COUNT: there is none */
};

static bool add_amount(struct amounts *a, const struct row *row, char *value) {
    if (row->name) {
        if (a->n == AMOUNTS_MAX)
            return false;
        a->lines[a->n++] = (struct resource_line){row->name, value, strlen(value)};
        return true;
    }
    for (char *point = value; (point = strchr(point, 'd'));)
        *point = '.';
    a->annotated.dialect = row->dialect;
    a->annotated.text[row->part] = value;
    return true;
}

/* The texts are those of `code`, which is changed. */
static bool split(char *code, struct amounts *ret) {
    char *rest = code + strlen(REQUEST_CODE_PREFIX), *dialect = next_word(&rest);
    *ret = (struct amounts){.annotated.dialect = DIALECT_COUNT};
    if (!dialect || !rest)
        return false;
    while (rest) {
        const char *word = next_word(&rest);
        char *value = next_word(&rest);
        const struct row *row = word && value ? find_row(dialect, word) : NULL;
        if (!row || !add_amount(ret, row, value))
            return false;
        ret->dialect = row->dialect;
    }
    return true;
}

enum request_problem request_code_read(const char *code, struct container_request *ret) {
    char copy[REQUEST_CODE_MAX];
    struct amounts a;
    struct dialect_pair mixed;
    bool requested = false;
    if (!request_code_is(code))
        return REQUEST_NOT_A_NUMBER;
    memcpy(copy, code, strlen(code) + 1);
    if (!split(copy, &a) || dialect_is_left(a.dialect))
        return REQUEST_NOT_A_NUMBER;
    if (a.annotated.dialect != DIALECT_COUNT)
        return dialect_read_annotated(&a.annotated, ret);
    if (dialect_needs_slot(a.lines, a.n)) /* what a container has beside such names */
        a.lines[a.n++] = (struct resource_line){RESOURCE_SLOT, "1", 1};
    enum request_problem p = dialect_read(a.lines, a.n, ret, &requested, &mixed);
    return p == REQUEST_OK && !requested ? REQUEST_NOT_A_NUMBER : p;
}
