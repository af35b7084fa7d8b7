/* SPDX-License-Identifier: Apache-2.0 */

/* Functions and operators, a row for each list of types that they take. */

#include <stdlib.h>
#include <string.h>

#include "cel/internal.h"

#define MADE_MAX ((size_t) 64 << 10)

struct cel_value cel_error(const char *problem) {
    return (struct cel_value){.type = CEL_ERROR, .problem = problem};
}

struct cel_value cel_not_served(const char *problem) {
    return (struct cel_value){.type = CEL_NOT_SERVED, .problem = problem};
}

bool cel_is_failure(const struct cel_value *value) {
    return value->type == CEL_ERROR || value->type == CEL_NOT_SERVED;
}

bool cel_spend(struct cel_run *run, size_t steps) {
    bool enough = *run->budget >= steps;
    *run->budget = enough ? *run->budget - steps : 0;
    return enough;
}

struct cel_memory {
    struct cel_memory *next;
    char text[];
};

char *cel_make(struct cel_run *run, size_t size) {
    struct cel_memory *made =
        size <= MADE_MAX - run->made ? malloc(sizeof(*made) + size + 1) : NULL;
    if (!made)
        return NULL;
    run->made += size;
    made->next = run->memory;
    run->memory = made;
    return made->text;
}

void cel_unmake(struct cel_run *run) {
    while (run->memory) {
        struct cel_memory *made = run->memory;
        run->memory = made->next;
        free(made);
    }
}

static struct cel_value truth(bool value) {
    return (struct cel_value){.type = CEL_BOOL, .truth = value};
}

static struct cel_value number(int64_t value) {
    return (struct cel_value){.type = CEL_INT, .number = value};
}

static int compare_texts(struct cel_text a, struct cel_text b) {
    size_t len = a.len < b.len ? a.len : b.len;
    int r = len > 0 ? memcmp(a.data, b.data, len) : 0;
    return r != 0 ? r : (a.len > b.len) - (a.len < b.len);
}

int cel_compare(const struct cel_value *a, const struct cel_value *b) {
    switch ((int) a->type) {
    case CEL_BOOL:
        return a->truth - b->truth;
    case CEL_INT:
        return (a->number > b->number) - (a->number < b->number);
    case CEL_STRING:
        return compare_texts(a->text, b->text);
    case CEL_VERSION:
        return cel_version_compare(&a->version, &b->version);
    default:
        return (a->quantity > b->quantity) - (a->quantity < b->quantity);
    }
}

/* ---- operators ---- */

#define ORDER(name, op)                                                                            \
    static struct cel_value name(struct cel_run *run, const struct cel_value *a) {                 \
        (void) run;                                                                                \
        return truth(cel_compare(&a[0], &a[1]) op 0);                                              \
    }
ORDER(less, <)
ORDER(less_equal, <=)
ORDER(greater, >)
ORDER(greater_equal, >=)

static struct cel_value compare_to(struct cel_run *run, const struct cel_value *a) {
    int order = cel_compare(&a[0], &a[1]);
    (void) run;
    return number((order > 0) - (order < 0));
}

#define ARITHMETIC(name, builtin)                                                                  \
    static struct cel_value name(struct cel_run *run, const struct cel_value *a) {                 \
        int64_t value;                                                                             \
        (void) run;                                                                                \
        return builtin(a[0].number, a[1].number, &value) ? cel_error("integer overflow")           \
                                                         : number(value);                          \
    }
ARITHMETIC(add, __builtin_add_overflow)
ARITHMETIC(subtract, __builtin_sub_overflow)
ARITHMETIC(multiply, __builtin_mul_overflow)

static struct cel_value divide(struct cel_run *run, const struct cel_value *a) {
    (void) run;
    return a[1].number == 0                                ? cel_error("division by zero")
           : a[0].number == INT64_MIN && a[1].number == -1 ? cel_error("integer overflow")
                                                           : number(a[0].number / a[1].number);
}

static struct cel_value remainder_of(struct cel_run *run, const struct cel_value *a) {
    (void) run;
    return a[1].number == 0                                ? cel_error("modulus by zero")
           : a[0].number == INT64_MIN && a[1].number == -1 ? cel_error("integer overflow")
                                                           : number(a[0].number % a[1].number);
}

static struct cel_value negate(struct cel_run *run, const struct cel_value *a) {
    (void) run;
    return a->number == INT64_MIN ? cel_error("integer overflow") : number(-a->number);
}

static struct cel_value join(struct cel_run *run, const struct cel_value *a) {
    const struct cel_text x = a[0].text, y = a[1].text;
    char *made = cel_make(run, x.len + y.len);
    if (!made)
        return cel_not_served("a text that is too long");
    if (x.len > 0)
        memcpy(made, x.data, x.len);
    if (y.len > 0)
        memcpy(made + x.len, y.data, y.len);
    return (struct cel_value){.type = CEL_STRING, .text = {made, x.len + y.len}};
}

/* ---- texts ---- */

static struct cel_value size(struct cel_run *run, const struct cel_value *a) {
    int64_t n = 0;
    (void) run;
    for (size_t i = 0; i < a->text.len; i++)
        n += ((unsigned char) a->text.data[i] & 0xc0) != 0x80;
    return number(n);
}

static bool same(const char *a, struct cel_text b) {
    return b.len == 0 || memcmp(a, b.data, b.len) == 0;
}

static struct cel_value contains(struct cel_run *run, const struct cel_value *a) {
    (void) run;
    return truth(a[1].text.len == 0 ||
                 (a[0].text.len > 0 &&
                  memmem(a[0].text.data, a[0].text.len, a[1].text.data, a[1].text.len)));
}

static struct cel_value starts_with(struct cel_run *run, const struct cel_value *a) {
    (void) run;
    return truth(a[0].text.len >= a[1].text.len && same(a[0].text.data, a[1].text));
}

static struct cel_value ends_with(struct cel_run *run, const struct cel_value *a) {
    const struct cel_text x = a[0].text, y = a[1].text;
    (void) run;
    return truth(x.len >= y.len && same(x.data + (x.len - y.len), y));
}

static struct cel_value in_case(struct cel_run *run, const struct cel_value *a, char from) {
    char *made = cel_make(run, a->text.len);
    if (!made)
        return cel_not_served("a text that is too long");
    for (size_t i = 0; i < a->text.len; i++) {
        char c = a->text.data[i];
        made[i] = (char) (c >= from && c <= from + 25 ? c ^ 0x20 : c);
    }
    return (struct cel_value){.type = CEL_STRING, .text = {made, a->text.len}};
}

static struct cel_value lower(struct cel_run *run, const struct cel_value *a) {
    return in_case(run, a, 'A');
}

static struct cel_value upper(struct cel_run *run, const struct cel_value *a) {
    return in_case(run, a, 'a');
}

/* ---- quantities and versions ---- */

static struct cel_value quantity(struct cel_run *run, const struct cel_value *a) {
    struct cel_value value = {.type = CEL_QUANTITY};
    (void) run;
    return cel_quantity_parse(a->text, &value.quantity)
               ? value
               : cel_not_served("a quantity that is no plain number with a suffix");
}

static struct cel_value read_version(struct cel_run *run, const struct cel_value *a, bool tolerant,
                                     enum cel_parsed *ret) {
    struct cel_value value = {.type = CEL_VERSION};
    char *buf = cel_make(run, CEL_VERSION_MAX);
    *ret = buf ? cel_version_parse(a->text, tolerant, buf, &value.version) : CEL_TOO_LONG;
    return *ret == CEL_PARSED      ? value
           : *ret == CEL_MALFORMED ? cel_error("not a semantic version")
                                   : cel_not_served("a version that is too long");
}

static struct cel_value semver(struct cel_run *run, const struct cel_value *a) {
    enum cel_parsed parsed;
    return read_version(run, a, false, &parsed);
}

static struct cel_value semver_tolerant(struct cel_run *run, const struct cel_value *a) {
    enum cel_parsed parsed;
    return read_version(run, a, a[1].truth, &parsed);
}

static struct cel_value is_semver(struct cel_run *run, const struct cel_value *a) {
    enum cel_parsed parsed;
    struct cel_value value = read_version(run, a, false, &parsed);
    return parsed == CEL_TOO_LONG ? value : truth(parsed == CEL_PARSED);
}

static struct cel_value is_semver_tolerant(struct cel_run *run, const struct cel_value *a) {
    enum cel_parsed parsed;
    struct cel_value value = read_version(run, a, a[1].truth, &parsed);
    return parsed == CEL_TOO_LONG ? value : truth(parsed == CEL_PARSED);
}

static struct cel_value part_of(const struct cel_value *a, int part) {
    uint64_t value = a->version.numbers[part];
    return value > INT64_MAX ? cel_not_served("a number of more than 63 bits")
                             : number((int64_t) value);
}

static struct cel_value major_of(struct cel_run *run, const struct cel_value *a) {
    (void) run;
    return part_of(a, 0);
}

static struct cel_value minor_of(struct cel_run *run, const struct cel_value *a) {
    (void) run;
    return part_of(a, 1);
}

static struct cel_value patch_of(struct cel_run *run, const struct cel_value *a) {
    (void) run;
    return part_of(a, 2);
}

/* ---- the table ---- */

#define MEMBER true, false
#define GLOBAL false, true
#define EITHER true, true

static const struct cel_function functions[] = {
    {"<", GLOBAL, 2, {CEL_BOOL, CEL_BOOL}, CEL_BOOL, less},
    {"<", GLOBAL, 2, {CEL_INT, CEL_INT}, CEL_BOOL, less},
    {"<", GLOBAL, 2, {CEL_STRING, CEL_STRING}, CEL_BOOL, less},
    {"<=", GLOBAL, 2, {CEL_BOOL, CEL_BOOL}, CEL_BOOL, less_equal},
    {"<=", GLOBAL, 2, {CEL_INT, CEL_INT}, CEL_BOOL, less_equal},
    {"<=", GLOBAL, 2, {CEL_STRING, CEL_STRING}, CEL_BOOL, less_equal},
    {">", GLOBAL, 2, {CEL_BOOL, CEL_BOOL}, CEL_BOOL, greater},
    {">", GLOBAL, 2, {CEL_INT, CEL_INT}, CEL_BOOL, greater},
    {">", GLOBAL, 2, {CEL_STRING, CEL_STRING}, CEL_BOOL, greater},
    {">=", GLOBAL, 2, {CEL_BOOL, CEL_BOOL}, CEL_BOOL, greater_equal},
    {">=", GLOBAL, 2, {CEL_INT, CEL_INT}, CEL_BOOL, greater_equal},
    {">=", GLOBAL, 2, {CEL_STRING, CEL_STRING}, CEL_BOOL, greater_equal},
    {"+", GLOBAL, 2, {CEL_INT, CEL_INT}, CEL_INT, add},
    {"+", GLOBAL, 2, {CEL_STRING, CEL_STRING}, CEL_STRING, join},
    {"-", GLOBAL, 2, {CEL_INT, CEL_INT}, CEL_INT, subtract},
    {"-", GLOBAL, 1, {CEL_INT}, CEL_INT, negate},
    {"*", GLOBAL, 2, {CEL_INT, CEL_INT}, CEL_INT, multiply},
    {"/", GLOBAL, 2, {CEL_INT, CEL_INT}, CEL_INT, divide},
    {"%", GLOBAL, 2, {CEL_INT, CEL_INT}, CEL_INT, remainder_of},
    {"size", EITHER, 1, {CEL_STRING}, CEL_INT, size},
    {"contains", MEMBER, 2, {CEL_STRING, CEL_STRING}, CEL_BOOL, contains},
    {"startsWith", MEMBER, 2, {CEL_STRING, CEL_STRING}, CEL_BOOL, starts_with},
    {"endsWith", MEMBER, 2, {CEL_STRING, CEL_STRING}, CEL_BOOL, ends_with},
    {"lowerAscii", MEMBER, 1, {CEL_STRING}, CEL_STRING, lower},
    {"upperAscii", MEMBER, 1, {CEL_STRING}, CEL_STRING, upper},
    {"quantity", GLOBAL, 1, {CEL_STRING}, CEL_QUANTITY, quantity},
    {"semver", GLOBAL, 1, {CEL_STRING}, CEL_VERSION, semver},
    {"semver", GLOBAL, 2, {CEL_STRING, CEL_BOOL}, CEL_VERSION, semver_tolerant},
    {"isSemver", GLOBAL, 1, {CEL_STRING}, CEL_BOOL, is_semver},
    {"isSemver", GLOBAL, 2, {CEL_STRING, CEL_BOOL}, CEL_BOOL, is_semver_tolerant},
    {"major", MEMBER, 1, {CEL_VERSION}, CEL_INT, major_of},
    {"minor", MEMBER, 1, {CEL_VERSION}, CEL_INT, minor_of},
    {"patch", MEMBER, 1, {CEL_VERSION}, CEL_INT, patch_of},
    {"compareTo", MEMBER, 2, {CEL_QUANTITY, CEL_QUANTITY}, CEL_INT, compare_to},
    {"compareTo", MEMBER, 2, {CEL_VERSION, CEL_VERSION}, CEL_INT, compare_to},
    {"isGreaterThan", MEMBER, 2, {CEL_QUANTITY, CEL_QUANTITY}, CEL_BOOL, greater},
    {"isGreaterThan", MEMBER, 2, {CEL_VERSION, CEL_VERSION}, CEL_BOOL, greater},
    {"isLessThan", MEMBER, 2, {CEL_QUANTITY, CEL_QUANTITY}, CEL_BOOL, less},
    {"isLessThan", MEMBER, 2, {CEL_VERSION, CEL_VERSION}, CEL_BOOL, less},
};

const struct cel_function *cel_function(uint32_t row) {
    return row < sizeof(functions) / sizeof(functions[0]) ? &functions[row] : NULL;
}
